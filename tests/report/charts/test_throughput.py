"""Throughput over batch size, drawn."""

from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

from autoauto.records.knobs import Knobs
from autoauto.records.study_summary import Findings, Tried
from autoauto.report.charts import throughput as picture

Elements = Callable[[str, str], list[ElementTree.Element]]


def test_a_panel_for_every_n_ipu_with_the_same_colours(found: Findings) -> None:
    one, two = picture.panels(found)
    assert (one.name, two.name) == ("n_ipu 1", "n_ipu 2")
    assert [(class_, name) for class_, name, _ in one.series] == [("s0", "memory 0.6")]
    assert [(class_, name) for class_, name, _ in two.series] == [("s0", "memory 0.6"), ("s1", "memory 1.0")]
    assert picture.legend([one, two]) == [("s0", "memory 0.6"), ("s1", "memory 1.0")]


def test_the_best_cells_have_the_colours(found: Findings) -> None:
    tried = tuple(Tried(i, Knobs(1, (i + 1) / 20, 1), 100.0 + i) for i in range(20))
    (panel,) = picture.panels(replace(found, tried=tried))
    grey = [cell.tried[0].number for class_, _, cell in panel.series if class_ == "s-other"]
    assert grey == list(range(12))
    assert picture.legend([panel])[-1] == ("s-other", "other cells")


def test_dots_fit_and_crosses_do_not(found: Findings, elements: Elements) -> None:
    one, two = (picture.batches_svg(panel, found, "batches", 500) for panel in picture.panels(found))
    assert [len(elements(one, name)) for name in ("dot", "cross", "ring")] == [1, 1, 0]
    assert [len(elements(two, name)) for name in ("dot", "cross", "ring")] == [2, 1, 1]
    first, second = elements(two, "dot")
    assert float(str(second.get("cx"))) > float(str(first.get("cx")))
    assert float(str(second.get("cy"))) < float(str(first.get("cy")))


def test_panels_share_the_width() -> None:
    assert [picture.panel_width(n) for n in (1, 2, 3, 9)] == [1000, 520, 360, 360]


def test_one_line_needs_no_legend(found: Findings) -> None:
    assert picture.legend(picture.panels(replace(found, tried=found.tried[:1]))) == []
