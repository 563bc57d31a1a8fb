"""The winner of a study against simple uses of the cluster, the runner-up, one session and what auto_pipeline finds.

The search of [auto-pipeline] bisects every cell of the grid for its largest batch size that fits, and takes the best of
these. It does not see that a smaller batch may be faster. Its answer is `estimated_answer`, or by trials
`measured_answer`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import inf

from autoauto.records.interval import Interval
from autoauto.records.units import digits
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Method, Objective
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import (
    Alternative,
    AutoPipelineAnswer,
    Comparison,
    Repeated,
    StudySummary,
    Verdict,
    Verification,
)
from autoauto.space.trial import Status, Trial
from autoauto.study.analysis.verification import ONE_SESSION, RUNNER_UP, THIRD, is_distinct
from autoauto.study.methods.registry import IsBoundedBy
from autoauto.study.methods.simple_uses import use_of
from autoauto.study.store.database import reads

GRID_BISECT = str(Method.GRID_BISECT)
IS_WINNER = "is the winner"
ENDED_EARLY = "so far, its run ended early"
UNTRIED_GAIN = 0.02
"""How much more the estimate of a configuration must promise than that of the best measured one of its use."""
_BY_ESTIMATE = "compared with the winner's estimate"
_NOTES = {
    Verdict.CLEAR: "the next best configuration",
    Verdict.TIE: "a tie within the interval; the simpler one wins",
    Verdict.UNSURE: "the turns did not decide, the better mean wins; try more --repeats",
}


def estimated_answer(
    space: SearchSpace,
    expect: Callable[[Knobs], Trial],
    objective: Objective,
    winner: Knobs,
    limit: Callable[[Knobs], float] = lambda _: inf,
    is_bounded_by: IsBoundedBy | None = None,
    fits: Callable[[Knobs], bool] | None = None,
) -> AutoPipelineAnswer | None:
    """The answer if all measurements equalled the estimates; None when nothing fits.

    The winner that it is compared with is estimated too; nothing is measured.

    Args:
        limit: as in `Predictor`; cells that cannot have the answer are not bisected.
        is_bounded_by: tells sooner than `expect` that a configuration is no better than the best so far.
        fits: tells sooner than `expect` whether a configuration fits.
    """
    score_of = objective.score_of
    fits = fits or (lambda knobs: expect(knobs).fits)
    answer: Trial | None = None
    # The cell of the winner first: what it gives spares most of the others.
    limits = [(inf if winner in cell else max(map(limit, cell)), cell) for cell in space.cells]
    for most, cell in sorted(limits, key=lambda pair: -pair[0]):
        best = 0.0 if answer is None else score_of(answer)
        if most <= best:
            break
        if is_bounded_by is not None and best and len(cell) == 1 and is_bounded_by(cell[0], best):
            continue
        # As if all smaller batches fit where a batch does.
        n_fitting = bisect_left(cell, True, key=lambda knobs: not fits(knobs))
        if n_fitting:
            largest = expect(cell[n_fitting - 1])
            if answer is None or score_of(largest) > score_of(answer):
                answer = largest
    winning = expect(winner)
    if answer is None or not winning.fits:
        return None
    gain_percent = 100.0 * (score_of(winning) / score_of(answer) - 1.0)
    return AutoPipelineAnswer(answer.knobs, answer.samples_per_s, gain_percent)


def measured_answer(summary: StudySummary) -> Trial | None:
    """The answer by the trials of a study; None where they do not show the largest batch size of every cell.

    They show it when the next larger batch size was tried and does not fit, or when it is the largest of the space.
    """
    space = summary.space
    largest_size = max(space["batch_size"]) if space else max(trial.knobs.batch_size for trial in summary.trials)
    tried = {trial.knobs for trial in summary.trials}
    for cell in summary.cells:
        # An untried batch size may be the largest that fits.
        largest = cell.largest.knobs.batch_size if cell.largest else 0
        if cell.first_unfit is None and largest != largest_size:
            return None
        if cell.first_unfit is not None and cell.first_unfit.knobs.batch_size != largest + 1:
            return None
    if space is not None and any(tried.isdisjoint(cell) for cell in space.cells):
        return None
    return max((cell.largest for cell in summary.cells if cell.largest is not None), key=summary.worth)


def asks_auto_pipeline(summary: StudySummary) -> bool:
    """True if comparisons of a study need what auto_pipeline would choose, and it was not found yet."""
    verification, winner = summary.verification, summary.winner
    if winner is None or verification is None or verification.auto_pipeline is not None or summary.space is None:
        return False
    return winner.knobs.session.words.has_auto_pipeline and measured_answer(summary) is None


@reads
def study_comparisons(summary: StudySummary) -> tuple[Comparison, ...]:
    """The winner against simple uses, the next best, the session that was measured in turns and [auto-pipeline].

    Configurations that were measured again are compared by their means, others by their trials.
    """
    if summary.winner is None:
        return ()
    comparisons = [_against_alternative(summary, alternative) for alternative in summary.alternatives]
    verification = summary.verification
    rows = verification.repeated if verification else ()
    others = [row for row in rows[:2] if verification and row != verification.winner and row.name != ONE_SESSION]
    if verification is not None and others:
        comparisons.append(_against_repeated(verification, RUNNER_UP, others[0], _NOTES[verification.verdict]))
    elif len(summary.ranked) > 1:
        comparisons.append(_against_trial(summary, RUNNER_UP, summary.ranked[1], "the next best configuration"))
    else:
        is_all = summary.space is None or len(summary.trials) >= summary.space.n_configurations
        note = "nothing else fits" if is_all else "nothing else that was tried fits"
        comparisons.append(Comparison(RUNNER_UP, None, None, None, note))
    for row in rows:
        if verification and row.name in (THIRD, ONE_SESSION) and row != verification.winner:
            comparisons.append(_against_repeated(verification, row.name, row, "measured in the same turns"))
    if not summary.winner.knobs.session.words.has_auto_pipeline:
        return tuple(comparisons)
    # The answer of [auto-pipeline]: measured when the trials show it, otherwise estimated where that was asked.
    answer = measured_answer(summary)
    estimated = verification.auto_pipeline if verification else None
    if answer is not None:
        note = "the best of the largest batch sizes that fit, the answer of auto_pipeline"
        comparisons.append(_against_trial(summary, GRID_BISECT, answer, note))
    elif estimated is not None:
        speed, gain_percent = Interval(estimated.samples_per_s, None), estimated.gain_percent
        note = f"what Graphcore's auto_pipeline would choose; {_BY_ESTIMATE}"
        comparisons.append(Comparison(GRID_BISECT, estimated.knobs, speed, gain_percent, note, estimated=True))
    return tuple(comparisons)


def with_best_use(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons, of those with simple uses only the one with the best: a baseline that one would really run."""
    others = [comparison for comparison in comparisons if not comparison.is_simple_use]
    uses = [use for use in comparisons if use.is_simple_use and use.gain_percent is not None]
    best = min(uses, key=lambda use: use.gain_percent or 0.0, default=None)
    if best is None:
        return others
    note = "the best of the simple uses"
    if any(use.is_simple_use and use.note == IS_WINNER for use in comparisons):
        note = "the best of the other simple uses"
    if best.estimated:
        note += f"; {_BY_ESTIMATE}"
    return [best._replace(note=note), *others]


def _against_alternative(summary: StudySummary, alternative: Alternative) -> Comparison:
    """The best of a simple use: measured, unless one that was not measured is better by the estimates of both."""
    name, winner, use = alternative.name, summary.winner, use_of(alternative.knobs)
    assert winner is not None
    best = next((trial for trial in summary.ranked if use.has(trial.knobs)), None)
    if best is not None and best.number == winner.number:
        speed = Interval(winner.samples_per_s, None)
        return Comparison(name, winner.knobs, speed, None, IS_WINNER, is_simple_use=True)
    if best is not None and (
        not summary.objective.follows_throughput  # of which no estimate is stored
        or any(trial.knobs == alternative.knobs for trial in summary.trials)
        or max(best.samples_per_s, (1 + UNTRIED_GAIN) * best.estimated_samples_per_s) >= alternative.samples_per_s
    ):
        return _against_trial(summary, name, best, "")._replace(is_simple_use=True)
    slower = [trial for trial in summary.trials if trial.ended_early and use.has(trial.knobs)]
    if slower:
        fastest = max(slower, key=summary.worth)
        return _against_trial(summary, name, fastest, ENDED_EARLY)._replace(is_simple_use=True)
    if not alternative.samples_per_s:
        return Comparison(name, alternative.knobs, None, None, alternative.reason, is_simple_use=True)
    if alternative.at_most:
        note = f"not measured; at most {digits(alternative.samples_per_s, 4)} samples/s, by the whole model"
        return Comparison(name, alternative.knobs, None, None, note, is_simple_use=True)
    speed = Interval(alternative.samples_per_s, None)
    gain_percent = None
    if summary.objective.follows_throughput and winner.estimated_samples_per_s:  # which alone is stored
        other = Trial(alternative.knobs, Status.OK, samples_per_s=alternative.samples_per_s)
        expected = winner.with_values(samples_per_s=winner.estimated_samples_per_s)
        gain_percent = 100.0 * (summary.worth(expected) / summary.worth(other) - 1.0)
    return Comparison(name, alternative.knobs, speed, gain_percent, "", estimated=True, is_simple_use=True)


def _against_repeated(verification: Verification, name: str, other: Repeated, note: str) -> Comparison:
    winner = verification.winner
    if other.speed is None or other.score is None or winner.score is None:
        reason = other.reason.partition("; try")[0]
        return Comparison(name, other.knobs, None, None, f"{note}: {reason}" if note else reason)
    gain_percent = 100.0 * (winner.score.mean / other.score.mean - 1.0)
    if name != RUNNER_UP and not is_distinct(winner, other):
        note = f"{note}; the turns do not tell it from the winner"
    return Comparison(name, other.knobs, other.speed, gain_percent, note)


def _against_trial(summary: StudySummary, name: str, other: Trial, note: str) -> Comparison:
    assert summary.winner is not None
    gain_percent = 100.0 * (summary.worth(summary.winner) / summary.worth(other) - 1.0)
    return Comparison(name, other.knobs, Interval(other.samples_per_s, None), gain_percent, note)
