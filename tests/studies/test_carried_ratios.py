"""Intervals of measured rows for requests of other lengths: by hand, and on published rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autoauto.records.costs.decoder import Workload
from autoauto.targets.gpu.calibration import Group, Ratio
from studies.carried_ratios import binned, counts_of

GROUP = Group("model", "engine", "system", "bf16")


def ratios_of(requests: Workload, tpot: float) -> list[Ratio]:
    return [Ratio(GROUP, tpot, tpot, requests) for _ in range(6)]


def test_every_row_is_judged_by_what_all_others_measured() -> None:
    short, long = Workload(1024, 256), Workload(4096, 512)
    counts = list(counts_of([*ratios_of(short, 1.0), *ratios_of(long, 1.5)], np.random.default_rng(0)))
    assert len(counts) == 2 * 2 * 3, "two questions measured one, three and five rows for two"
    assert {count.n_octaves for count in counts} == {0.0, 3.0}
    assert all(count.tpot == 1.0 for count in counts if count.n_octaves == 0.0 and count.n_measured == 5)
    assert [title for title, _ in binned(counts)] == ["the same lengths", "to 3.5"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_intervals_hold_eight_of_ten_rows_that_chose_nothing(run_script: Callable[..., list[str]]) -> None:
    package = pytest.importorskip("aiconfigurator_core", reason="the measured rows are of extra gpu")
    rows = Path(package.__file__).parent / "systems" / "silicon_sample.csv"
    lines = run_script("carried_ratios", "--rows", str(rows))
    odd = lines[lines.index(next(line for line in lines if line.startswith("odd"))) + 1 :]
    shares = [float(word.rstrip("%")) for line in odd for word in line.split() if word.endswith("%")]
    assert len(shares) == 8
    assert all(70 <= share <= 90 for share in shares)
    after = run_script("truth_loop", "--rows", str(rows), "--questions", "odd", "--intervals")[1:6]
    assert all(70 <= float(line.split()[-1].rstrip("%")) <= 90 for line in after)
