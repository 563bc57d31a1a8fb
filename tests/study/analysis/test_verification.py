"""The best of a search measured again in turns: stored, interrupted, resumed, and the winner."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import optuna
import pytest

from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result, RunResult
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import AutoPipelineAnswer, Repeated, Verdict, Verification
from autoauto.space.trial import Status, Trial
from autoauto.study.analysis.best import best_of_study, summarise_study
from autoauto.study.analysis.verification import (
    ONE_SESSION,
    RUNNER_UP,
    THIRD,
    WINNER,
    Turns,
    repeated_of,
    store_verification,
    verifications,
    verified_winners,
    verify,
    with_means,
)
from autoauto.study.execution.executors import InlineExecutor
from autoauto.study.run import SearchResult, run_search
from autoauto.study.store.study import load_study, open_study
from autoauto.study.store.trials import stored_trials

if TYPE_CHECKING:
    from tests.study.conftest import Fake

SPACE = SearchSpace((1, 2), (0.3,), (1, 2, 3, 4, 5, 6, 12))
BEST, SECOND, PLAIN = (
    Knobs(n_ipu=2, memory_proportion=0.3, batch_size=12),
    Knobs(n_ipu=2, memory_proportion=0.3, batch_size=6),
    Knobs(n_ipu=2, memory_proportion=0.6, batch_size=6),
)
ANSWER = AutoPipelineAnswer(Knobs(n_ipu=1, memory_proportion=0.3, batch_size=6), 1.0, 2.0)


@dataclass
class Noisy:
    """Measures by formula, times a factor that depends on the configuration and the turn."""

    fake: Fake
    factors: dict[Knobs, list[float]] = field(default_factory=dict)
    calls: list[Knobs] = field(default_factory=list)
    interrupt_at: int = -1

    def __call__(self, knobs: Knobs) -> Trial:
        turn = self.calls.count(knobs)
        self.calls.append(knobs)
        if len(self.calls) == self.interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)
        trial = self.fake(knobs)
        factor = self.factors[knobs][turn] if knobs in self.factors else 1.0
        if not factor:
            raise ValueError("it broke")
        return trial.with_values(samples_per_s=trial.samples_per_s * factor)


@pytest.fixture
def study(any_storage: str, study_name: str) -> optuna.Study:
    return open_study(any_storage, study_name, Objective.THROUGHPUT, {"target": "host 1"})


@pytest.fixture
def result(study: optuna.Study, fake: Fake) -> SearchResult:
    result = run_search(SPACE, fake, study, Objective.THROUGHPUT)
    assert result.best is not None
    assert result.best.knobs == BEST
    return result


def rows(study: optuna.Study, best: Knobs = BEST, session: Knobs = PLAIN) -> list[Repeated]:
    in_space = [trial for knobs, trial in stored_trials(study).finished.items() if knobs in SPACE]
    return repeated_of(in_space, best, Objective.THROUGHPUT, session)


@pytest.mark.usefixtures("result")
def test_all_are_measured_in_turns_and_none_is_always_first(study: optuna.Study, fake: Fake) -> None:
    noisy = Noisy(fake)
    verification = verify(study, Turns(rows(study), 3), Objective.THROUGHPUT, InlineExecutor(noisy))
    assert [(row.name, row.knobs) for row in verification.repeated] == [
        (WINNER, BEST),
        (RUNNER_UP, SECOND),
        (ONE_SESSION, PLAIN),
    ]
    assert noisy.calls == [BEST, SECOND, PLAIN, SECOND, PLAIN, BEST, PLAIN, BEST, SECOND]
    assert verifications(load_study_of(study)) == [verification]
    assert verification.auto_pipeline is None
    answered = replace(verification, auto_pipeline=ANSWER)
    store_verification(study, answered)
    assert verifications(load_study_of(study)) == [answered]
    known = len(noisy.calls)
    assert verify(study, Turns(rows(study), 3), Objective.THROUGHPUT, InlineExecutor(noisy)) == answered
    assert len(noisy.calls) == known


def load_study_of(study: optuna.Study) -> optuna.Study:
    return optuna.load_study(study_name=study.study_name, storage=study._storage)


@pytest.mark.usefixtures("result")
def test_a_runner_up_that_is_better_wins(study: optuna.Study, any_storage: str, fake: Fake) -> None:
    noisy = Noisy(fake, {BEST: [0.90, 0.91, 0.89], SECOND: [1.10, 1.11, 1.09]})
    verification = verify(study, Turns(rows(study), 3), Objective.THROUGHPUT, InlineExecutor(noisy))
    assert (verification.winner_index, verification.verdict, verification.winner.knobs) == (1, Verdict.CLEAR, SECOND)
    assert verified_winners(study) == {BEST: SECOND}
    best = best_of_study(study, stored_trials(study).finished)
    assert best is not None
    assert best.knobs == SECOND
    summary = summarise_study(load_study(any_storage, study.study_name), any_storage)
    assert summary.winner is not None
    assert summary.winner.knobs == summary.ranked[0].knobs == SECOND
    assert summary.winner.samples_per_s == pytest.approx(1.1 * stored_trials(study).finished[SECOND].samples_per_s)
    assert summary.ranked[1].samples_per_s == pytest.approx(0.9 * stored_trials(study).finished[BEST].samples_per_s)
    assert summary.verification == verification


def test_what_is_slower_by_the_intervals_of_its_run_has_no_turns() -> None:
    best, second, third, session = (Knobs(n_ipu=1, memory_proportion=1.0, batch_size=size) for size in (1, 2, 4, 8))

    def trial(knobs: Knobs, low: float, high: float, core_share: float = 1.0) -> Trial:
        result = Result((low + high) / 2, latency_s=1.0, run=RunResult(low, high, core_share))
        return Trial(knobs, Status.OK, result=result)

    trials = [trial(session, 20, 30), trial(best, 95, 105), trial(second, 90, 98), trial(third, 88, 94)]
    rows = [Repeated(WINNER, best), Repeated(RUNNER_UP, second)]
    assert repeated_of(trials, best, Objective.THROUGHPUT, session, noise=0.01) == rows
    trials[2] = trial(second, 85, 94)
    assert repeated_of(trials, best, Objective.THROUGHPUT, session, noise=0.01) == rows[:1]
    trials[0] = trial(session, 20, 30, core_share=0.25)  # on all of its cores it may have given four times as much
    measured = repeated_of(trials, best, Objective.THROUGHPUT, session, noise=0.01)
    assert measured == [rows[0], Repeated(RUNNER_UP, session)]
    assert (
        len(repeated_of(trials, best, Objective.LATENCY, session, noise=0.01)) == 3
    )  # the interval is of the throughput


@pytest.mark.parametrize(("slowest", "is_measured"), [(91.0, True), (89.0, False)])
def test_of_noisy_readings_the_third_best_has_turns_if_it_may_be_the_best(slowest: float, is_measured: bool) -> None:
    best, second, third = (Knobs(n_ipu=1, memory_proportion=1.0, batch_size=size) for size in (1, 2, 4))
    readings = {third: slowest, best: 100.0, second: 98.0}
    trials = [Trial(knobs, Status.OK, samples_per_s=speed) for knobs, speed in readings.items()]
    rows = [Repeated(WINNER, best), Repeated(RUNNER_UP, second), Repeated(THIRD, third)]
    assert repeated_of(trials, best, Objective.THROUGHPUT, None, noise=0.01) == rows[: 3 if is_measured else 2]
    assert repeated_of(trials, best, Objective.THROUGHPUT, third, noise=0.01)[-1].knobs == third
    assert repeated_of(trials, best, Objective.THROUGHPUT, None) == rows[:2]


@pytest.mark.usefixtures("result")
def test_a_session_that_is_better_wins_if_it_is_a_candidate(study: optuna.Study, fake: Fake) -> None:
    plain = Knobs(n_ipu=1, memory_proportion=0.3, batch_size=12)
    faster = {plain: [9.0, 9.1, 8.9] * 2}
    empty = rows(study, session=plain)
    assert [row.knobs for row in empty] == [BEST, SECOND, plain]
    without = verify(study, Turns(empty, 3), Objective.THROUGHPUT, InlineExecutor(Noisy(fake, faster)))
    assert without.winner.knobs == BEST
    executor = InlineExecutor(Noisy(fake, faster))
    with_it = verify(study, Turns(empty, 3, n_candidates=3), Objective.THROUGHPUT, executor)
    assert (with_it.winner_index, with_it.verdict, with_it.winner.knobs) == (2, Verdict.CLEAR, plain)


@pytest.mark.usefixtures("result")
def test_a_verification_does_not_decide_about_a_better_trial_of_a_later_search(study: optuna.Study, fake: Fake) -> None:
    noisy = Noisy(fake, {BEST: [0.90, 0.91, 0.89], SECOND: [1.0, 1.01, 0.99]})
    verify(study, Turns(rows(study), 3), Objective.THROUGHPUT, InlineExecutor(noisy))
    wider = SearchSpace((1, 2, 4), (0.3,), SPACE["batch_size"])
    later = run_search(wider, fake, study, Objective.THROUGHPUT).best
    best = best_of_study(study, stored_trials(study).finished)
    in_space = {knobs: each for knobs, each in stored_trials(study).finished.items() if knobs in SPACE}
    inside = best_of_study(study, in_space)
    assert later is not None
    assert best is not None
    assert inside is not None
    assert (best.knobs, inside.knobs) == (later.knobs, SECOND)
    assert later.knobs.n_ipu == 4


@pytest.mark.usefixtures("result")
def test_finished_turns_are_stored_before_an_interrupt(study: optuna.Study, fake: Fake) -> None:
    noisy = Noisy(fake, interrupt_at=5)
    with pytest.raises(KeyboardInterrupt):
        verify(study, Turns(rows(study), 3), Objective.THROUGHPUT, InlineExecutor(noisy))
    [stored] = verifications(study)
    assert [len(row.scores) for row in stored.repeated] == [1, 1, 1]
    store_verification(study, replace(stored, auto_pipeline=ANSWER))
    verification = verify(study, Turns(rows(study), 3), Objective.THROUGHPUT, InlineExecutor(noisy))
    assert [len(row.scores) for row in verification.repeated] == [3, 3, 3]
    assert (verification.auto_pipeline, len(noisy.calls)) == (ANSWER, 5 + 6)


@pytest.mark.usefixtures("result")
def test_turns_that_decide_are_the_last(study: optuna.Study, fake: Fake) -> None:
    noisy = Noisy(fake, {knobs: [1.0, 1.0, 1.0] for knobs in (BEST, SECOND, PLAIN)})
    arguments = study, Turns(rows(study), 3, noise=0.01), Objective.THROUGHPUT, InlineExecutor(noisy)
    verification = verify(*arguments)
    assert (verification.n_turns, len(noisy.calls)) == (2, 6)
    assert verify(*arguments) == verification
    assert len(noisy.calls) == 6


@pytest.mark.usefixtures("result")
def test_what_two_turns_decide_has_no_third(study: optuna.Study, fake: Fake) -> None:
    noisy = Noisy(fake, {BEST: [1.0, 1.0, 1.0], SECOND: [1.0, 1.3, 1.0], PLAIN: [0.5, 0.5, 0.5]})
    arguments = study, Turns(rows(study), 3, noise=0.01), Objective.THROUGHPUT, InlineExecutor(noisy)
    verification = verify(*arguments)
    assert [len(row.scores) for row in verification.repeated] == [3, 3, 2]
    assert noisy.calls[6:] == [BEST, SECOND]
    assert verify(*arguments) == verification
    assert len(noisy.calls) == 8


@pytest.mark.usefixtures("result")
def test_another_number_of_turns_starts_anew(study: optuna.Study, fake: Fake) -> None:
    noisy = Noisy(fake)
    verify(study, Turns(rows(study), 1), Objective.THROUGHPUT, InlineExecutor(noisy))
    verification = verify(study, Turns(rows(study), 2), Objective.THROUGHPUT, InlineExecutor(noisy))
    assert (verification.n_repeats, len(noisy.calls)) == (2, 3 + 6)
    assert verifications(study) == [verification]


@pytest.mark.usefixtures("result")
def test_a_failed_measurement_leaves_its_turn_empty_and_has_a_reason(study: optuna.Study, fake: Fake) -> None:
    noisy = Noisy(fake, {BEST: [1.0, 0.0, 1.0]})
    verification = verify(study, Turns(rows(study), 3), Objective.THROUGHPUT, InlineExecutor(noisy))
    assert verification.repeated[0].samples_per_s[1] is None
    assert verification.repeated[0].reason == "ValueError: it broke"
    assert verification.repeated[0].speed is not None


@pytest.mark.usefixtures("result")
def test_known_trials_are_not_measured_again(study: optuna.Study, fake: Fake) -> None:
    noisy, seen = Noisy(fake), list[tuple[int, int]]()
    known = {knobs: trial for knobs, trial in stored_trials(study).finished.items() if trial.fits}
    verification = verify(
        study,
        Turns(rows(study), 1, known=known),
        Objective.THROUGHPUT,
        InlineExecutor(noisy),
        lambda *now: seen.append(now),
    )
    assert noisy.calls == [PLAIN]
    assert verification.repeated[0].samples_per_s == (known[BEST].samples_per_s,)
    assert seen == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.usefixtures("result")
def test_a_session_that_is_the_winner_is_measured_once(study: optuna.Study) -> None:
    names = [[row.name for row in rows(study, session=session)] for session in (BEST, SECOND, PLAIN)]
    assert names == [[WINNER, RUNNER_UP], [WINNER, RUNNER_UP], [WINNER, RUNNER_UP, ONE_SESSION]]


def test_the_only_configuration_that_fits_has_no_runner_up(study: optuna.Study, fake: Fake) -> None:
    space, best = SearchSpace((1,), (1.0,), (36, 37)), Knobs(n_ipu=1, memory_proportion=1.0, batch_size=36)
    trials = run_search(space, fake, study, Objective.THROUGHPUT).trials.values()
    alone = repeated_of(trials, best, Objective.THROUGHPUT, best)
    verification = verify(study, Turns(alone, 2), Objective.THROUGHPUT, InlineExecutor(fake))
    assert [row.knobs for row in verification.repeated] == [best]
    assert not verification.winner_index


def test_what_was_measured_again_has_the_means_of_all_turns() -> None:
    again = Trial(BEST, Status.OK, samples_per_s=90.0, latency_s=0.1)
    once = Trial(SECOND, Status.OK, samples_per_s=80.0, latency_s=0.3)
    rows = (
        Repeated(WINNER, BEST, (100.0, 200.0, None), (5.0, 15.0, None)),
        Repeated(RUNNER_UP, SECOND, (70.0,), (4.0,)),
        Repeated(ONE_SESSION, PLAIN, (None,), (None,), "too slow"),
    )
    verification = Verification(rows, 3, 0, Verdict.CLEAR, None)
    trials = [again, once, Trial(PLAIN, Status.OK, samples_per_s=1.0, latency_s=9.0)]

    def shown(objective: Objective) -> list[tuple[float, float]]:
        return [(trial.samples_per_s, trial.latency_s) for trial in with_means(trials, verification, objective)]

    assert shown(Objective.LATENCY) == [(150.0, 0.1), (70.0, 0.3), (1.0, 9.0)]
    assert shown(Objective.PER_DEVICE) == [(150.0, 0.1), (70.0, 0.3), (1.0, 9.0)]
    two = Repeated(WINNER, BEST, (1.0, 1.0), (4.0, 6.0))
    slower = with_means([again], Verification((two,), 2, 0, Verdict.CLEAR, None), Objective.LATENCY)
    assert slower[0].latency_s == 0.2
    assert with_means([again], verification, Objective.THROUGHPUT)[0].samples_per_s == 150.0
