"""The worth of each choice of the winner, by forecasts in which one knob has another value (`worth_of_choices`).

    winner   engine a, group of 2, 4 replicas, batch 152        9,692
    other    engine b, group of 2, 4 replicas, batch 112        0.97     the knob, and what follows from it:
    other    engine a, group of 1, 8 replicas, batch 40         0.70     replicas and batch size are the best for it

A knob that no configuration can have alone takes along the fewest others. Of values that the search did not have, those
of words are shown where they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, log
from typing import Any, NamedTuple

from autoauto.evaluate.serving.margins import EngineChoice, are_tied, probability_better
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import KnobChoice
from autoauto.space.trial import Status, Trial

_COUNTS = ("replicas", "batch_size")
"""Where another knob has another value, these have their best values for it."""
_N_NEAR = 2
"""Numbers that are shown below and above that of the winner."""

Cell = Sequence[Knobs]


class Forecasts(NamedTuple):
    """Functions that forecast configurations.

    Attributes:
        of_cell: trials of configurations that differ in their batch size alone, without plans.
        of_one: with the reason why it does not fit.
        objective: by which trials are compared.
    """

    of_cell: Callable[[Cell], Sequence[Trial]]
    of_one: Callable[[Knobs], Trial]
    objective: Objective

    def best(self, cells: Sequence[Cell]) -> Trial:
        """The best that fits, or the one that is nearest to fitting, with its reason."""
        trials = [trial for cell in cells for trial in self.of_cell(cell)]
        fitting = [trial for trial in trials if trial.fits]
        if fitting:
            return max(fitting, key=self.objective.worth)
        return self.of_one(min(trials, key=_distance).knobs)


def _distance(trial: Trial) -> tuple[bool, bool, float, float]:
    """Smaller for what is nearer to fitting: what runs, then what lacks less memory."""
    is_unsupported = trial.status is Status.UNSUPPORTED
    return is_unsupported, not trial.runs, max(trial.violation, 0.0), trial.excess_bytes or inf


def worth_of_choices(space: SearchSpace, forecasts: Forecasts, winner: Knobs) -> tuple[KnobChoice, ...]:
    """Every other value of every knob of the winner, with what it would give by forecast."""
    expected = forecasts.of_one(winner)
    if not expected.fits:
        return ()
    worth = forecasts.objective.worth(expected)
    choices: list[KnobChoice] = []
    for name, value, cells, is_searched in _others(space, winner):
        best = forecasts.best(cells)
        # Replicas may follow from groups, and groups from replicas.
        if best.knobs in [choice.knobs for choice in choices]:
            continue
        if best.fits:
            ratio = forecasts.objective.worth(best) / worth
            p_worse = None
            if forecasts.objective.follows_throughput:  # errors of ratios were measured of throughput alone
                p_worse = probability_better(-log(ratio), EngineChoice.of(winner), EngineChoice.of(best.knobs))
            is_tie = p_worse is not None and are_tied(log(ratio), EngineChoice.of(best.knobs), EngineChoice.of(winner))
            speed = best.samples_per_s
            choices.append(KnobChoice(name, value, best.knobs, speed, ratio, "", is_searched, p_worse, is_tie))
        elif is_searched:
            choices.append(KnobChoice(name, value, best.knobs, 0.0, None, best.reason, is_searched))
    return tuple(choices)


def doubtful(choices: Sequence[KnobChoice], n_most: int) -> list[Knobs]:
    """The choices that may well be better than the winner: those that were searched, with ratios nearest to 1."""
    known = [choice for choice in choices if choice.ratio and choice.is_searched]
    nearest = sorted(known, key=lambda choice: abs(log(choice.ratio or 1.0)))
    return [choice.knobs for choice in nearest[:n_most]]


def _others(space: SearchSpace, winner: Knobs) -> Iterator[tuple[str, Any, Sequence[Cell], bool]]:
    """Names of knobs, other values, the configurations that have them, and whether they were searched."""
    every = [(cell[0].values, cell) for cell in space.cells if isinstance(cell[0].mode, Generation)]
    for knob in (*winner.session.knobs, *Knobs.knobs):
        own = winner.values[knob.name]
        if knob.name == "batch_size":
            like = _nearest(every, winner, knob.name)
            sizes = {knobs.batch_size for cell in like for knobs in cell}
            half = max((size for size in sizes if 2 * size <= own), default=None)
            double = min((size for size in sizes if size >= 2 * own), default=None)
            for size in (half, double):
                if size is not None:
                    others = [[knobs for knobs in cell if knobs.batch_size == size] for cell in like]
                    yield knob.name, size, others, True
            continue
        by_value: dict[Any, list[tuple[Mapping[str, Any], Cell]]] = {}
        for values, cell in every:
            if knob.name in values:
                by_value.setdefault(values[knob.name], []).append((values, cell))
        for value in _near(set(by_value), own):
            yield knob.name, value, _nearest(by_value[value], winner, knob.name), True
        if knob.domain.kind is str:
            like = _nearest(by_value.get(own, []), winner, knob.name)
            for word in knob.domain.words:
                if word not in by_value:
                    other = [[knobs.with_values(**{knob.name: word}) for knobs in cell] for cell in like]
                    yield knob.name, word, other, False


def _near(values: set[Any], own: Any) -> list[Any]:
    """Other values; of numbers the next below and above.

    >>> _near({1, 2, 4, 8, 16, 32}, 4), _near({1, 2, 4, 8}, 8), _near({"a", "c", "b"}, "b")
    ([1, 2, 8, 16], [2, 4], ['a', 'c'])
    """
    others = sorted(values - {own}, key=lambda value: (isinstance(value, str), value))
    if isinstance(own, str):
        return others
    below = [value for value in others if value < own]
    return below[-_N_NEAR:] + [value for value in others if value > own][:_N_NEAR]


def _nearest(every: Sequence[tuple[Mapping[str, Any], Cell]], winner: Knobs, name: str) -> list[Cell]:
    """The cells that differ from the winner in the fewest knobs beside this one and those that follow."""
    free = {name, "batch_size"} if name in _COUNTS else {name, *_COUNTS}
    values = {other: value for other, value in winner.values.items() if other not in free}
    by_difference: dict[int, list[Cell]] = {}
    for own, cell in every:
        n_others = sum(own.get(other) != value for other, value in values.items())
        by_difference.setdefault(n_others, []).append(cell)
    return by_difference[min(by_difference)] if by_difference else []
