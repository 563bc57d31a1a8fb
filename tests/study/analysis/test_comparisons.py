"""The winner of a study against the runner-up, simple uses, one session and the answer of auto_pipeline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoauto.records.interval import Interval
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import Alternative, AutoPipelineAnswer, Repeated, StudySummary, Verdict, Verification
from autoauto.space.trial import Status, Trial
from autoauto.study.analysis.comparisons import GRID_BISECT, study_comparisons, with_best_use
from autoauto.study.analysis.verification import ONE_SESSION, RUNNER_UP, THIRD, WINNER

A, B, C = (
    Knobs(n_ipu=2, memory_proportion=0.6, batch_size=3),
    Knobs(n_ipu=2, memory_proportion=0.6, batch_size=2),
    Knobs(n_ipu=1, memory_proportion=0.6, batch_size=8),
)


def summary_of(speeds: dict[tuple[int, int], float]) -> StudySummary:
    """Trials by n_ipu and batch size; 0 does not fit."""
    trials = tuple(
        Trial(
            Knobs(n_ipu=n, memory_proportion=0.6, batch_size=b),
            Status.OK if speed else Status.OUT_OF_MEMORY,
            samples_per_s=speed,
            number=number,
        )
        for number, ((n, b), speed) in enumerate(speeds.items())
    )
    summary = StudySummary("small", "sqlite:///x.db", Objective.THROUGHPUT, {}, trials, ())
    return replace(summary, finalists=summary.ranked)


def repeated(name: str, knobs: Knobs, *values: float) -> Repeated:
    return Repeated(name, knobs, values, values)


def speeds_and_gains(summary: StudySummary) -> dict[str, tuple[float | None, float | None]]:
    return {c.name: (c.speed and c.speed.mean, c.gain_percent) for c in study_comparisons(summary)}


def test_gains_are_percent_of_the_other_one() -> None:
    summary = summary_of({(1, 1): 80.0, (1, 2): 100.0, (1, 3): 0.0, (2, 2): 160.0, (2, 3): 200.0})
    assert speeds_and_gains(summary) == {RUNNER_UP: (160.0, 25.0), GRID_BISECT: (200.0, 0.0)}


def test_repeated_measurements_are_compared_by_their_means() -> None:
    summary = summary_of({(2, 2): 160.0, (2, 3): 200.0})
    rows = (
        repeated(WINNER, A, 199.0, 201.0),
        repeated(RUNNER_UP, B, 159.0, 161.0),
        repeated(ONE_SESSION, Knobs(n_ipu=1, memory_proportion=1.0, batch_size=8), 40.0, 40.0),
    )
    answer = AutoPipelineAnswer(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=3), 100.0, 90.0)
    summary = replace(summary, verification=Verification(rows, 2, 0, Verdict.CLEAR, answer))
    assert speeds_and_gains(summary) == {
        RUNNER_UP: (160.0, 25.0),
        ONE_SESSION: (40.0, 400.0),
        GRID_BISECT: (200.0, 0.0),
    }
    _, session, _ = study_comparisons(summary)
    assert session.speed == Interval(40.0, 0.0)


def test_the_answer_of_auto_pipeline_is_estimated_where_the_trials_do_not_show_it() -> None:
    answer = AutoPipelineAnswer(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=3), 100.0, 90.0)
    summary = replace(
        summary_of({(1, 2): 160.0, (2, 5): 200.0}),
        verification=Verification(
            (repeated(WINNER, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=5), 200.0),), 1, 0, Verdict.CLEAR, answer
        ),
    )
    *_, comparison = study_comparisons(summary)
    assert (comparison.knobs, comparison.gain_percent, comparison.estimated) == (answer.knobs, 90.0, True)
    assert "the winner's estimate" in comparison.note


def test_a_runner_up_that_won_is_compared_with_the_best_of_the_search() -> None:
    rows = repeated(WINNER, A, 199.0, 201.0), repeated(RUNNER_UP, B, 198.0, 202.0)
    summary = replace(
        summary_of({(2, 2): 199.0, (2, 3): 200.0}), verification=Verification(rows, 2, 1, Verdict.TIE, None)
    )
    second, _ = study_comparisons(summary)
    assert (second.knobs, second.note) == (A, "a tie within the interval; the simpler one wins")


def test_a_session_that_does_not_fit_has_a_note() -> None:
    rows = repeated(WINNER, A, 200.0), Repeated(ONE_SESSION, C, (None,), (None,), "too large; try less")
    summary = replace(summary_of({(2, 3): 200.0}), verification=Verification(rows, 1, 0, Verdict.CLEAR, None))
    second, session, _ = study_comparisons(summary)
    assert second.note == "nothing else fits"
    assert (session.knobs, session.gain_percent, session.note) == (C, None, "measured in the same turns: too large")


def test_the_only_configuration_that_fits_has_no_runner_up() -> None:
    assert study_comparisons(summary_of({(2, 1): 9.0}))[0].note == "nothing else fits"


@pytest.mark.parametrize(("sizes", "note"), [((1,), "nothing else fits"), ((1, 2), "nothing else that was tried fits")])
def test_configurations_that_were_not_tried_may_fit(sizes: tuple[int, ...], note: str) -> None:
    """A forecast of all puts the best first, and others are not tried."""
    space = SearchSpace((2,), (0.6,), sizes)
    assert study_comparisons(replace(summary_of({(2, 1): 9.0}), space=space))[0].note == note


def test_where_nothing_fits_nothing_is_compared() -> None:
    assert study_comparisons(summary_of({(1, 1): 0.0})) == ()


def test_simple_uses_are_measured_where_a_trial_is_as_good_as_the_estimate() -> None:
    summary = summary_of({(1, 2): 100.0, (2, 2): 160.0, (2, 3): 200.0})
    alternatives = (
        Alternative("one device", Knobs(n_ipu=1, memory_proportion=0.6, batch_size=2), 103.0),
        Alternative("one pipeline of 2", Knobs(n_ipu=2, memory_proportion=0.6, batch_size=2), 260.0),
        Alternative("one pipeline of 4", Knobs(n_ipu=4, memory_proportion=0.6, batch_size=2), 0.0, "no cut"),
    )
    of_one, of_two, of_four, *_ = study_comparisons(replace(summary, alternatives=alternatives))
    assert (of_one.speed, of_one.gain_percent, of_one.estimated) == (Interval(100.0, None), 100.0, False)
    assert (of_two.speed, of_two.gain_percent, of_two.note) == (Interval(200.0, None), None, "is the winner")
    assert (of_four.speed, of_four.note) == (None, "no cut")
    assert all(comparison.is_simple_use for comparison in (of_one, of_two, of_four))


def test_a_simple_use_that_is_better_by_the_estimate_than_its_trials_is_estimated() -> None:
    summary = summary_of({(1, 2): 80.0, (2, 3): 200.0})
    winner = summary.finalists[0].with_values(estimated_samples_per_s=220.0)
    alternative = Alternative("one device", Knobs(n_ipu=1, memory_proportion=0.6, batch_size=3), 110.0)
    summary = replace(summary, finalists=(winner,), alternatives=(alternative,))
    of_one, *_ = study_comparisons(summary)
    assert (of_one.knobs, of_one.speed, of_one.estimated) == (alternative.knobs, Interval(110.0, None), True)
    assert of_one.gain_percent == 100.0  # 220 / 110, both estimated
    per_device, *_ = study_comparisons(replace(summary, objective=Objective.PER_DEVICE))
    assert per_device.gain_percent == 0.0  # 110 a device, and 110


@pytest.mark.parametrize(
    ("batch_size", "estimated", "is_measured"),
    [(3, 108.0, True), (3, 107.0, False), (2, 50.0, True)],  # its own estimate is about as high, or it was tried
)
def test_a_simple_use_that_fell_short_of_its_estimate_is_shown_as_it_was_measured(
    batch_size: int, estimated: float, is_measured: bool
) -> None:
    summary = summary_of({(1, 2): 80.0, (2, 3): 200.0})
    winner, of_one = summary.ranked
    summary = replace(summary, trials=(of_one.with_values(estimated_samples_per_s=estimated), winner))
    alternative = Alternative("one device", Knobs(n_ipu=1, memory_proportion=0.6, batch_size=batch_size), 110.0)
    shown, *_ = study_comparisons(replace(summary, alternatives=(alternative,)))
    assert (shown.speed, shown.estimated) == (Interval(80.0 if is_measured else 110.0, None), not is_measured)


def test_the_third_is_compared_by_its_turns_unless_it_won() -> None:
    rows = repeated(WINNER, A, 150.0), repeated(RUNNER_UP, B, 140.0), repeated(THIRD, C, 120.0)
    summary = summary_of({(2, 3): 150.0, (2, 2): 140.0, (1, 8): 145.0})
    lost = replace(summary, verification=Verification(rows, 1, 0, Verdict.CLEAR, None))
    assert [(row.name, row.gain_percent) for row in study_comparisons(lost)][1] == (THIRD, 25.0)
    won = replace(summary, verification=Verification(rows, 1, 2, Verdict.CLEAR, None))
    assert [(row.name, row.knobs) for row in study_comparisons(won)] == [(RUNNER_UP, A)]


def test_a_session_that_won_is_not_compared_with_itself() -> None:
    rows = repeated(WINNER, A, 150.0), repeated(RUNNER_UP, B, 140.0), repeated(ONE_SESSION, C, 200.0)
    summary = summary_of({(1, 8): 120.0, (2, 3): 150.0, (2, 2): 140.0})
    summary = replace(summary, verification=Verification(rows, 1, 2, Verdict.CLEAR, None))
    (second,) = study_comparisons(summary)
    assert (second.name, second.knobs) == (RUNNER_UP, A)


def test_the_baseline_is_the_best_simple_use_that_is_not_the_winner() -> None:
    summary = summary_of({(1, 2): 100.0, (2, 2): 160.0, (2, 3): 200.0})
    slow, fast = (
        Alternative(f"one pipeline of {n}", Knobs(n_ipu=n, memory_proportion=0.6, batch_size=2), 10.0 * n)
        for n in (3, 4)
    )
    of_one, winner = Alternative("one device", C, 99.0), Alternative("one pipeline of 2", A, 200.0)
    unfit = Alternative("one pipeline of 8", Knobs(n_ipu=8, memory_proportion=0.6, batch_size=2), 0.0, "no cut")
    winning = summary.finalists[0].with_values(estimated_samples_per_s=220.0)
    summary = replace(summary, finalists=(winning,))

    def baseline(*alternatives: Alternative) -> list[tuple[str, str]]:
        compared = study_comparisons(replace(summary, alternatives=alternatives))
        return [(use.name, use.note) for use in with_best_use(compared) if use.is_simple_use]

    assert baseline(slow, fast, unfit) == [
        ("one pipeline of 4", "the best of the simple uses; compared with the winner's estimate")
    ]
    assert baseline(slow, of_one, winner) == [("one device", "the best of the other simple uses")]
    assert baseline(winner, unfit) == []
