"""The tables of a study's page."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from autoauto.records.study_summary import StudySummary
from autoauto.report.html import tables as page_tables


def cells(markup: str) -> list[list[str]]:
    rows = ElementTree.fromstring(markup).iter("tr")
    return [["".join(cell.itertext()).replace("\xa0", " ") for cell in row] for row in rows]


def test_every_cell_of_the_grid_has_a_row(summary: StudySummary) -> None:
    head, slow, winner, unfit = cells(page_tables.cells_table(summary))
    assert head[:4] == ["n_ipu", "memory_proportion", "tried", "measured"]
    assert slow[:-1] == ["1", "0.6", "2", "1", "4", "4", "100.0", "-50.0 %"]
    assert winner[4:] == ["8", "8", "200.0", "winner", "the winner"]
    assert unfit[2:] == ["1", "0", "none", "-", "-", "-", "batch 1 does not fit: layers [0, 5) need more"]


def test_trials_are_best_first_and_those_that_do_not_fit_say_why(summary: StudySummary) -> None:
    _, *rows = cells(page_tables.trials_table(summary))
    assert [row[0] for row in rows] == ["3", "2", "0", "1", "4"]
    assert rows[0][3:] == ["8", "200.0", "190.0", "-5.0 %", ""]
    assert rows[3][3:] == ["5", "-", "-", "-", "lacks 2.0 KiB"]


def test_a_long_list_is_cut_and_says_so(summary: StudySummary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_tables, "N_ROWS", 2)
    text = page_tables.trials_table(summary)
    assert len(cells(text)) == 3
    assert "the first 2 of 5 trials, best first; `autoauto trials small --csv` prints all" in text


def test_failures_and_attributes_are_text_not_markup(summary: StudySummary) -> None:
    assert cells(page_tables.failures_table(summary))[1] == ["5", "n_ipu 2, batch_size 9", "RuntimeError: a <bug>"]
    attributes = dict(cells(page_tables.attributes_table(replace(summary, attributes={"model": "<net>"})))[1:])
    assert attributes == {"study": "small", "storage": "sqlite:///x.db", "model": "<net>"}
