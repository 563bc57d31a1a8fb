"""The answer of the search of [auto-pipeline]: by the estimate, `estimated_answer`, or by trials, `measured_answer`.

That search bisects every cell of the grid for its largest batch size that fits, and takes the best of these. It does
not see that a smaller batch may be faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from autoauto.records.knobs.knobs import Knobs
from autoauto.records.knobs.objectives import Objective
from autoauto.records.knobs.space import SearchSpace
from autoauto.records.trials.study_summary import AutoPipelineAnswer, StudySummary
from autoauto.records.trials.trial import Cell, Trial
from autoauto.study.methods.grid_bisect import largest_feasible
from autoauto.study.methods.registry import GivesNoMore
from autoauto.study.objectives import objective_value, score


def estimated_answer(
    space: SearchSpace,
    expect: Callable[[Knobs], Trial],
    objective: Objective,
    winner: Knobs,
    limit: Callable[[Knobs], float] = lambda _: inf,
    gives_no_more: GivesNoMore | None = None,
) -> AutoPipelineAnswer | None:
    """The answer if all measurements equalled the estimates; None when nothing fits.

    The winner that it is compared with is estimated too; nothing is measured.

    Args:
        space: what was searched.
        expect: the estimated trial of a configuration.
        objective: of the search.
        winner: the best configuration of our search.
        limit: as in `Predictor`; cells that cannot have the answer are not bisected.
        gives_no_more: tells sooner than `expect` that a configuration is no better than the best so far.
    """

    def worth(trial: Trial) -> float:
        return score(objective, objective_value(objective, trial))

    answer: Trial | None = None
    # The cell of the winner first: what it gives spares most of the others.
    limits = [(inf if winner in cell else max(map(limit, cell)), cell) for cell in space.cells]
    for most, cell in sorted(limits, key=lambda pair: -pair[0]):
        best = 0.0 if answer is None else worth(answer)
        if most <= best:
            break
        if gives_no_more is not None and best and len(cell) == 1 and gives_no_more(cell[0], best):
            continue
        largest = _largest_that_fits(cell, expect)
        if largest is not None and (answer is None or worth(largest) > worth(answer)):
            answer = largest
    winning = expect(winner)
    if answer is None or not winning.fits:
        return None
    return AutoPipelineAnswer(answer.knobs, answer.samples_per_s, 100.0 * (worth(winning) / worth(answer) - 1.0))


def _largest_that_fits(cell: Sequence[Knobs], expect: Callable[[Knobs], Trial]) -> Trial | None:
    bisection, fitting = largest_feasible(cell), None
    knobs = next(bisection)
    while True:
        trial = expect(knobs)
        fitting = trial if trial.fits else fitting
        try:
            knobs = bisection.send(trial.fits)
        except StopIteration:
            return fitting


def measured_answer(summary: StudySummary) -> tuple[Trial | None, str]:
    """The answer by the trials of a study, and a note; None when the largest batch size of a cell is not known.

    It is known when the next larger batch size was tried and does not fit, or when it is the largest of the space.
    """
    space = summary.space
    largest_size = max(space.batch_size) if space else max(trial.knobs.batch_size for trial in summary.trials)
    n_unknown = sum(not _is_bracketed(cell, largest_size) for cell in summary.cells)
    if space is not None:
        n_unknown += sum(not any(trial.knobs in cell for trial in summary.trials) for cell in space.cells)
    if n_unknown:
        n_cells = max(len(summary.cells), len(space.cells) if space else 0)
        return None, f"the trials do not show the largest batch size of {n_unknown} of {n_cells} combinations of knobs"
    largest = [cell.largest for cell in summary.cells if cell.largest is not None]
    return max(largest, key=summary.worth), "the best of the largest batch sizes that fit, the answer of auto_pipeline"


def _is_bracketed(cell: Cell, largest_size: int) -> bool:
    """Whether no untried batch size can be the largest that fits."""
    largest = cell.largest.knobs.batch_size if cell.largest else 0
    if cell.first_unfit is None:
        return largest == largest_size
    return cell.first_unfit.knobs.batch_size == largest + 1
