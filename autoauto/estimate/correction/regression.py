"""How far measured values lie from predictions: `band`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, exp, floor, log, sqrt
from statistics import mean, median, stdev
from typing import NamedTuple

from autoauto.records.correction import ENTERED, MOVED, PLAIN_SUM, WEIGHTS, Band, Correction, RangeExample, parent

LEVEL = 0.95
WIDEST = 4.0  # a band beyond this factor says nothing; it keeps two wild examples from ruling out every plan


def band(ratios: Sequence[float]) -> Band:
    """Factors on a prediction that a measured value stays above, and below, 95 times in 100 each.

    `ratios` are measured over predicted, each predicted without it. From 19 on the edges are conformal quantiles: of n
    ratios, the k-th smallest is not exceeded by the next one with a probability of k / (n + 1), whatever their
    distribution, when all come alike (Vovk et al., "Algorithmic Learning in a Random World"; cross-conformal, so that
    holds nearly). Fewer cannot tell 95 in 100 apart, so their logarithms are taken to be normal: Student's prediction
    interval. The band never leaves out a perfect prediction.

    >>> band([1.0] * 38 + [1.1])
    Band(low=1.0, high=1.0)
    """
    if len(ratios) < 2:
        return Band(1.0, 1.0)
    rank = ceil((len(ratios) + 1) * LEVEL)
    if rank <= len(ratios):
        ordered = sorted(ratios)
        low, high = ordered[floor((len(ratios) + 1) * (1 - LEVEL)) - 1], ordered[rank - 1]
    else:
        low, high = _student([log(ratio) for ratio in ratios])
    return Band(max(min(low, 1.0), 1 / WIDEST), min(max(high, 1.0), WIDEST))


def _student(logs: Sequence[float]) -> tuple[float, float]:
    from scipy.special import stdtrit

    n = len(logs)
    reach = float(stdtrit(n - 1, LEVEL)) * stdev(logs) * sqrt(1 + 1 / n)
    return exp(mean(logs) - reach), exp(mean(logs) + reach)


USUAL = {"": 1.0, WEIGHTS: 0.0, MOVED: 0.5, ENTERED: 0.3}
"""Factors where examples tell nothing: a layer costs what it costs alone; the other two of what is moved lie in the
middle of those of four convolutional networks (`studies/estimator_accuracy.py --target host`)."""
PULLS = (0.05, 0.2, 1.0)  # how strongly a class is drawn to its parent, relative to one example
N_FOLDS = 5
NEGLIGIBLE = 0.005  # of all memory: a category that sums miss by less is left alone
WORTH = 0.99  # of the memory that plain sums need up to the band's upper edge: corrections that save less are left
Factors = Mapping[str, float]


class Row(NamedTuple):
    """One example of one quantity.

    Attributes:
        alone: what the layers take alone, added up by class.
        whole: what the range takes.
        fold: with which other rows it is predicted by the rest.
    """

    alone: Mapping[str, int]
    whole: int
    fold: int

    @property
    def scale(self) -> float:
        """What its errors are relative to."""
        return float(self.whole or sum(self.alone.values()) or 1)


class Fitted(NamedTuple):
    """Factors by class, and what every row is predicted by factors that were fitted without its fold."""

    factors: Factors
    guesses: list[float]


def fit(examples: Sequence[RangeExample]) -> Correction:
    """The correction that examples teach; fewer than two teach nothing.

    Cycles, forward and backward, have a factor by class of layer and one by batch size, memory one by category where
    sums miss by more than 0.5 % of it. The factors of classes and categories are non-negative least squares of relative
    errors, in which a class that few examples tell of keeps the factor of its parent, and what has none its `USUAL`
    one. The bands are cross-conformal (`band`): examples are predicted by a fit to those of other batch sizes, where
    there are any, since an estimate is mostly asked for another.
    """
    if len(examples) < 2:
        return PLAIN_SUM
    folds, wholes = _folds(examples), [example.whole for example in examples]
    forward = fit_factors(_rows([e.forward_cycles for e in examples], [w.forward_cycles for w in wholes], folds))
    backward = fit_factors(_rows([e.backward_cycles for e in examples], [w.backward_cycles for w in wholes], folds))
    cycles = [whole.forward_cycles + whole.backward_cycles for whole in wholes]
    sizes, factors = [example.batch_size for example in examples], (forward.factors, backward.factors)
    batch_sizes = by_batch_size(
        sizes, [n / max(_cycles(e, *factors), 1.0) for n, e in zip(cycles, examples, strict=True)]
    )
    unseen = {size: Correction(batch_sizes=tuple(p for p in batch_sizes if p[0] != size)) for size in sizes}
    guesses = zip(_sums([forward, backward]), sizes, strict=True)
    cycles_band = _band(cycles, [guess * unseen[size].at_batch_size(size) for guess, size in guesses])
    memory, memory_band = _fit_memory(examples, folds)
    return Correction(*factors, memory, batch_sizes, cycles_band, memory_band, len(examples))


def by_batch_size(sizes: Sequence[int], ratios: Sequence[float]) -> tuple[tuple[int, float], ...]:
    """A factor for every batch size: the median of what measured is of predicted, drawn to 1 as if by one example more.

    None for one batch size alone, whose factor the classes have.

    >>> [(size, round(factor, 3)) for size, factor in by_batch_size([1, 4, 4, 4], [1.0, 0.9, 0.8, 0.8])]
    [(1, 1.0), (4, 0.846)]
    """
    known: dict[int, list[float]] = {}
    for size, ratio in zip(sizes, ratios, strict=True):
        if ratio > 0:
            known.setdefault(size, []).append(log(ratio))
    if len(known) < 2:
        return ()
    return tuple((size, exp(median(logs) * len(logs) / (len(logs) + 1))) for size, logs in sorted(known.items()))


def fit_factors(rows: Sequence[Row]) -> Fitted:
    """Non-negative factors by class; how strongly they are drawn together is what predicts unseen rows best."""
    if not any(row.whole for row in rows):
        return Fitted({}, [0.0] * len(rows))
    guesses = {pull: _guess(rows, pull) for pull in PULLS}

    def error(pull: float) -> float:
        return sum(abs(row.whole - guess) / row.scale for row, guess in zip(rows, guesses[pull], strict=True))

    best = min(PULLS, key=error)
    return Fitted(_solve(rows, best), guesses[best])


def factor(factors: Factors, layer_class: str) -> float:
    """The factor of a class, or of its nearest ancestor that has one; 1 when none has.

    >>> factor({"": 0.9, "Relu": 0.1}, "Relu after Conv"), factor({"": 0.9}, "Conv"), factor({}, "Conv")
    (0.1, 0.9, 1.0)
    """
    name: str | None = layer_class
    while name is not None and name not in factors:
        name = parent(name)
    if name is None:
        return 0.0 if layer_class in (WEIGHTS, ENTERED) else 1.0
    return factors[name]


def predicted(alone: Mapping[str, int], factors: Factors) -> float:
    """What a range takes by the factors."""
    return sum(amount * factor(factors, name) for name, amount in alone.items())


def _cycles(example: RangeExample, forward: Factors, backward: Factors) -> float:
    return predicted(example.forward_cycles, forward) + predicted(example.backward_cycles, backward)


def _rows(alone: Sequence[Mapping[str, int]], whole: Sequence[int], folds: Sequence[int]) -> list[Row]:
    return [Row(*values) for values in zip(alone, whole, folds, strict=True)]


def _folds(examples: Sequence[RangeExample]) -> list[int]:
    """For every example the number of its fold: one a batch size, up to 5; by turns when all have one batch size."""
    sizes = sorted({example.batch_size for example in examples})
    if len(sizes) == 1:
        return [index % N_FOLDS for index in range(len(examples))]
    return [sizes.index(example.batch_size) % N_FOLDS for example in examples]


def _guess(rows: Sequence[Row], pull: float) -> list[float]:
    """What every row is predicted by the rows of other folds."""
    fits = {fold: _solve([row for row in rows if row.fold != fold], pull) for fold in {row.fold for row in rows}}
    return [predicted(row.alone, fits[row.fold]) for row in rows]


def _solve(rows: Sequence[Row], pull: float) -> Factors:
    """Least squares of relative errors, with one row more for every class that draws it to its parent."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline

    classes = _with_ancestors(name for row in rows for name in row.alone)
    told = [{name: amount / row.scale for name, amount in row.alone.items()} for row in rows]
    draws = [_draw(name, pull) for name in classes]
    wanted = [row.whole / row.scale for row in rows] + [pull * USUAL.get(name, 0.0) for name in classes]
    pipeline = make_pipeline(DictVectorizer(sparse=False), LinearRegression(fit_intercept=False, positive=True))
    pipeline.fit([*told, *draws], wanted)
    names = pipeline[0].get_feature_names_out()
    return {str(name): float(value) for name, value in zip(names, pipeline[1].coef_, strict=True)}


def _draw(layer_class: str, pull: float) -> dict[str, float]:
    """Draws a class to its parent; one that has none to a number."""
    above = parent(layer_class)
    return {layer_class: pull} if above is None else {layer_class: pull, above: -pull}


def _with_ancestors(names: Iterable[str]) -> list[str]:
    found: dict[str, None] = {"": None}
    for name in names:
        ancestor: str | None = name
        while ancestor is not None:
            found[ancestor] = None
            ancestor = parent(ancestor)
    return sorted(found)


def _fit_memory(examples: Sequence[RangeExample], folds: Sequence[int]) -> tuple[Factors, Band]:
    """Factors of the categories that need one, and the band; none where plain sums need no more up to its edge.

    None either where the edge lies farther above corrected sums than above plain ones: such a correction lowers most
    ranges, since a few are much smaller than their sums, and leaves others above what is predicted.
    """
    whole = [sum(example.whole.memory_bytes.values()) for example in examples]
    names = sorted({name for e in examples for name in (*e.memory_bytes, *e.whole.memory_bytes)})
    rows = {
        name: _rows(
            [{"": example.memory_bytes.get(name, 0)} for example in examples],
            [example.whole.memory_bytes.get(name, 0) for example in examples],
            folds,
        )
        for name in names
    }
    plain = {name: Fitted({}, [float(row.alone[""]) for row in some]) for name, some in rows.items()}
    missed = {name: sum(abs(row.whole - row.alone[""]) for row in some) for name, some in rows.items()}
    needed = {name: fit_factors(rows[name]) for name in rows if missed[name] > NEGLIGIBLE * sum(whole)}
    ways = [list(parts.values()) for parts in (plain, plain | needed)]
    guesses = [_sums(parts) for parts in ways]
    bands = [_band(whole, guess) for guess in guesses]
    edges = [edge.high * sum(guess) for guess, edge in zip(guesses, bands, strict=True)]
    if edges[1] > WORTH * edges[0] or bands[1].high > bands[0].high:
        return {}, bands[0]
    return {name: fitted.factors[""] for name, fitted in needed.items()}, bands[1]


def _sums(parts: Sequence[Fitted]) -> list[float]:
    """What every row is predicted of a quantity that is the sum of parts."""
    return [sum(guesses) for guesses in zip(*(part.guesses for part in parts), strict=True)]


def _band(whole: Sequence[int], guesses: Sequence[float]) -> Band:
    return band([value / max(guess, 1.0) for value, guess in zip(whole, guesses, strict=True) if value > 0])
