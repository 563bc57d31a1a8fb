"""Where the seed's search would end if everything came out as estimated: `expected_answer`."""

from __future__ import annotations

from collections.abc import Callable

from autoauto.records.repeats import Expected
from autoauto.records.trial import Knobs, Objective, Outcome, SearchSpace
from autoauto.search.grid_bisect import grid_bisect
from autoauto.search.objective import objective_value, score
from autoauto.search.steps import Tried, drive


def expected_answer(
    space: SearchSpace, expect: Callable[[Knobs], Outcome], objective: Objective, winner: Knobs
) -> Expected | None:
    """The best of every cell's largest batch size that fits, by the estimate; None when nothing fits.

    The seed bisects every cell and takes the best of where that ends (seed 001, `search_for_max_throughput`). Both its
    answer and the winner are told by the estimate here: nothing is measured.

    Args:
        space: what was searched.
        expect: what the estimate says of a configuration.
        objective: of the search.
        winner: the configuration that it is compared with.
    """
    fits: dict[Knobs, Outcome] = {}

    def answer_by_estimate(knobs: Knobs) -> Tried:
        outcome = expect(knobs)
        if outcome.fits:
            fits[knobs] = outcome
        return Tried(1.0 if outcome.fits else None, outcome.fits)

    drive(grid_bisect(space), answer_by_estimate)
    ends = [ending for cell in space.cells for ending in [fits[knobs] for knobs in cell if knobs in fits][-1:]]

    def worth(outcome: Outcome) -> float:
        return score(objective, objective_value(objective, outcome))

    answer, won = max(ends, key=worth, default=None), expect(winner)
    if answer is None or not won.fits:
        return None
    return Expected(answer.knobs, answer.samples_per_s, 100.0 * (worth(won) / worth(answer) - 1.0))
