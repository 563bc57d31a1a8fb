"""TOML files with numbers that are too long to read or to show."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.files.toml import MAX_DIGITS, read_toml

TOO_LONG = "a whole number must have at most 1,000 digits, got more; correct it there"


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000, "9" * 1001, "0b" + "1" * 20_000])
@pytest.mark.parametrize("value", ["{}", "[{{ b = [{}] }}]"])
def test_a_number_of_too_many_digits_is_refused_in_one_line(number: str, value: str, tmp_path: Path) -> None:
    """Beyond 4,300 digits Python neither reads nor writes a number."""
    path = tmp_path / "file.toml"
    path.write_text(f"name = 'n'\na = {value.format(number)}\n")
    with pytest.raises(BadInput) as refused:
        read_toml(path)
    assert str(refused.value) == f"{path}, line 2: {TOO_LONG}"


def test_a_number_of_few_long_digits_is_refused_without_its_line(tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text("a = 0x" + "f" * 900 + "\n")
    with pytest.raises(BadInput) as refused:
        read_toml(path)
    assert str(refused.value) == f"{path}: {TOO_LONG}"


def test_long_numbers_and_texts_are_left_to_those_who_read_them(tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text(f"a = {'9' * MAX_DIGITS}\nb = '{'9' * 5000}'\n")
    assert read_toml(path).table == {"a": 10**MAX_DIGITS - 1, "b": "9" * 5000}
