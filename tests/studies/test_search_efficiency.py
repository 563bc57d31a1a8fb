"""The table and the targets of the search study, and searches of a small space."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autoauto.space.objectives import Method
from studies import search_efficiency
from studies.search_efficiency import Case, Result


def test_a_row_has_counts_shares_and_ratios() -> None:
    best = Result(1000.0, 300, 387, 9.0, 9.0)
    guided, bisect = Result(999.0, 3, 5, 2.0, 3.0), Result(900.0, 40, 63, 4.0, 4.0)
    row = search_efficiency.row(Case("models/some.onnx", "bow-2000", (1,)), guided, bisect, best)
    assert row.split() == ["some", "bow-2000", "3", "5", "99.9", "40", "63", "90.0", "300", "387", "0.50", "0.75"]
    assert search_efficiency.violations([(guided, bisect, best)]) == []


@pytest.mark.parametrize(
    ("samples_per_s", "n_measured", "wall_s", "message"),
    [(994.0, 3, 3.0, "found 99.40 %"), (999.0, 13, 3.0, "measured 13"), (999.0, 3, 5.0, "took 1.25 times")],
)
def test_every_target_can_be_violated(samples_per_s: float, n_measured: int, wall_s: float, message: str) -> None:
    best, bisect = Result(1000.0, 300, 387, 9.0, 9.0), Result(900.0, 40, 63, 4.0, 4.0)
    guided = Result(samples_per_s, n_measured, 20, 2.0, wall_s)
    assert any(text.startswith(message) for text in search_efficiency.violations([(guided, bisect, best)]))


def test_where_no_configuration_fits_the_quality_is_one() -> None:
    nothing = Result(0.0, 0, 9, 1.0, 1.0)
    assert search_efficiency.quality(nothing, nothing) == 1.0


@pytest.mark.slow
def test_a_guided_search_of_a_small_space_measures_little_and_well() -> None:
    case = Case("resnet50", "seed-2-ipu", (1, 4, 8, 9))
    results = {method: search_efficiency.search(case, method) for method in search_efficiency.METHODS}
    assert results[Method.EXHAUSTIVE].n_calls == 2 * 3 * 4
    assert results[Method.GUIDED].n_measured <= 12
    assert search_efficiency.quality(results[Method.GUIDED], results[Method.EXHAUSTIVE]) >= 0.995


@pytest.mark.slow
def test_a_case_has_its_row_and_the_targets_decide_the_exit_code(run_script: Callable[..., list[str]]) -> None:
    """The target of wall time depends on the machine, so that both exit codes are right."""
    options = ["--models", "resnet50", "--clusters", "seed-2-ipu", "--batch-sizes", "4,8"]
    _, _, row, *summary = run_script("search_efficiency", *options, exit_codes=[0, 1])
    assert row.split()[:2] == ["resnet50", "seed-2-ipu"]
    assert [line.split()[0] for line in summary[:3]] == list(search_efficiency.METHODS)
    others = summary[5:]
    assert others == ["all targets met"] or all(line.startswith("NOT MET: ") for line in others)
