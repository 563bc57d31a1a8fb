"""The winner measured again, in turns with others."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import optuna
import pytest

from autoauto.records.knobs import Knobs, Objective, SearchSpace
from autoauto.records.study_summary import Expected, Verdict
from autoauto.records.trial import Outcome
from autoauto.study.analysis.best import best_trial
from autoauto.study.analysis.summary import study_findings
from autoauto.study.analysis.verification import (
    DEFAULT,
    RUNNER_UP,
    WINNER,
    Contestant,
    contestants_of,
    settled_knobs,
    verifications,
    verify,
)
from autoauto.study.execution.executors import Own
from autoauto.study.run import SearchResult, run_search
from autoauto.study.store.study import load_study, open_study
from autoauto.study.store.trials import complete_trials

if TYPE_CHECKING:
    from tests.search.conftest import Fake

SPACE = SearchSpace((1, 2), (0.3,), (1, 2, 3, 4, 5, 6, 12))
BEST, SECOND, PLAIN = Knobs(2, 0.3, 12), Knobs(2, 0.3, 6), Knobs(2, 0.6, 6)
SEED = Expected(Knobs(1, 0.3, 6), 1.0, 2.0)


@dataclass
class Noisy:
    """Measures by formula, times a factor that depends on the configuration and the turn."""

    fake: Fake
    factors: dict[Knobs, list[float]] = field(default_factory=dict)
    calls: list[Knobs] = field(default_factory=list)
    interrupt_at: int = -1

    def __call__(self, knobs: Knobs) -> Outcome:
        from dataclasses import replace

        turn = self.calls.count(knobs)
        self.calls.append(knobs)
        if len(self.calls) == self.interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)
        outcome = self.fake(knobs)
        factor = self.factors[knobs][turn] if knobs in self.factors else 1.0
        if not factor:
            raise ValueError("it broke")
        return replace(outcome, samples_per_s=outcome.samples_per_s * factor)


@pytest.fixture
def study(any_storage: str, study_name: str) -> optuna.Study:
    return open_study(any_storage, study_name, Objective.THROUGHPUT, {"target": "host 1"})


@pytest.fixture
def result(study: optuna.Study, fake: Fake) -> SearchResult:
    result = run_search(SPACE, fake, study, Objective.THROUGHPUT)
    assert result.best is not None
    assert result.best.knobs == BEST
    return result


def contestants(study: optuna.Study, noisy: Noisy) -> list[Contestant]:
    hands = Own(noisy)
    return contestants_of(study, SPACE, BEST, Objective.THROUGHPUT, hands, Contestant(DEFAULT, PLAIN, "", hands))


@pytest.mark.usefixtures("result")
def test_all_are_measured_in_turns_and_none_is_always_first(study: optuna.Study, fake: Fake) -> None:
    noisy = Noisy(fake)
    told = verify(study, contestants(study, noisy), 3, Objective.THROUGHPUT, lambda: SEED)
    assert [(one.name, one.knobs) for one in told.repeated] == [(WINNER, BEST), (RUNNER_UP, SECOND), (DEFAULT, PLAIN)]
    assert noisy.calls == [BEST, SECOND, PLAIN, SECOND, PLAIN, BEST, PLAIN, BEST, SECOND]
    assert verifications(load_study_of(study)) == [told]
    assert told.seed == SEED
    known = len(noisy.calls)
    assert verify(study, contestants(study, noisy), 3, Objective.THROUGHPUT, lambda: None) == told
    assert len(noisy.calls) == known


def load_study_of(study: optuna.Study) -> optuna.Study:
    return optuna.load_study(study_name=study.study_name, storage=study._storage)


@pytest.mark.usefixtures("result")
def test_a_runner_up_that_is_better_wins(study: optuna.Study, any_storage: str, fake: Fake) -> None:
    noisy = Noisy(fake, {BEST: [0.90, 0.91, 0.89], SECOND: [1.0, 1.01, 0.99]})
    told = verify(study, contestants(study, noisy), 3, Objective.THROUGHPUT, lambda: SEED)
    assert (told.settled, told.verdict, told.winner.knobs) == (1, Verdict.CLEAR, SECOND)
    assert settled_knobs(study) == {BEST: SECOND}
    best = best_trial(study)
    assert best is not None
    assert best.knobs == SECOND
    found = study_findings(load_study(any_storage, study.study_name), any_storage)
    assert found.winner is not None
    assert found.winner.tried.knobs == found.ranked[0].knobs == SECOND
    assert found.verification == told


@pytest.mark.usefixtures("result")
def test_what_a_search_finds_later_is_not_settled_by_what_was(study: optuna.Study, fake: Fake) -> None:
    noisy = Noisy(fake, {BEST: [0.90, 0.91, 0.89], SECOND: [1.0, 1.01, 0.99]})
    verify(study, contestants(study, noisy), 3, Objective.THROUGHPUT, lambda: SEED)
    wider = SearchSpace((1, 2, 4), (0.3,), SPACE.batch_size)
    later = run_search(wider, fake, study, Objective.THROUGHPUT).best
    best, inside = best_trial(study), best_trial(study, SPACE)
    assert later is not None
    assert best is not None
    assert inside is not None
    assert (best.knobs, inside.knobs) == (later.knobs, SECOND)
    assert later.knobs.n_ipu == 4


@pytest.mark.usefixtures("result")
def test_an_interrupt_keeps_the_turns_that_are_finished(study: optuna.Study, fake: Fake) -> None:
    noisy = Noisy(fake, interrupt_at=5)
    with pytest.raises(KeyboardInterrupt):
        verify(study, contestants(study, noisy), 3, Objective.THROUGHPUT, lambda: SEED)
    [kept] = verifications(study)
    assert [len(one.scores) for one in kept.repeated] == [1, 1, 1]
    told = verify(study, contestants(study, noisy), 3, Objective.THROUGHPUT, lambda: None)
    assert [len(one.scores) for one in told.repeated] == [3, 3, 3]
    assert (told.seed, len(noisy.calls)) == (SEED, 5 + 6)


@pytest.mark.usefixtures("result")
def test_more_turns_begin_anew(study: optuna.Study, fake: Fake) -> None:
    noisy = Noisy(fake)
    verify(study, contestants(study, noisy), 1, Objective.THROUGHPUT, lambda: SEED)
    told = verify(study, contestants(study, noisy), 2, Objective.THROUGHPUT, lambda: SEED)
    assert (told.n_repeats, len(noisy.calls)) == (2, 3 + 6)
    assert verifications(study) == [told]


@pytest.mark.usefixtures("result")
def test_what_fails_costs_its_turn_and_is_told(study: optuna.Study, fake: Fake) -> None:
    noisy = Noisy(fake, {BEST: [1.0, 0.0, 1.0]})
    told = verify(study, contestants(study, noisy), 3, Objective.THROUGHPUT, lambda: SEED)
    assert told.repeated[0].samples_per_s[1] is None
    assert told.repeated[0].reason == "ValueError: it broke"
    assert told.repeated[0].speed is not None


@pytest.mark.usefixtures("result")
def test_what_the_trials_tell_is_not_measured_again(study: optuna.Study, fake: Fake) -> None:
    noisy, seen = Noisy(fake), list[tuple[int, int]]()
    known = complete_trials(study)
    several = contestants(study, noisy)
    told = verify(study, several, 1, Objective.THROUGHPUT, lambda: SEED, known, lambda *now: seen.append(now))
    assert noisy.calls == [PLAIN]
    assert told.repeated[0].samples_per_s == (known[BEST].user_attrs["samples_per_s"],)
    assert seen == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.usefixtures("result")
def test_a_default_that_is_the_winner_is_measured_once(study: optuna.Study, fake: Fake) -> None:
    hands = Own(fake)
    same, other = Contestant(DEFAULT, BEST, "", hands), Contestant(DEFAULT, BEST, "one session, all cores", hands)
    names = [
        [one.name for one in contestants_of(study, SPACE, BEST, Objective.THROUGHPUT, hands, default)]
        for default in (same, other)
    ]
    assert names == [[WINNER, RUNNER_UP], [WINNER, RUNNER_UP, DEFAULT]]


def test_what_alone_fits_has_no_runner_up(study: optuna.Study, fake: Fake) -> None:
    space = SearchSpace((1,), (1.0,), (36, 37))
    run_search(space, fake, study, Objective.THROUGHPUT)
    hands, best = Own(fake), Knobs(1, 1.0, 36)
    alone = contestants_of(study, space, best, Objective.THROUGHPUT, hands, Contestant(DEFAULT, best, "", hands))
    told = verify(study, alone, 2, Objective.THROUGHPUT, lambda: None)
    assert [one.knobs for one in told.repeated] == [best]
    assert not told.settled
