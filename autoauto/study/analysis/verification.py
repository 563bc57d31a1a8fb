"""The best of a search measured again, in turns with the next best and, on real devices, one session: `verify`.

In each turn all configurations are measured once, the first one changes (w winner, r runner-up, s one session):

    turn 0    w r s        a drift of the machine's speed within a turn affects none more than the others,
    turn 1    r s w        and one between turns cancels in the differences of a turn (`break_tie`)
    turn 2      w r        a configuration that differs clearly from the winner, or ties with it, is left out (s here)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from optuna import Study

from autoauto.records.interval import interval
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.study_summary import AutoPipelineAnswer, Repeated, Verdict, Verification
from autoauto.space.table import simplicity
from autoauto.space.trial import Trial
from autoauto.study.execution.executors import Executor
from autoauto.study.interrupts import Interrupts
from autoauto.study.store.database import attributes_of, set_attribute
from autoauto.study.store.trials import knobs_of

MAX_ERROR_SHARE = 0.1
"""When half the width of the interval exceeds this share of the score, the turns do not show whether two tie. A single
reading may err by as much, so the third best has turns too when its reading is at most this share below the best."""


class TieBreak(NamedTuple):
    """The better of two configurations."""

    second: bool  # whether it is the second, which is better, or as good and simpler
    verdict: Verdict = Verdict.CLEAR  # how clear that is


def is_decided(first: Repeated, second: Repeated, noise: float) -> bool:
    """True if further turns would only repeat what `break_tie` says: two differ clearly, or by no more than `noise`."""
    lead = _lead(first, second)
    if lead is None:
        return False
    return lead.is_clear or abs(lead.mean) + lead.error <= noise * lead.largest


def is_distinct(first: Repeated, second: Repeated) -> bool:
    """True if the confidence interval of the mean difference of two configurations lies on one side of 0 [student].

    Of fewer than two turns of both it is not known, so they are taken as they are; so are turns that are all equal.
    """
    lead = _lead(first, second)
    return lead is None or lead.is_clear or lead.mean == lead.error == 0.0


def break_tie(first: Repeated, second: Repeated, noise: float) -> TieBreak:
    """Compare two configurations turn by turn, so that a disturbance of a whole turn affects both alike.

    They tie when the 95 % confidence interval of their mean difference contains 0 [student], and that difference is no
    more than the `noise`, a share of a score: then the simpler one wins. When it is more, or the interval is wider than
    `MAX_ERROR_SHARE`, so that it would contain 0 in any case, the better mean wins. The first wins with fewer than two
    turns in which both were measured; one that was never measured loses.
    """
    if first.score is None and second.score is not None:
        return TieBreak(second=True)
    lead = _lead(first, second)
    if lead is None:
        return TieBreak(second=False)
    if lead.is_clear:
        return TieBreak(lead.mean < 0)
    if lead.error > MAX_ERROR_SHARE * lead.largest or abs(lead.mean) > noise * lead.largest:
        return TieBreak(lead.mean < 0, Verdict.UNSURE)
    return TieBreak(simplicity(second.knobs) < simplicity(first.knobs), Verdict.TIE)


class _Lead(NamedTuple):
    """By how much a score is above another, in the turns that measured both."""

    mean: float
    error: float  # half the width of the 95 % confidence interval of the mean
    largest: float  # score of both

    @property
    def is_clear(self) -> bool:
        return abs(self.mean) > self.error


def _lead(first: Repeated, second: Repeated) -> _Lead | None:
    """The lead of the first; None where fewer than two turns measured both."""
    turns = zip(first.scores, second.scores, strict=False)  # a configuration that is decided has no later ones
    pairs = [(a, b) for a, b in turns if a is not None and b is not None]
    if len(pairs) < 2:
        return None
    lead = interval([a - b for a, b in pairs])
    assert lead.error is not None
    return _Lead(lead.mean, lead.error, max(map(max, pairs)))


WINNER, RUNNER_UP, THIRD, ONE_SESSION = "winner", "runner-up", "third", "one session"
VERIFIED = "verified"
"""The attribute of a study that holds the verifications of its searches."""
_POLL_S = 0.2
MIN_TURNS = 2
"""Where turns may be left out; the scatter of fewer is not known."""


def repeated_of(
    trials: Iterable[Trial], best: Knobs, objective: Objective, session: Knobs | None, noise: float = 0.0
) -> list[Repeated]:
    """The best of a search, the next best of its trials, and a session unless it is one of them.

    The next best is one where all measurements are equal; where they have `noise`, also a third (`MAX_ERROR_SHARE`).
    Those whose throughput is lower by the intervals of their runs are left out: turns decide nothing there.
    """
    measured = {trial.knobs: trial for trial in trials}
    beaten: set[Knobs] = set()  # those whose interval lies wholly below that of the best
    ends = {knobs: trial.result.ends for knobs, trial in measured.items()}
    of_best = ends.get(best)
    if objective.is_throughput and of_best is not None:
        beaten = {knobs for knobs, each in ends.items() if each and each.is_below(of_best)}
    scores: dict[Knobs, float] = {}
    for knobs, trial in measured.items():
        if trial.fits and knobs not in beaten:
            scores[knobs] = _score(objective, trial)
    others = sorted((knobs for knobs in scores if knobs != best), key=scores.__getitem__, reverse=True)
    rows = [Repeated(WINNER, best)]
    if others:
        rows.append(Repeated(RUNNER_UP, others[0]))
    if noise and len(others) > 1:
        highest = max(scores.values())
        lowest = highest - MAX_ERROR_SHARE * abs(highest)
        if scores[others[1]] >= lowest:
            rows.append(Repeated(THIRD, others[1]))
    if session is not None and session not in beaten and session not in [row.knobs for row in rows]:
        rows.append(Repeated(ONE_SESSION, session))
    return rows


class Turns(NamedTuple):
    """The configurations to measure again, and how often.

    Attributes:
        rows: the configurations, the best first, without turns; see `repeated_of`.
        n_candidates: how many of the configurations, from the first on, may be the winner.
        noise: the share of a score that is noise; 0 where all measurements are equal, of which none is left out.
        known: trials that fit, whose numbers are used instead of another measurement, on a target where all are equal.
    """

    rows: Sequence[Repeated]
    n_repeats: int
    n_candidates: int = 2
    noise: float = 0.0
    known: Mapping[Knobs, Trial] = {}


def verify(
    study: Study,
    turns: Turns,
    objective: Objective,
    executor: Executor,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Measure all configurations in turns, and compare the best with others; stored in the study.

    One has fewer turns, two or more, where these decide between the first configuration and it (`is_decided`); the
    first is measured until all others are decided.

    Every turn is stored when it is finished, so a verification that is interrupted resumes after it. A stored
    verification of the same configurations and as many turns is not repeated.

    Args:
        executor: measures; it is closed at the end.
        progress: called before every measurement with the number of finished ones and of all.

    Raises KeyboardInterrupt if it was interrupted, and BadInput if the study's database cannot be used any more.
    """
    noise, n_repeats = turns.noise, turns.n_repeats
    rows = list(turns.rows)
    answer: AutoPipelineAnswer | None = None
    of_best = (entry for entry in verifications(study) if entry.repeated[0].knobs == rows[0].knobs)
    stored = next(of_best, None)
    if stored is not None and _resumes(stored, turns):
        rows = list(stored.repeated)
        answer = stored.auto_pipeline
    with Interrupts() as interrupts, closing(executor):
        for turn in range(len(rows[0].scores), n_repeats):
            decided = set[int]()
            if noise:
                decided = {index for index in range(1, len(rows)) if is_decided(rows[0], rows[index], noise)}
                if turn >= MIN_TURNS and len(decided) == len(rows) - 1:
                    break
            # Every turn begins with another one: a drift within turns then affects none more than the others.
            for position in range(len(rows)):
                index = (position + turn) % len(rows)
                if index in decided:
                    continue
                if progress is not None:
                    progress(sum(len(row.scores) for row in rows), n_repeats * len(rows))
                knobs = rows[index].knobs
                trial = turns.known.get(knobs) or _measure(executor, knobs, interrupts)
                rows[index] = _with_turn(rows[index], trial, objective)
            store_verification(study, _verification(rows, turns, answer))
    return _verification(rows, turns, answer)


def with_means(trials: Iterable[Trial], verification: Verification, objective: Objective) -> list[Trial]:
    """The trials; the throughput of those that were measured again, and the objective's number, are of all turns."""
    means: dict[Knobs, dict[str, float]] = {}
    for row in verification.repeated:
        if row.speed is None or row.score is None:  # no turn has a measurement
            continue
        means[row.knobs] = {"samples_per_s": row.speed.mean}
        if objective.number and row.score.error is not None:  # of several turns
            means[row.knobs].setdefault(objective.number, objective.value_of(row.score.mean))
    return [trial.with_values(**means[trial.knobs]) if trial.knobs in means else trial for trial in trials]


def verifications(study: Study) -> list[Verification]:
    """The stored verifications, the last first: one for every configuration that was the best of a search."""
    stored = []
    for entry in attributes_of(study).get(VERIFIED, ()):
        rows = []
        for row in entry["repeated"]:
            speeds, scores = tuple(row["samples_per_s"]), tuple(row["scores"])
            rows.append(Repeated(row["name"], knobs_of(row["knobs"]), speeds, scores, row["reason"]))
        answer = entry["seed"] and AutoPipelineAnswer(**{**entry["seed"], "knobs": knobs_of(entry["seed"]["knobs"])})
        verdict = Verdict(entry["verdict"])
        stored.append(Verification(tuple(rows), entry["n_repeats"], entry["settled"], verdict, answer))
    return stored


def verified_winners(study: Study) -> dict[Knobs, Knobs]:
    """The best of a search -> the winner of its verification, where that is another configuration."""
    return {entry.repeated[0].knobs: entry.winner.knobs for entry in verifications(study) if entry.winner_index}


def _resumes(stored: Verification, turns: Turns) -> bool:
    """True if a stored verification is of the same configurations and as many turns."""
    before = [(row.name, row.knobs) for row in stored.repeated]
    now = [(row.name, row.knobs) for row in turns.rows]
    return before == now and stored.n_repeats == turns.n_repeats


def _verification(rows: Sequence[Repeated], turns: Turns, answer: AutoPipelineAnswer | None) -> Verification:
    winner_index, verdict = 0, Verdict.CLEAR
    for index in range(1, min(turns.n_candidates, len(rows))):
        tie_break = break_tie(rows[winner_index], rows[index], turns.noise)
        if tie_break.second or rows[index].name == RUNNER_UP:
            verdict = tie_break.verdict
        if tie_break.second:
            winner_index = index
    return Verification(tuple(rows), turns.n_repeats, winner_index, verdict, answer)


def _measure(executor: Executor, knobs: Knobs, interrupts: Interrupts) -> Trial:
    executor.submit(knobs)
    while True:
        with interrupts.interruptible():
            executor.wait(_POLL_S)
        for trial in executor.finished():
            return trial


def _with_turn(row: Repeated, trial: Trial, objective: Objective) -> Repeated:
    if not trial.fits:
        return row._replace(samples_per_s=(*row.samples_per_s, None), scores=(*row.scores, None), reason=trial.reason)
    score = _score(objective, trial)
    return row._replace(samples_per_s=(*row.samples_per_s, trial.samples_per_s), scores=(*row.scores, score))


def _score(objective: Objective, trial: Trial) -> float:
    return objective.score(trial.values[0]) if trial.values else objective.score_of(trial)


# A verification in the study's attribute. Its keys are part of the format of studies.


def store_verification(study: Study, verification: Verification) -> None:
    """Put a verification first; it replaces one of the same best configuration."""
    answer = verification.auto_pipeline
    entry = {
        "repeated": [row._asdict() | {"knobs": row.knobs.values} for row in verification.repeated],
        "seed": answer and answer._asdict() | {"knobs": answer.knobs.values},
        "n_repeats": verification.n_repeats,
        "settled": verification.winner_index,
        "verdict": str(verification.verdict),
    }
    best = verification.repeated[0].knobs.values
    others = [other for other in attributes_of(study).get(VERIFIED, ()) if other["repeated"][0]["knobs"] != best]
    set_attribute(study, VERIFIED, [entry, *others])
