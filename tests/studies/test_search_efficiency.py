"""The study's own machinery, and two searches of a small space."""

from __future__ import annotations

from types import ModuleType

import pytest

from autoauto.records.knobs import Method


def test_a_row_tells_counts_shares_and_ratios(study: ModuleType) -> None:
    best = study.Found(1000.0, 300, 387, 9.0, 9.0)
    guided, bisect = study.Found(999.0, 3, 5, 2.0, 3.0), study.Found(900.0, 40, 63, 4.0, 4.0)
    row = study.row(study.Case("models/some.onnx", "bow-2000", (1,)), guided, bisect, best)
    assert row.split() == ["some", "bow-2000", "3", "5", "99.9", "40", "63", "90.0", "300", "387", "0.50", "0.75"]
    assert study.missed([(guided, bisect, best)]) == []


@pytest.mark.parametrize(
    ("found", "n_measured", "wall_s", "told"),
    [(994.0, 3, 3.0, "found 99.40 %"), (999.0, 13, 3.0, "measured 13"), (999.0, 3, 5.0, "took 1.25 times")],
)
def test_every_target_can_be_missed(study: ModuleType, found: float, n_measured: int, wall_s: float, told: str) -> None:
    best, bisect = study.Found(1000.0, 300, 387, 9.0, 9.0), study.Found(900.0, 40, 63, 4.0, 4.0)
    missed = study.missed([(study.Found(found, n_measured, 20, 2.0, wall_s), bisect, best)])
    assert any(target.startswith(told) for target in missed)


def test_where_nothing_fits_nothing_is_missed(study: ModuleType) -> None:
    nothing = study.Found(0.0, 0, 9, 1.0, 1.0)
    assert study.relative(nothing, nothing) == 1.0


def test_searches_of_a_small_space(study: ModuleType) -> None:
    case = study.Case("resnet50", "seed-2-ipu", (1, 4, 8, 9))
    found = {method: study.search(case, method) for method in study.METHODS}
    assert found[Method.EXHAUSTIVE].n_calls == 2 * 3 * 4
    assert found[Method.GUIDED].n_measured <= 12
    assert study.relative(found[Method.GUIDED], found[Method.EXHAUSTIVE]) >= 0.995
