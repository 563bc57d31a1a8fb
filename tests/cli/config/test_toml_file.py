"""The line of a mistake in a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.cli.config.toml_file import MAX_BYTES, line_of, read_toml
from autoauto.records.errors import BadInput

TEXT = '''\
# a = 0
text = """
a = 1
[b]
a = 2
"""
a = 3

[b]
# a = 4
"a" = [
  "one",
  "two", # one
]
c = { d = 1, a = [
  5,
] }

[b.e.f]
a = 6
'''


@pytest.mark.parametrize(
    ("keys", "item", "line"),
    [
        ("a", "", 7),
        ("text", "", 2),
        ("b", "", 9),
        ("b a", "", 11),
        ("b a", "two", 13),
        ("b a", "missing", 11),
        ("b c", "", 15),
        ("b c a", "", 15),
        ("b c a", "5", 16),
        ("b e", "", 19),
        ("b e f a", "", 20),
    ],
)
def test_the_line_of_a_key(keys: str, item: str, line: int) -> None:
    assert line_of(TEXT, keys.split(), item) == line
    assert line_of(TEXT.replace("\n", "\r\n"), keys.split(), item) == line


@given(st.lists(st.sampled_from(["", "# x = 1", "s = '''\nx = 1\n'''", "l = [\n 'x = 1',\n]"]), unique=True))
def test_comments_and_strings_are_no_keys(before: list[str]) -> None:
    text = "\n".join([*before, "x = 1", "y = 2"])
    assert line_of(text, ["x"]) == text[: text.index("x = 1\ny = 2")].count("\n") + 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = 1\nb = \n", "line 2: the file must be TOML"),
        (b"a = 1\na = 2\n", "line 2: the file must be TOML"),
        (b"a = [\n1,\n", "line 2: the file must be TOML"),
        (b"a = 1\nb = '\xff'\n", "line 2: a TOML file is UTF-8 text, got byte 0xff"),
        (b"a = " + b"[" * 5000, "the file must be TOML|nested too deeply"),
        (b"#" * (MAX_BYTES + 1), "at most 100,000 bytes"),
    ],
)
def test_a_file_that_is_no_toml_is_reported_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=message) as refused:
        read_toml(path)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path, Path("a\0b")):
        with pytest.raises(BadInput, match="check the path"):
            read_toml(path)


def test_an_endless_file_is_not_read_to_its_end() -> None:
    with pytest.raises(BadInput, match="at most 100,000 bytes, /dev/zero has more; check the path"):
        read_toml(Path("/dev/zero"))
