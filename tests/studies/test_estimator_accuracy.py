"""The correction of one model on ranges that it was not fitted to, and the picture."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import pytest

from autoauto.records.costs.correction import Correction, PredictionInterval
from autoauto.records.layers import LayerRange
from autoauto.targets.ipu.target import IpuTarget
from studies import estimator_accuracy


def test_resnet50_is_predicted_twice_as_well_as_by_sums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert estimator_accuracy.main(["--models", "resnet50", "--quick", "--plot", str(tmp_path / "parity.html")]) == 0
    head, _, line, *means, covered = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "errors"
    assert line.startswith("resnet50")
    by_sums, ours = (float(text.split()[-2]) for text in means)
    assert ours < by_sums / 2
    assert ours < 5
    assert float(line.split()[-1]) <= 2
    assert covered.startswith("of 20 ranges: cycles inside their interval ")
    assert "regression" in (tmp_path / "parity.html").read_text(encoding="utf-8")


def test_a_stored_measurement_is_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--models", "resnet50", "--quick", "--no-plans", "--keep", str(tmp_path)]
    tables = []
    for _ in range(2):
        assert estimator_accuracy.main(arguments) == 0
        tables.append([line.split()[:13] for line in capsys.readouterr().out.splitlines()])  # errors, no times
        monkeypatch.setattr(IpuTarget, "compile", None)
    assert tables[0] == tables[1]


def test_coverage_counts_both_ends_of_cycles_and_the_upper_of_memory() -> None:
    def reading(cycles: int, n_bytes: int) -> estimator_accuracy.Reading:
        return estimator_accuracy.Reading(1, cycles, 100, 100, n_bytes, 100, 100)

    readings = [reading(100, 50), reading(111, 105), reading(89, 106), reading(109, 200)]
    intervals = Correction(cycles_interval=PredictionInterval(0.9, 1.1), memory_interval=PredictionInterval(0.99, 1.05))
    assert estimator_accuracy.coverage(readings, intervals) == (0.5, 0.5)
    errors = estimator_accuracy.errors(readings, "our_cycles", "cycles")
    assert mean(errors) == pytest.approx((0 + 11 / 111 + 11 / 89 + 9 / 109) / 4)


def test_a_climb_ends_where_no_moved_cut_costs_less() -> None:
    class Costs:
        """The longest stage, with a cycle a layer; a cut before layer 9 is not allowed."""

        table = type("Table", (), {"cut_allowed": [layer != 9 for layer in range(31)]})

        def __call__(self, partition: tuple[int, ...]) -> int:
            return max(stop - start for start, stop in pairwise(partition))

    costs: Any = Costs()
    assert estimator_accuracy.climb(costs, (0, 2, 30), 1000) == (0, 15, 30)
    assert estimator_accuracy.climb(costs, (0, 2, 30), 0) == (0, 2, 30)


def test_held_out_ranges_are_as_long_as_stages() -> None:
    sampled = list(estimator_accuracy.ranges(160, 50, Random(0)))
    assert all(isinstance(layers, LayerRange) and 10 <= layers.stop - layers.start <= 160 for layers in sampled)
    assert sampled == list(estimator_accuracy.ranges(160, 50, Random(0)))


@pytest.mark.slow
def test_every_model_has_its_line(run_script: Callable[..., list[str]]) -> None:
    _, _, line, *means, coverage = run_script("estimator_accuracy", "--models", "resnet50", "--quick", "--no-plans")
    assert line.split()[0] == "resnet50"
    assert line.split()[-1] == "-", "no plan is compared"
    assert [text.split(":")[0] for text in means] == ["sum", "our"]
    assert coverage.startswith("of 20 ranges: ")
