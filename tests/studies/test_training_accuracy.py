"""Training against published throughput."""

import json
from collections.abc import Callable

import pytest

from autoauto.graph.load import builtin_models
from autoauto.records.installation import data_dir
from autoauto.records.knobs.knobs import Knobs
from studies.training_accuracy import Result, knobs_of, lines


def test_every_row_is_a_configuration_of_a_model_with_its_loss() -> None:
    rows = json.loads((data_dir() / "measurements" / "training.json").read_text(encoding="utf-8"))["rows"]
    assert {row["model"] for row in rows} <= {*builtin_models()}
    assert [knobs_of(row).n_devices for row in rows] == [16, 16]
    assert [knobs_of(row).n_samples for row in rows] == [65_536, 16_416]
    assert all(isinstance(knobs_of(row), Knobs) and row["source"] and row["differs"] for row in rows)


def test_the_table_says_what_does_not_fit() -> None:
    table = list(lines([Result("a", 110.0, 100.0, 0), Result("b", 80.0, 100.0, 3 * 1024**2)]))
    assert table[1].split() == ["a", "110", "100", "+10.0%", "nothing"]
    assert table[2].split() == ["b", "80", "100", "-20.0%", "3.0", "MiB"]
    assert table[3] == "mean absolute error: 15.0%"


@pytest.mark.slow
def test_published_rows_are_met_within_a_quarter(run_script: Callable[..., list[str]]) -> None:
    printed = run_script("training_accuracy")
    errors = [float(line.split("%")[0].split()[-1]) for line in printed[1:-1]]
    assert len(errors) == 2
    assert max(map(abs, errors)) < 25
