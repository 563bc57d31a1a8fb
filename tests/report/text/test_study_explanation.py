"""Why the winner won, in the terminal."""

from collections.abc import Callable
from dataclasses import replace

from autoauto.records.study_summary import Comparison, Interval, Repeated, StudySummary, Verdict, Verification
from autoauto.report.text.study_explanation import binding_table, comparisons_table, reasons_table

Text = Callable[..., str]


def squeezed(text: str) -> list[str]:
    """The lines with single blanks."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_winner_is_compared_with_other_configurations(summary: StudySummary, text: Text) -> None:
    rows = [
        Comparison("runner-up", summary.trials[2].knobs, Interval(150.0, None), 33.3, "the next best"),
        Comparison("default configuration", None, None, None, "was not tried"),
    ]
    assert squeezed(text(comparisons_table(summary, rows), 120))[3:] == [
        "winner 200.0 n_ipu 2, memory_proportion 0.6, batch_size 8, measured (cost model)",
        "runner-up 150.0 +33.3 % the next best",
        "n_ipu 2, memory_proportion 0.6, batch_size 4",
        "default configuration - - was not tried",
    ]


def test_repeated_measurements_have_confidence_intervals(summary: StudySummary, text: Text) -> None:
    assert summary.winner is not None
    again = Repeated("winner", summary.winner.trial.knobs, "", (198.0, 202.0, 200.0), (198.0, 202.0, 200.0))
    verified = replace(summary, verification=Verification((again,), 3, 0, Verdict.CLEAR, None))
    rows = [Comparison("runner-up", summary.trials[2].knobs, Interval(150.0, 2.5), 33.3, "the next best")]
    lines = squeezed(text(comparisons_table(verified, rows), 120))[3:]
    assert lines[0].startswith("winner 200.0 ± 5.0 n_ipu 2")
    assert lines[1] == "runner-up 150.0 ± 2.5 +33.3 % the next best"
    assert lines[3] == "means of 3 turns and their 95 % confidence intervals, measured (cost model)"


def test_compute_transfer_and_memory_bind(summary: StudySummary, text: Text) -> None:
    assert summary.winner is not None
    assert squeezed(text(binding_table(summary, summary.winner), 120)) == [
        "What binds, measured (cost model)",
        "compute 2,000 cycles stage 0, layers [0, 2), computes longest, 87 % of the period",
        "transfer 300 cycles stage 1, layers [2, 5), transfers longest, 13 % of the period",
        "memory 1.0 KiB to spare stage 1, layers [2, 5), is fullest: 3.0 KiB of 4.0 KiB",
    ]


def test_every_cell_has_a_reason(summary: StudySummary, nothing_fits: StudySummary, text: Text) -> None:
    assert squeezed(text(reasons_table(summary), 140))[-3:] == [
        "1 0.6 4 100.0 -50.0 % compute takes 1,000 cycles a sample, the winner's 250; batch 5 lacks 2.0 KiB",
        "2 0.6 8 200.0 +0.0 % the winner",
        "2 1.0 none - - batch 1 does not fit: layers [0, 5) need more",
    ]
    assert squeezed(text(reasons_table(nothing_fits), 140))[-1].startswith("2 1.0 none - -")
