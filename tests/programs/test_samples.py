"""Samples of a CSV file: what is read, and what is refused in one line."""

from pathlib import Path

import numpy as np
import pytest

from autoauto.programs.phased_training.network import read_samples
from autoauto.records.errors import BadInput


def test_the_digits_have_all_ten_classes() -> None:
    inputs, labels = read_samples(Path("data/samples/digits.csv.gz"))
    assert len(inputs) == len(labels)
    assert np.bincount(labels).min() > 170
    assert len(np.bincount(labels)) == 10


def test_inputs_are_divided_by_the_largest(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    path.write_text("0,4,1\n-8,2,0\n")
    samples = read_samples(path)
    assert samples.inputs.tolist() == [[0, 0.5], [-1, 0.25]]
    assert samples.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    "content", ["", "1\n2\n", "1,a\n", "1,2\n1,2,3\n", "nan,1\n", "inf,1\n", "1,0.5\n", "1,-1\n", "1,1000\n", "\0"]
)
def test_a_file_without_samples_is_refused_by_name(content: str, tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    path.write_text(content)
    with pytest.raises(BadInput, match=r"samples\.csv: .*"):
        read_samples(path)


def test_a_file_that_is_missing_or_cut_short_is_refused_by_name(tmp_path: Path) -> None:
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(Path("data/samples/digits.csv.gz").read_bytes()[:1000])
    for path in (cut, tmp_path / "none.csv", tmp_path):
        with pytest.raises(BadInput, match=str(path)):
            read_samples(path)
