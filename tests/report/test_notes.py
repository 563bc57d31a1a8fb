"""Notes in Markdown of a study, a trial and a finalist."""

from dataclasses import replace

from autoauto.records.interval import Interval
from autoauto.records.target import Origin
from autoauto.report.notes import finalist_note, study_note, trial_note
from autoauto.space.study_summary import Comparison, StudySummary
from autoauto.space.trial import Status

COMMANDS = [("Measure it again", "autoauto measure net --n-ipu 2")]


def test_the_note_of_a_study_has_winner_command_and_cells(summary: StudySummary) -> None:
    note = study_note(
        summary,
        [Comparison("runner-up", summary.trials[2].knobs, Interval(150.0, None), 33.3, "the next best")],
        COMMANDS,
    )
    use = "2 devices (one pipeline of 2 devices; 100.0 a device)"
    assert note.startswith(
        f"## Best: n_ipu 2, memory_proportion 0.6, batch_size 8\n\n**200.0 samples/s on {use}, modelled"
    )
    assert "```\nautoauto measure net --n-ipu 2\n```" in note
    assert "| runner-up | 150.0 | +33.3 % | the next best" in note
    assert "| memory | 1.0 KiB to spare |" in note
    assert "| 3 | 2 | 0.6 | 8 | 200.0 | 190.0 | -5.0 % |" in note
    assert "| 2 | 1.0 | 1 | 0 | none | - | - | - | batch 1 does not fit: layers [0, 5) need more |" in note


def test_a_study_in_which_nothing_fits_says_so(nothing_fits: StudySummary) -> None:
    note = study_note(nothing_fits, [], [])
    assert note.startswith("## Nothing fits\n\nNone of the 2 configurations")
    assert "### Tried combinations of knobs at their best batch, modelled" in note


def test_a_trial_that_does_not_fit_says_why(summary: StudySummary) -> None:
    note = trial_note(summary.trials[1], Origin.MODELLED)
    assert (
        note
        == "**Does not fit** (estimated, nothing was compiled). Lacks **2.0 KiB**.\n\nstage 0 lacks 2 KiB; try less\n"
    )
    assert "(compiled whole)" in trial_note(replace(summary.trials[1], status=Status.OUT_OF_MEMORY), Origin.MODELLED)
    late = replace(summary.trials[0], status=Status.CONSTRAINED, reason="latency_s <= 1 does not hold: latency_s is 2")
    assert trial_note(late, Origin.MODELLED).startswith(
        "**Breaks a constraint** (compiled whole). latency_s <= 1 does not"
    )
    assert trial_note(summary.trials[0], Origin.MODELLED) == "**100.0 samples/s**, modelled; 104.0 estimated, +4.0 %\n"


def test_the_note_of_a_finalist_has_its_rank_stages_and_pictures(summary: StudySummary) -> None:
    winner, second = (
        finalist_note(summary, finalist, "autoauto measure", {"memory": "/artifacts/1/2/3"})
        for finalist in summary.finalists
    )
    assert "-5.0 %: the best" in winner
    assert "+0.0 %: rank 2, -25.0 %" in second
    assert "| 0 | [0, 2) | **2,000 slowest** | 200 | 2.0 KiB, 50 % |" in winner
    assert "![memory](/artifacts/1/2/3)" in winner
