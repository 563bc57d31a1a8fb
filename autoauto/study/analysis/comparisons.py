"""What one would run without a search: `default_knobs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from autoauto.records.knobs import Knobs, Objective, SearchSpace, Strategy
from autoauto.records.schedule import Order
from autoauto.records.study_summary import (
    CellFindings,
    Comparison,
    Expected,
    Findings,
    Interval,
    Repeated,
    Tried,
    Verdict,
    Verification,
)
from autoauto.records.trial import Outcome
from autoauto.study.analysis.verification import DEFAULT, RUNNER_UP
from autoauto.study.methods.grid_bisect import grid_bisect
from autoauto.study.methods.protocol import Tried, drive
from autoauto.study.objectives import objective_value, score
from autoauto.study.store.database import reads
from autoauto.study.store.study import SPACE, read_space

MEMORY_PROPORTION = 0.6  # Poplar's own default
BATCH_SIZE = 8


def default_knobs(space: SearchSpace, real: bool) -> Knobs:
    """The configuration that a search's winner is compared with.

    One pipeline of as many devices as the search may use, Poplar's default memory proportion, and the largest batch
    size up to 8 that the search may use (its smallest when all are larger); of everything else the first value of the
    space. On real devices, where a pipeline is not what one would begin with, one device that may use all its memory.
    """
    small = [size for size in space.batch_size if size <= BATCH_SIZE]
    batch_size = max(small, default=space.batch_size[0])
    if real:
        return Knobs(1, 1.0, batch_size)
    n_ipu = max(space.n_ipu)
    if Strategy.PIPELINE not in space.strategy:
        order = Order.SEQUENTIAL if space.training else Order.INFERENCE
        rest = (order, space.recompute[0], space.steps[0], Strategy.PHASED)
        return Knobs(n_ipu, MEMORY_PROPORTION, batch_size, *rest)
    rest_of_pipeline = (space.schedule[0], space.recompute[0], space.n_micro_batches[0])
    return Knobs(n_ipu, MEMORY_PROPORTION, batch_size, *rest_of_pipeline)


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


GRID_BISECT = "grid-bisect"
_NOTES = {
    Verdict.CLEAR: "the next best configuration",
    Verdict.TIE: "a tie within the interval; the simpler one wins",
    Verdict.UNSURE: "the turns scatter too much to tell; try more --repeats",
}


@reads
def study_comparisons(found: Findings) -> tuple[Comparison, ...]:
    """The winner against the next best, the default configuration and the seed's answer, as far as the study tells.

    What was measured again is compared by its means, the rest by its trials.
    """
    return tuple(_comparisons(found)) if found.winner else ()


def _comparisons(found: Findings) -> Iterator[Comparison]:
    told = found.verification
    others = [one for one in told.repeated[:2] if one != told.winner and one.name != DEFAULT] if told else []
    second = found.ranked[1] if len(found.ranked) > 1 else None
    if told is not None and others:
        yield _against_repeated(told, RUNNER_UP, others[0], _NOTES[told.verdict])
    elif second is None:
        yield Comparison(RUNNER_UP, None, None, None, "nothing else fits")
    else:
        yield _against(found, RUNNER_UP, second, "the next best configuration")
    yield _default(told, found.of_several)
    yield _seed(found)


def _default(told: Verification | None, several: bool) -> Comparison:
    """The default configuration; by `several` objectives none is the best, so that nothing is held against it."""
    if told is None:
        how = "measures it for one objective only" if several else "measures it unless --repeats is 0"
        return Comparison(DEFAULT, None, None, None, f"not measured; `autoauto search` {how}")
    default = told.named(DEFAULT)
    if default is None:
        same = "winner" if len(told.repeated) < 2 else "winner or the runner-up"
        return Comparison(DEFAULT, None, None, None, f"is the {same}")
    return _against_repeated(told, DEFAULT, default, default.what)


def _against_repeated(told: Verification, name: str, other: Repeated, note: str) -> Comparison:
    if other.speed is None or other.score is None or told.winner.score is None:
        reason = other.reason.partition("; try")[0]
        return Comparison(name, other.knobs, None, None, f"{note}: {reason}" if note else reason)
    gain = 100.0 * (told.winner.score.mean / other.score.mean - 1.0)
    return Comparison(name, other.knobs, other.speed, gain, note)


def _seed(found: Findings) -> Comparison:
    """The seed's answer: measured where the trials tell it, else by the estimate."""
    answer, note = seed_answer(found)
    if answer is not None:
        return _against(found, GRID_BISECT, answer, note)
    expected = found.verification.seed if found.verification else None
    if expected is None:
        return Comparison(GRID_BISECT, None, None, None, note)
    speed = Interval(expected.samples_per_s, None)
    said = "the seed's answer and this one, both estimated"
    return Comparison(GRID_BISECT, expected.knobs, speed, expected.gain_percent, said, estimated=True)


def _against(found: Findings, name: str, other: Tried, note: str) -> Comparison:
    assert found.winner is not None
    gain = 100.0 * (found.worth(found.winner.tried) / found.worth(other) - 1.0)
    return Comparison(name, other.knobs, Interval(other.samples_per_s, None), gain, note)


def seed_answer(found: Findings) -> tuple[Tried | None, str]:
    """The configuration that the seed's search ends on, if the trials tell, and a note.

    The seed bisects every cell for its largest batch size that fits, and takes the best of those (seed 001,
    `search_for_max_throughput`). A cell's is known when the next larger batch size was tried and does not fit, or
    when it is the largest that was searched.
    """
    told = found.attributes.get(SPACE)
    space = None if told is None else read_space(told)
    most = max(space.batch_size) if space else max(tried.knobs.batch_size for tried in found.tried)
    n_open = sum(not _bracketed(cell, most) for cell in found.cells)
    if space is not None:
        n_open += sum(not any(tried.knobs in cell for tried in found.tried) for cell in space.cells)
    if n_open:
        n_cells = max(len(found.cells), len(space.cells) if space else 0)
        return None, f"the trials do not tell the largest batch size of {n_open} of {n_cells} cells"
    ends = [cell.largest for cell in found.cells if cell.largest is not None]
    return max(ends, key=found.worth), "the best of every cell's largest batch size, the seed's answer"


def _bracketed(cell: CellFindings, most: int) -> bool:
    """Whether no untried batch size could be the largest that fits."""
    largest = cell.largest.knobs.batch_size if cell.largest else 0
    if cell.first_unfit is None:
        return largest == most
    return cell.first_unfit.knobs.batch_size == largest + 1
