"""The winner of a study against what one would have run without the search."""

from __future__ import annotations

from collections.abc import Iterator

from autoauto.records.findings import CellFindings, Comparison, Findings, Tried
from autoauto.records.repeats import Interval, Repeated, Verdict, Verification
from autoauto.search.resumed import SPACE, read_space
from autoauto.search.storage import reads
from autoauto.search.verify import DEFAULT, RUNNER_UP

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
