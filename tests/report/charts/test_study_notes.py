"""What the map of the best throughput says where no tried configuration fits."""

from __future__ import annotations

from dataclasses import replace

from autoauto.records.knobs.space import SearchSpace
from autoauto.records.trials.study_summary import Alternative, StudySummary
from autoauto.report.charts.study import heat_map


def test_a_large_batch_that_does_not_fit_says_nothing_of_smaller_ones(summary: StudySummary) -> None:
    unfit = summary.trials[-1]
    key = (str(unfit.knobs.n_ipu), unfit.knobs.memory_proportion)
    assert heat_map(summary).notes == {key: "none fits"}
    large = replace(unfit, knobs=replace(unfit.knobs, batch_size=8))
    space = SearchSpace(n_ipu=(1, 2), memory_proportion=(0.6, 1.0), batch_size=(1, 2, 4, 8))
    ruled_out = replace(summary, trials=(*summary.trials[:-1], large), space=space)
    assert heat_map(ruled_out).notes == {key: "batch 8\ndoes not fit"}
    estimated = replace(
        ruled_out, alternatives=(Alternative("one pipeline", replace(large.knobs, batch_size=4), 5516.8, ""),)
    )
    assert heat_map(estimated).notes == {key: "5,517\nestimated"}
