"""One model learned and held to what it has not seen, and the picture."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean
from types import ModuleType

import pytest

from autoauto.records.correction import Band, Correction
from autoauto.records.layers import LayerRange
from autoauto.targets.ipu.target import IpuTarget


def test_resnet50_is_predicted_twice_as_well_as_by_sums(
    study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study.main(["--models", "resnet50", "--quick", "--plot", str(tmp_path / "parity.html")]) == 0
    head, _, line, *means, covered = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "errors"
    assert line.startswith("resnet50")
    by_sums, ours = (float(text.split()[-2]) for text in means)
    assert ours < by_sums / 2
    assert ours < 5
    assert float(line.split()[-1]) <= 2
    assert covered.startswith("of 20 ranges: cycles inside their band ")
    assert "regression" in (tmp_path / "parity.html").read_text(encoding="utf-8")


def test_what_is_kept_is_not_measured_again(
    study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--models", "resnet50", "--quick", "--no-plans", "--keep", str(tmp_path)]
    tables = []
    for _ in range(2):
        assert study.main(arguments) == 0
        tables.append([line.split()[:13] for line in capsys.readouterr().out.splitlines()])  # errors, no times
        monkeypatch.setattr(IpuTarget, "compile", None)
    assert tables[0] == tables[1]


def test_coverage_counts_both_edges_of_cycles_and_the_upper_of_memory(study: ModuleType) -> None:
    def reading(cycles: int, n_bytes: int) -> object:
        return study.Reading(1, cycles, 100, 100, n_bytes, 100, 100)

    readings = [reading(100, 50), reading(111, 105), reading(89, 106), reading(109, 200)]
    bands = Correction(cycles_band=Band(0.9, 1.1), memory_band=Band(0.99, 1.05))
    assert study.coverage(readings, bands) == (0.5, 0.5)
    assert mean(study.errors(readings, "our_cycles", "cycles")) == pytest.approx((0 + 11 / 111 + 11 / 89 + 9 / 109) / 4)


def test_a_climb_ends_where_no_cut_can_be_moved_for_less(study: ModuleType) -> None:
    class Costs:
        """The longest of stages whose layers take a cycle each; a cut before layer 9 is not allowed."""

        table = type("Table", (), {"cut_allowed": [layer != 9 for layer in range(31)]})

        def __call__(self, partition: tuple[int, ...]) -> int:
            return max(stop - start for start, stop in pairwise(partition))

    assert study.climb(Costs(), (0, 2, 30), 1000) == (0, 15, 30)
    assert study.climb(Costs(), (0, 2, 30), 0) == (0, 2, 30)


def test_held_out_ranges_are_as_long_as_stages(study: ModuleType) -> None:
    found = list(study.ranges(160, 50, Random(0)))
    assert all(isinstance(layers, LayerRange) and 10 <= layers.stop - layers.start <= 160 for layers in found)
    assert found == list(study.ranges(160, 50, Random(0)))
