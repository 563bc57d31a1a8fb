"""The best of a search measured again beside the runner-up and the default configuration: `verify`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, NamedTuple

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from autoauto.records.knobs import Knobs, Objective, SearchSpace
from autoauto.records.study_summary import Expected, Repeated, Verdict, Verification
from autoauto.records.trial import Attempt
from autoauto.study.analysis.tie_break import Settled, settle
from autoauto.study.execution.executors import Hands
from autoauto.study.interrupts import Interrupts
from autoauto.study.objectives import objective_value, score
from autoauto.study.store.database import through_restarts
from autoauto.study.store.trials import finished_trials, knobs_of

WINNER, RUNNER_UP, DEFAULT = "winner", "runner-up", "default configuration"
VERIFIED = "verified"
"""The attribute of a study that holds what measuring again told."""
_POLL_S = 0.2


class Contestant(NamedTuple):
    """A configuration to measure again.

    Attributes:
        name, knobs, what: as in `Repeated`.
        hands: who measures it.
    """

    name: str
    knobs: Knobs
    what: str
    hands: Hands


def contestants_of(
    study: Study, space: SearchSpace, best: Knobs, objective: Objective, hands: Hands, default: Contestant
) -> list[Contestant]:
    """The best of a search, the next best of its space, and the default configuration unless it is one of them."""
    trials = {knobs: trial for knobs, trial in finished_trials(study, space).items() if trial.value is not None}
    trials.pop(best, None)
    second = max(trials, key=lambda knobs: _score(objective, trials[knobs]), default=None)
    both = [Contestant(WINNER, best, "", hands)]
    if second is not None:
        both.append(Contestant(RUNNER_UP, second, "", hands))
    known = any((one.knobs, one.what) == (default.knobs, default.what) for one in both)
    return both if known else [*both, default]


def verify(
    study: Study,
    contestants: Sequence[Contestant],
    n_repeats: int,
    objective: Objective,
    seed: Callable[[], Expected | None],
    known: Mapping[Knobs, FrozenTrial] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Measure all contestants `n_repeats` times, in turns, and settle which is the winner; kept in the study.

    Every turn is kept when it is finished, so a verification that is stopped goes on. What was kept of the same
    contestants and as many turns is not measured again.

    Args:
        study: of the search.
        contestants: the best first; see `contestants_of`.
        n_repeats: turns, 1 or more.
        objective: of the search.
        seed: tells the seed's answer; asked when there is none in the study.
        known: trials that tell what another measurement would tell, on a target where all give the same.
        progress: called before every measurement with how many are done, and how many there will be.

    Raises:
        KeyboardInterrupt: it was interrupted.
        BadInput: the study's database cannot be used any more.
    """
    kept = next((one for one in verifications(study) if one.repeated[0].knobs == contestants[0].knobs), None)
    empty = [Repeated(one.name, one.knobs, one.what) for one in contestants]
    rows = list(kept.repeated) if kept is not None and _goes_on(kept, empty, n_repeats) else empty
    answer = kept.seed if kept is not None and rows is not empty else seed()
    with Interrupts() as interrupts, ExitStack() as ending:
        for hands in {id(one.hands): one.hands for one in contestants}.values():
            ending.callback(hands.close)
        for turn in range(len(rows[0].scores), n_repeats):
            order = [(place + turn) % len(rows) for place in range(len(rows))]  # none is always first
            for n_done, place in enumerate(order, start=turn * len(rows)):
                if progress is not None:
                    progress(n_done, n_repeats * len(rows))
                trial = (known or {}).get(rows[place].knobs) if not rows[place].what else None
                if trial is not None:
                    rows[place] = _with(rows[place], trial.user_attrs["samples_per_s"], _score(objective, trial))
                else:
                    attempt = _measure(contestants[place].hands, rows[place].knobs, interrupts)
                    rows[place] = _after(rows[place], attempt, objective)
            _keep(study, _verification(rows, n_repeats, answer))
    return _verification(rows, n_repeats, answer)


def verifications(study: Study) -> list[Verification]:
    """What a study keeps, the last first: one for every configuration that was the best of a search."""
    return [_read(told) for told in study.user_attrs.get(VERIFIED, ())]


def settled_knobs(study: Study) -> dict[Knobs, Knobs]:
    """The best of a search -> the winner, where the turns have settled that it is another."""
    return {told.repeated[0].knobs: told.winner.knobs for told in verifications(study) if told.settled}


def _read(told: Mapping[str, Any]) -> Verification:
    rows = [Repeated(**{**row, **_lists(row), "knobs": knobs_of(row["knobs"])}) for row in told["repeated"]]
    seed = told["seed"] and Expected(**{**told["seed"], "knobs": knobs_of(told["seed"]["knobs"])})
    return Verification(tuple(rows), told["n_repeats"], told["settled"], Verdict(told["verdict"]), seed)


def _goes_on(kept: Verification, wanted: Sequence[Repeated], n_repeats: int) -> bool:
    same = [(one.name, one.knobs, one.what) for one in kept.repeated] == [(o.name, o.knobs, o.what) for o in wanted]
    return same and kept.n_repeats == n_repeats


def _verification(rows: Sequence[Repeated], n_repeats: int, seed: Expected | None) -> Verification:
    has_second = len(rows) > 1 and rows[1].name == RUNNER_UP
    told = settle(rows[0], rows[1]) if has_second else Settled(second=False)
    return Verification(tuple(rows), n_repeats, int(told.second), told.verdict, seed)


def _measure(hands: Hands, knobs: Knobs, interrupts: Interrupts) -> Attempt:
    hands.begin(knobs)
    while True:
        with interrupts.heard():
            hands.wait(_POLL_S)
        for attempt in hands.ended():
            return attempt


def _after(row: Repeated, attempt: Attempt, objective: Objective) -> Repeated:
    outcome = attempt.outcome
    if outcome is None or not outcome.fits:
        reason = attempt.reason if outcome is None else outcome.reason
        return _with(row, None, None)._replace(reason=reason)
    return _with(row, outcome.samples_per_s, score(objective, objective_value(objective, outcome)))


def _with(row: Repeated, samples_per_s: float | None, worth: float | None) -> Repeated:
    return row._replace(samples_per_s=(*row.samples_per_s, samples_per_s), scores=(*row.scores, worth))


def _score(objective: Objective, trial: FrozenTrial) -> float:
    assert trial.state is TrialState.COMPLETE
    assert trial.value is not None
    return score(objective, trial.value)


@through_restarts
def _keep(study: Study, told: Verification) -> None:
    rows = [row._asdict() | {"knobs": asdict(row.knobs)} for row in told.repeated]
    seed = told.seed and told.seed._asdict() | {"knobs": asdict(told.seed.knobs)}
    rest = {"n_repeats": told.n_repeats, "settled": told.settled, "verdict": str(told.verdict)}
    others = [one for one in study.user_attrs.get(VERIFIED, ()) if one["repeated"][0]["knobs"] != rows[0]["knobs"]]
    study.set_user_attr(VERIFIED, [{"repeated": rows, "seed": seed, **rest}, *others])


def _lists(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(row[name]) for name in ("samples_per_s", "scores")}
