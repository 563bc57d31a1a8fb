"""Notes in Markdown."""

from autoauto.records.study_summary import Comparison, Findings, Interval
from autoauto.report.dashboard.notes import contender_note, study_note, trial_note
from autoauto.report.style import MEASURED

COMMANDS = [("Measure it again", "autoauto measure net --n-ipu 2")]


def test_the_study_tells_winner_command_and_cells(found: Findings) -> None:
    note = study_note(
        found, [Comparison("runner-up", found.tried[2].knobs, Interval(150.0, None), 33.3, "the next best")], COMMANDS
    )
    assert note.startswith("## Best: n_ipu 2, memory_proportion 0.6, batch_size 8\n\n**200.0 samples/s**, measured")
    assert "```\nautoauto measure net --n-ipu 2\n```" in note
    assert "- runner-up: +33.3 % better, the next best" in note
    assert "| 3 | 2 | 0.6 | 8 | 200.0 | +0.0 % |" in note
    assert "| 2 | 1.0 | - | batch 1 does not fit: layers [0, 5) need more |" in note


def test_tables_are_as_wide_as_their_heads(found: Findings) -> None:
    lines = [line for line in study_note(found, [], COMMANDS).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines[:5]} == {7}
    assert {line.count("|") for line in lines[5:]} == {5}


def test_a_study_in_which_nothing_fits_says_so(nothing: Findings) -> None:
    note = study_note(nothing, [], [])
    assert note.startswith("## Nothing fits\n\nNone of the 2 configurations")
    assert "### Cells" in note


def test_a_trial_that_does_not_fit_says_why(found: Findings) -> None:
    note = trial_note(found.tried[1], MEASURED)
    assert (
        note
        == "**Does not fit** (estimated, nothing was compiled). Lacks **2.0 KiB**.\n\nstage 0 lacks 2 KiB; try less\n"
    )
    assert "(compiled whole)" in trial_note(found.tried[1]._replace(compiled=True), MEASURED)
    late = found.tried[0]._replace(compiled=True, reason="latency_s <= 1 does not hold: latency_s is 2")
    assert trial_note(late, MEASURED).startswith("**Breaks a constraint** (compiled whole). latency_s <= 1 does not")
    assert (
        trial_note(found.tried[0], MEASURED) == "**100.0 samples/s**, measured (cost model); 104.0 estimated, +4.0 %\n"
    )


def test_the_best_are_told_stage_by_stage(found: Findings) -> None:
    winner, second = (
        contender_note(found, one, "autoauto measure", {"memory": "/artifacts/1/2/3"}) for one in found.contenders
    )
    assert "-5.0 %: the best" in winner
    assert "+0.0 %: rank 2, -25.0 %" in second
    assert "| 0 [0, 2) | 2,000 | 200 | 2.0 KiB, 50 % |" in winner
    assert "![memory](/artifacts/1/2/3)" in winner
