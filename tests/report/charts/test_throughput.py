"""The chart of throughput over batch size."""

from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

from autoauto.records.knobs import Knobs
from autoauto.records.study_summary import StudySummary, TrialSummary
from autoauto.report.charts import throughput as picture

Elements = Callable[[str, str], list[ElementTree.Element]]


def test_a_panel_for_every_n_ipu_with_the_same_colours(summary: StudySummary) -> None:
    first, second = picture.panels(summary)
    assert (first.name, second.name) == ("n_ipu 1", "n_ipu 2")
    assert [(class_, name) for class_, name, _ in first.series] == [("s0", "memory 0.6")]
    assert [(class_, name) for class_, name, _ in second.series] == [("s0", "memory 0.6"), ("s1", "memory 1.0")]
    assert picture.legend([first, second]) == [("s0", "memory 0.6"), ("s1", "memory 1.0")]


def test_the_best_cells_have_colours_and_the_others_are_grey(summary: StudySummary) -> None:
    trials = tuple(TrialSummary(i, Knobs(1, (i + 1) / 20, 1), 100.0 + i) for i in range(20))
    (panel,) = picture.panels(replace(summary, trials=trials))
    grey = [cell.trials[0].number for class_, _, cell in panel.series if class_ == "s-other"]
    assert grey == list(range(12))
    assert picture.legend([panel])[-1] == ("s-other", "other cells")


def test_trials_that_fit_are_dots_and_others_are_crosses(summary: StudySummary, elements: Elements) -> None:
    small, large = (picture.batches_svg(panel, summary, "batches", 500) for panel in picture.panels(summary))
    assert [len(elements(small, name)) for name in ("dot", "cross", "ring")] == [1, 1, 0]
    assert [len(elements(large, name)) for name in ("dot", "cross", "ring")] == [2, 1, 1]
    first, second = elements(large, "dot")
    assert float(str(second.get("cx"))) > float(str(first.get("cx")))
    assert float(str(second.get("cy"))) < float(str(first.get("cy")))


def test_panels_share_the_width() -> None:
    assert [picture.panel_width(n) for n in (1, 2, 3, 9)] == [1000, 520, 360, 360]


def test_one_line_needs_no_legend(summary: StudySummary) -> None:
    assert picture.legend(picture.panels(replace(summary, trials=summary.trials[:1]))) == []
