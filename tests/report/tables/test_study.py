"""Tables of a study: why the winner won, cells, trials, failures and attributes."""

import json
from collections.abc import Callable
from dataclasses import replace

from autoauto.records.interval import Interval
from autoauto.records.target import Origin
from autoauto.report.tables.study import (
    attributes_table,
    binding_table,
    cells_table,
    comparisons_table,
    failures_table,
    ranked_table,
    reasons_table,
    uses_table,
)
from autoauto.report.tables.table import Table
from autoauto.space.study_summary import Comparison, Repeated, StudySummary, Verdict, Verification

Text = Callable[..., str]


def squeezed(text: str) -> list[str]:
    """The lines with single blanks."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_winner_is_compared_with_other_configurations(summary: StudySummary, text: Text) -> None:
    rows = [
        Comparison("runner-up", summary.trials[2].knobs, Interval(150.0, None), 33.3, "the next best"),
        Comparison("one session", None, None, None, "was not tried"),
    ]
    assert squeezed(text(comparisons_table(summary, rows), 120))[3:] == [
        "winner 200.0 n_ipu 2, memory_proportion 0.6, batch_size 8, modelled",
        "runner-up 150.0 +33.3 % the next best",
        "batch_size 4",
        "one session - - was not tried",
    ]


def test_every_simple_use_has_the_origin_of_its_throughput(summary: StudySummary, text: Text) -> None:
    knobs, note = summary.trials[2].knobs, "needs 3 cuts; try less"
    rows = [
        Comparison("one device", knobs, Interval(50.0, None), 300.0, "", estimated=True, is_simple_use=True),
        Comparison("4 replicas of one device", knobs, Interval(150.0, None), 33.3, "", is_simple_use=True),
        Comparison("one pipeline of 4", knobs, None, None, note, is_simple_use=True),
        Comparison("one session of 4 cores", knobs, Interval(200.0, None), None, "is the winner", is_simple_use=True),
        Comparison("runner-up", knobs, Interval(150.0, None), 33.3, "the next best"),
    ]
    assert squeezed(text(uses_table(rows, Origin.MODELLED), 120))[3:] == [
        "one device 50.0 estimated x 4.0",
        "4 replicas of one device 150.0 modelled +33.3 %",
        "one pipeline of 4 - needs 3 cuts -",
        "one session of 4 cores 200.0 modelled is the winner",
        "winner: how much faster it is; by its own estimate where the other is estimated",
    ]


def test_repeated_measurements_have_confidence_intervals(summary: StudySummary, text: Text) -> None:
    assert summary.winner is not None
    again = Repeated("winner", summary.winner.knobs, (198.0, 202.0, 200.0), (198.0, 202.0, 200.0))
    verified = replace(summary, verification=Verification((again,), 3, 0, Verdict.CLEAR, None))
    rows = [Comparison("runner-up", summary.trials[2].knobs, Interval(150.0, 2.5), 33.3, "the next best")]
    lines = squeezed(text(comparisons_table(verified, rows), 120))[3:]
    assert lines[0].startswith("winner 200.0 ± 5.0 n_ipu 2")
    assert lines[1] == "runner-up 150.0 ± 2.5 +33.3 % the next best"
    assert lines[3] == "means of 3 turns and their 95 % confidence intervals, modelled"


def test_compute_transfer_and_memory_bind(summary: StudySummary, text: Text) -> None:
    assert summary.winner is not None
    assert squeezed(text(binding_table(summary.winner, Origin.MODELLED), 120)) == [
        "What binds, modelled",
        "compute 2,000 cycles stage 0, layers [0, 2), computes longest, 87 % of the period",
        "transfer 300 cycles stage 1, layers [2, 5), transfers longest, 13 % of the period",
        "memory 1.0 KiB to spare stage 1, layers [2, 5), is fullest: 3.0 KiB of 4.0 KiB",
    ]


def rows_of(table: Table) -> list[list[str]]:
    return [[cell.text for cell in cells] for cells in table.cells()]


def test_every_cell_of_the_grid_has_a_row_and_a_reason(summary: StudySummary, nothing_fits: StudySummary) -> None:
    table = cells_table(summary)
    assert [column.words for column in table.columns][:4] == ["n_ipu", "memory proportion", "tried", "modelled"]
    slow, winner, unfit = rows_of(table)
    lost = "compute takes 1,000 cycles a sample, the winner's 250; batch 5 lacks 2.0 KiB"
    assert slow == ["1", "0.6", "2", "1", "4", "4", "100.0", "-50.0 %", lost]
    assert winner[4:] == ["8", "8", "200.0", "+0.0 %", "the winner"]
    why = "batch 1 does not fit: layers [0, 5) need more"
    assert unfit[2:] == ["1", "0", "none", "-", "-", "-", why]
    assert rows_of(cells_table(nothing_fits))[-1][2:] == ["1", "0", "none", "-", "-", "-", why]


def test_what_never_fits_for_one_reason_is_said_once_with_its_combinations_counted(summary: StudySummary) -> None:
    unfit = summary.trials[-1]
    others = (replace(unfit, number=9, knobs=replace(unfit.knobs, n_ipu=n_ipu)) for n_ipu in (3, 4))
    rows = rows_of(reasons_table(replace(summary, trials=(*summary.trials, *others))))
    assert [row[0] for row in rows] == [
        *("n_ipu 1, memory 0.6", "n_ipu 2, memory 0.6", "3 combinations, the first n_ipu 2, memory 1.0"),
    ]
    assert rows[1][1:] == ["8", "200.0", "+0.0 %", "the winner"]
    assert rows[2][1:] == ["none", "-", "-", "batch 1 does not fit: layers [0, 5) need more"]
    assert [row[0] for row in rows_of(reasons_table(summary))][2] == "n_ipu 2, memory 1.0"


def test_trials_are_best_first_and_those_that_do_not_fit_say_why(summary: StudySummary) -> None:
    rows = rows_of(ranked_table(summary))
    assert [row[0] for row in rows] == ["3", "2", "0", "1", "4"]
    assert rows[0][3:] == ["8", "200.0", "190.0", "-5.0 %", "14.000 ms", ""]
    assert rows[3][3:] == ["5", "-", "-", "-", "-", "lacks 2.0 KiB"]


def test_a_long_list_is_cut_and_says_so(summary: StudySummary) -> None:
    table = ranked_table(summary, 2)
    assert len(table.rows) == 2
    assert table.caption == "the first 2 of 5 trials, best first; `autoauto trials small --csv` prints all"


def test_failures_and_attributes_are_shown(summary: StudySummary) -> None:
    assert rows_of(failures_table(summary)) == [
        ["5", "n_ipu 2, memory_proportion 0.6, batch_size 9", "RuntimeError: a <bug>"]
    ]
    attributes = rows_of(attributes_table(replace(summary, attributes={"model": "<net>"})))
    assert attributes == [["study", "small"], ["storage", "sqlite:///x.db"], ["model", "<net>"]]


def test_a_space_is_shown_as_its_target_calls_its_knobs(summary: StudySummary) -> None:
    """Knobs that no configuration has, and those without values, are left out; many values have two ends."""
    space = {"n_ipu": [1, 2], "batch_size": list(range(1, 10)), "memory_proportion": [], "tensor_parallel": [2]}
    table = attributes_table(replace(summary, attributes={"space": json.dumps(space)}))
    assert rows_of(table)[-1] == ["space", "n_ipu 1, 2; batch_size 1 to 9, 9 values"]
    eight = {"batch_size": list(range(1, 9))}
    table = attributes_table(replace(summary, attributes={"space": json.dumps(eight)}))
    assert rows_of(table)[-1] == ["space", "batch_size 1, 2, 3, 4, 5, 6, 7, 8"]
