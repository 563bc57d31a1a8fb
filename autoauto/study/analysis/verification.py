"""The best of a search measured again, in turns with the runner-up and the default configuration: `verify`.

In each turn all configurations are measured once, the first one changes (w winner, r runner-up, d default):

    turn 0    w r d        a drift of the machine's speed within a turn affects none more than the others,
    turn 1    r d w        and one between turns cancels in the differences of a turn (`break_tie`)
    turn 2    d w r
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, NamedTuple

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from autoauto.records.knobs import Knobs, Objective, SearchSpace
from autoauto.records.study_summary import AutoPipelineAnswer, Repeated, Verdict, Verification
from autoauto.records.trial import Attempt
from autoauto.study.analysis.tie_break import TieBreak, break_tie
from autoauto.study.execution.executors import Executor
from autoauto.study.interrupts import Interrupts
from autoauto.study.objectives import objective_value, score
from autoauto.study.store.database import through_restarts
from autoauto.study.store.trials import finished_trials, knobs_of

WINNER, RUNNER_UP, DEFAULT = "winner", "runner-up", "default configuration"
VERIFIED = "verified"
"""The attribute of a study that holds the verifications of its searches."""
_POLL_S = 0.2


class Rerun(NamedTuple):
    """A configuration to measure again.

    Attributes:
        name, knobs, what: as in `Repeated`.
        executor: measures it.
    """

    name: str
    knobs: Knobs
    what: str
    executor: Executor


def reruns_of(
    study: Study, space: SearchSpace, best: Knobs, objective: Objective, executor: Executor, default: Rerun
) -> list[Rerun]:
    """The best of a search, the next best of its space, and the default configuration unless it is one of them."""
    trials = {knobs: trial for knobs, trial in finished_trials(study, space).items() if trial.value is not None}
    trials.pop(best, None)
    second = max(trials, key=lambda knobs: _trial_score(objective, trials[knobs]), default=None)
    reruns = [Rerun(WINNER, best, "", executor)]
    if second is not None:
        reruns.append(Rerun(RUNNER_UP, second, "", executor))
    is_included = any((rerun.knobs, rerun.what) == (default.knobs, default.what) for rerun in reruns)
    return reruns if is_included else [*reruns, default]


def verify(
    study: Study,
    reruns: Sequence[Rerun],
    n_repeats: int,
    objective: Objective,
    auto_pipeline: Callable[[], AutoPipelineAnswer | None],
    known: Mapping[Knobs, FrozenTrial] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Measure all configurations `n_repeats` times, in turns, and compare the first two; stored in the study.

    Every turn is stored when it is finished, so a verification that is interrupted resumes after it. A stored
    verification of the same configurations and as many turns is not repeated.

    Args:
        study: of the search.
        reruns: the best first; see `reruns_of`.
        n_repeats: number of turns, 1 or more.
        objective: of the search.
        auto_pipeline: computes the answer of [auto-pipeline]; called when the study has none.
        known: trials whose numbers are used instead of another measurement, on a target where all are equal.
        progress: called before every measurement with the number of finished ones and of all.

    Raises:
        KeyboardInterrupt: it was interrupted.
        BadInput: the study's database cannot be used any more.
    """
    stored = next((entry for entry in verifications(study) if entry.repeated[0].knobs == reruns[0].knobs), None)
    empty = [Repeated(rerun.name, rerun.knobs, rerun.what) for rerun in reruns]
    rows = list(stored.repeated) if stored is not None and _resumes(stored, empty, n_repeats) else empty
    answer = stored.auto_pipeline if stored is not None and rows is not empty else auto_pipeline()
    with Interrupts() as interrupts, ExitStack() as closing:
        for executor in {id(rerun.executor): rerun.executor for rerun in reruns}.values():
            closing.callback(executor.close)
        for turn in range(len(rows[0].scores), n_repeats):
            order = [(position + turn) % len(rows) for position in range(len(rows))]
            for n_done, index in enumerate(order, start=turn * len(rows)):
                if progress is not None:
                    progress(n_done, n_repeats * len(rows))
                trial = (known or {}).get(rows[index].knobs) if not rows[index].what else None
                if trial is not None:
                    speed = trial.user_attrs["samples_per_s"]
                    rows[index] = _with_turn(rows[index], speed, _trial_score(objective, trial))
                else:
                    attempt = _measure(reruns[index].executor, rows[index].knobs, interrupts)
                    rows[index] = _with_attempt(rows[index], attempt, objective)
            _store(study, _verification(rows, n_repeats, answer))
    return _verification(rows, n_repeats, answer)


def verifications(study: Study) -> list[Verification]:
    """The stored verifications, the last first: one for every configuration that was the best of a search."""
    return [_read(entry) for entry in study.user_attrs.get(VERIFIED, ())]


def verified_winners(study: Study) -> dict[Knobs, Knobs]:
    """The best of a search -> the winner of its verification, where that is another configuration."""
    return {entry.repeated[0].knobs: entry.winner.knobs for entry in verifications(study) if entry.winner_index}


def _resumes(stored: Verification, empty: Sequence[Repeated], n_repeats: int) -> bool:
    """Whether a stored verification is of the same configurations and as many turns."""
    before, now = ([(row.name, row.knobs, row.what) for row in rows] for rows in (stored.repeated, empty))
    return before == now and stored.n_repeats == n_repeats


def _verification(rows: Sequence[Repeated], n_repeats: int, answer: AutoPipelineAnswer | None) -> Verification:
    has_runner_up = len(rows) > 1 and rows[1].name == RUNNER_UP
    tie_break = break_tie(rows[0], rows[1]) if has_runner_up else TieBreak(second=False)
    return Verification(tuple(rows), n_repeats, int(tie_break.second), tie_break.verdict, answer)


def _measure(executor: Executor, knobs: Knobs, interrupts: Interrupts) -> Attempt:
    executor.submit(knobs)
    while True:
        with interrupts.interruptible():
            executor.wait(_POLL_S)
        for attempt in executor.finished():
            return attempt


def _with_attempt(row: Repeated, attempt: Attempt, objective: Objective) -> Repeated:
    outcome = attempt.outcome
    if outcome is None or not outcome.fits:
        reason = attempt.reason if outcome is None else outcome.reason
        return _with_turn(row, None, None)._replace(reason=reason)
    return _with_turn(row, outcome.samples_per_s, score(objective, objective_value(objective, outcome)))


def _with_turn(row: Repeated, samples_per_s: float | None, turn_score: float | None) -> Repeated:
    return row._replace(samples_per_s=(*row.samples_per_s, samples_per_s), scores=(*row.scores, turn_score))


def _trial_score(objective: Objective, trial: FrozenTrial) -> float:
    assert trial.state is TrialState.COMPLETE
    assert trial.value is not None
    return score(objective, trial.value)


# A verification in the study's attribute. Its keys are part of the format of studies.


@through_restarts
def _store(study: Study, verification: Verification) -> None:
    """Put a verification first; it replaces one of the same best configuration."""
    answer = verification.auto_pipeline
    entry = {
        "repeated": [row._asdict() | {"knobs": asdict(row.knobs)} for row in verification.repeated],
        "seed": answer and answer._asdict() | {"knobs": asdict(answer.knobs)},
        "n_repeats": verification.n_repeats,
        "settled": verification.winner_index,
        "verdict": str(verification.verdict),
    }
    best = asdict(verification.repeated[0].knobs)
    others = [other for other in study.user_attrs.get(VERIFIED, ()) if other["repeated"][0]["knobs"] != best]
    study.set_user_attr(VERIFIED, [entry, *others])


def _read(entry: Mapping[str, Any]) -> Verification:
    rows = [Repeated(**{**row, **_turns(row), "knobs": knobs_of(row["knobs"])}) for row in entry["repeated"]]
    answer = entry["seed"] and AutoPipelineAnswer(**{**entry["seed"], "knobs": knobs_of(entry["seed"]["knobs"])})
    return Verification(tuple(rows), entry["n_repeats"], entry["settled"], Verdict(entry["verdict"]), answer)


def _turns(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(row[name]) for name in ("samples_per_s", "scores")}
