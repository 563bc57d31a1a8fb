"""Factors by non-negative least squares, `fit`, and intervals around their predictions, `prediction_interval`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import ceil, exp, floor, log, sqrt
from statistics import mean, median, stdev
from typing import NamedTuple

import numpy as np

from autoauto.records.costs.correction import (
    PLAIN_SUM,
    Correction,
    PredictionInterval,
    RangeExample,
    RangeFeature,
    parent_class,
)
from autoauto.records.units import BoolArray, FloatArray

LEVEL = 0.95  # probability that a value lies below the upper end of its interval; the same for the lower end
STUDENT_QUANTILES = (
    *(6.313751514675037, 2.9199855803537242, 2.3533634348018233, 2.1318467863266495, 2.0150483733330233),
    *(1.9431802805153042, 1.8945786050900062, 1.8595480375308973, 1.833112932656237, 1.8124611228116756),
    *(1.7958848187040433, 1.782287555649319, 1.7709333959868725, 1.761310135774891, 1.753050355692572),
    *(1.7458836762762495, 1.7396067260750725),
)
"""Of Student's distribution with 1 to 17 degrees of freedom, the value below which `LEVEL` lies [student]. A table,
since SciPy, which has the function, takes 0.3 s to import."""
MAX_FACTOR = 4.0  # bound on the ends of an interval, so that two wild examples cannot rule out every plan
PRIOR: dict[str, float] = {"": 1.0, RangeFeature.WEIGHTS: 0.0, RangeFeature.MOVED: 0.5, RangeFeature.ENTRY: 0.3}
"""Factors to which the fit shrinks: without examples a layer costs in a model what it costs alone. Those of `MOVED` and
`ENTRY` are the middle of the factors of four convolutional networks (`studies/estimator_accuracy.py --target host`)."""
UNFITTED: dict[str, float] = {RangeFeature.WEIGHTS: 0.0, RangeFeature.ENTRY: 0.0}
"""Features that add cycles to those of the classes, so they count only if they were fitted."""
SHRINKAGES = (0.05, 0.2, 1.0)
"""Weights to try for the row that shrinks a class to its parent, see `_solve`; the row of an example has weight 1."""
N_FOLDS = 5
MIN_MEMORY_ERROR = 0.005
"""A category of memory is corrected only if the errors of its plain sums exceed this share of all memory."""
MAX_CORRECTED_NEED = 0.99
"""Corrected sums are used only if, at the upper end of the interval, they need at most this share of what plain sums
need there."""
_MAX_ENTRIES = 3
"""Of a column into a least squares solution, on average."""
Factors = Mapping[str, float]
"""Factor by class of layer or `RangeFeature`. No class has the name of a feature: operators begin with a capital."""


class TrainingRow(NamedTuple):
    """One example for the fit of one quantity: forward cycles, backward cycles, or the bytes of one category.

    Attributes:
        alone: the costs of single layers, added up by class, and the other features; bytes have the class "" only.
        fold: the number of its fold for cross-validation.
    """

    alone: Mapping[str, int]
    whole: int
    fold: int

    @property
    def scale(self) -> float:
        """The cost by which errors are divided to make them relative."""
        return float(self.whole or sum(self.alone.values()) or 1)


class Fitted(NamedTuple):
    """Factors, and the prediction for every row by factors that were fitted without its fold."""

    factors: Factors
    predictions: list[float]


def fit(examples: Sequence[RangeExample]) -> Correction:
    """The correction that fits examples best; `PLAIN_SUM` for fewer than two.

    Cycles, forward and backward, have a factor by class of layer and one by batch size; memory has one by category
    where the errors of plain sums exceed 0.5 %. The factors of classes and categories minimise squared relative errors
    and are not negative. A class with few examples is shrunk to the factor of its parent, a class without a parent to
    its `PRIOR`. The prediction intervals are cross-conformal (`prediction_interval`): examples are predicted by a fit
    to examples of other batch sizes, where there are any, since estimates are needed mostly for other batch sizes.
    """
    if len(examples) < 2:
        return PLAIN_SUM
    forward_rows, backward_rows = [], []
    for example, fold in zip(examples, _folds(examples), strict=True):
        alone = dict(example.forward_cycles)
        alone.update((str(feature), n) for feature, n in example.feature_cycles.items())
        forward_rows.append(TrainingRow(alone, example.whole.forward_cycles, fold))
        backward_rows.append(TrainingRow(example.backward_cycles, example.whole.backward_cycles, fold))
    forward, backward = fit_factors(forward_rows), fit_factors(backward_rows)
    cycles = [example.whole.forward_cycles + example.whole.backward_cycles for example in examples]
    ratios = []
    for row, backward_row, n_cycles in zip(forward_rows, backward_rows, cycles, strict=True):
        estimate = predicted(row.alone, forward.factors) + predicted(backward_row.alone, backward.factors)
        ratios.append(n_cycles / max(estimate, 1.0))
    batch_sizes = by_batch_size([example.batch_size for example in examples], ratios)
    # The interval is for batch sizes without examples, so each prediction is made without the factor of its own size.
    predictions = _sums([forward, backward])
    for index, example in enumerate(examples):
        others = tuple(pair for pair in batch_sizes if pair[0] != example.batch_size)
        predictions[index] *= Correction(batch_sizes=others).at_batch_size(example.batch_size)
    memory, memory_interval = _fit_memory(examples)
    by_class = dict(forward.factors)
    features = {feature: by_class.pop(feature) for feature in RangeFeature if feature in by_class}
    return Correction(
        by_class,
        backward.factors,
        features,
        memory,
        batch_sizes,
        _interval(cycles, predictions),
        memory_interval,
        len(examples),
    )


def by_batch_size(sizes: Sequence[int], ratios: Sequence[float]) -> tuple[tuple[int, float], ...]:
    """A factor for every batch size: the median of `ratios`, measured over predicted, with its logarithm shrunk to 0.

    The shrinkage weighs as much as one example. Empty for a single batch size, whose factor is in those of the classes.

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


def fit_factors(rows: Sequence[TrainingRow]) -> Fitted:
    """Non-negative factors by class, with the shrinkage that predicts unseen rows best."""
    if not any(row.whole for row in rows):
        return Fitted({}, [0.0] * len(rows))
    predictions = {shrinkage: _cross_predict(rows, shrinkage) for shrinkage in SHRINKAGES}

    def error(shrinkage: float) -> float:
        return sum(abs(row.whole - n) / row.scale for row, n in zip(rows, predictions[shrinkage], strict=True))

    best = min(SHRINKAGES, key=error)
    return Fitted(_solve(rows, best), predictions[best])


def factor(factors: Factors, feature: str) -> float:
    """The factor of a class or feature, or of its nearest ancestor that has one; else that of `UNFITTED`, else 1.

    >>> factor({"": 0.9, "Relu": 0.1}, "Relu after Conv"), factor({"": 0.9}, "Conv"), factor({}, "Conv")
    (0.1, 0.9, 1.0)
    """
    name: str | None = feature
    while name is not None and name not in factors:
        name = _parent(name)
    if name is None:
        return UNFITTED.get(feature, 1.0)
    return factors[name]


def predicted(alone: Mapping[str, int], factors: Factors) -> float:
    """The cost of a range: `alone`, the costs of its layers by class and its other features, times the factors."""
    return sum(amount * factor(factors, name) for name, amount in alone.items())


def prediction_interval(ratios: Sequence[float]) -> PredictionInterval:
    """Factors on a prediction, with a probability of 95 % each that the measured value is above `low` and below `high`.

    `ratios` are measured over predicted values, each predicted by a fit without it. From 19 ratios on the ends are
    conformal quantiles: the next ratio is at most the k-th smallest of n with a probability of k / (n + 1), for any
    distribution of exchangeable ratios [conformal]; the guarantee is approximate here, since it is cross-conformal.
    Fewer than 19 ratios have no such quantile of 95 %, so their logarithms are assumed to be normal, with a prediction
    interval of Student's distribution [student]. The interval always contains a perfect prediction.

    >>> prediction_interval([1.0] * 38 + [1.1])
    PredictionInterval(low=1.0, high=1.0)
    """
    if len(ratios) < 2:
        return PredictionInterval(1.0, 1.0)
    rank = ceil((len(ratios) + 1) * LEVEL)
    if rank <= len(ratios):
        ordered = sorted(ratios)
        low, high = ordered[floor((len(ratios) + 1) * (1 - LEVEL)) - 1], ordered[rank - 1]
    else:
        n = len(ratios)
        logs = [log(ratio) for ratio in ratios]
        reach = STUDENT_QUANTILES[n - 2] * stdev(logs) * sqrt(1 + 1 / n)
        low, high = exp(mean(logs) - reach), exp(mean(logs) + reach)
    return PredictionInterval(max(min(low, 1.0), 1 / MAX_FACTOR), min(max(high, 1.0), MAX_FACTOR))


def _folds(examples: Sequence[RangeExample]) -> list[int]:
    """The fold of every example: one for each batch size, at most 5; in rotation when all have one batch size."""
    sizes = sorted({example.batch_size for example in examples})
    if len(sizes) == 1:
        return [index % N_FOLDS for index in range(len(examples))]
    return [sizes.index(example.batch_size) % N_FOLDS for example in examples]


def _cross_predict(rows: Sequence[TrainingRow], shrinkage: float) -> list[float]:
    fits: dict[int, Factors] = {}
    for fold in {row.fold for row in rows}:
        fits[fold] = _solve([row for row in rows if row.fold != fold], shrinkage)
    return [predicted(row.alone, fits[row.fold]) for row in rows]


def _solve(rows: Sequence[TrainingRow], shrinkage: float) -> Factors:
    """Factors by non-negative least squares of relative errors, with an extra row for every class.

    The extra row shrinks the factor of the class to the factor of its parent, with the weight s, the `shrinkage`:

    Conv   Relu   Relu after Conv   ""        target
    0.6     .          0.4           .         1         an example: shares of a range, relative to its cost
    .      -s           s            .         0         "Relu after Conv" is near "Relu"
    .       s           .           -s         0         "Relu" is near ""
    .       .           .            s        s x 1      "" is near its prior
    """
    every = {""}
    for name in chain.from_iterable(row.alone for row in rows):
        ancestor: str | None = name
        while ancestor is not None:
            every.add(ancestor)
            ancestor = _parent(ancestor)
    classes = sorted(every)
    column = {name: index for index, name in enumerate(classes)}
    matrix = np.zeros((len(rows) + len(classes), len(classes)))
    targets = np.zeros(len(rows) + len(classes))
    for i, row in enumerate(rows):
        targets[i] = row.whole / row.scale
        for name, amount in row.alone.items():
            matrix[i, column[name]] = amount / row.scale
    for i, name in enumerate(classes, start=len(rows)):
        matrix[i, column[name]] = shrinkage
        above = _parent(name)
        if above is None:
            targets[i] = shrinkage * PRIOR.get(name, 0.0)
        else:
            matrix[i, column[above]] = -shrinkage
    return dict(zip(classes, non_negative(matrix, targets).tolist(), strict=True))


def _parent(feature: str) -> str | None:
    """The class to whose factor the factor of a class is shrunk; None for a class or feature that has a prior."""
    if feature in PRIOR:
        return None
    return parent_class(feature)


def _fit_memory(examples: Sequence[RangeExample]) -> tuple[Factors, PredictionInterval]:
    """Factors by category of memory, and the prediction interval over all categories.

    Planning fills memory to the upper end of the interval, so a correction is used only if it lowers that end in total
    (`MAX_CORRECTED_NEED`). A correction is not used either if `high` rises: then a few ranges that need much less than
    their sums have lowered the predictions of all, and ranges that need as much as their sums are underestimated.
    """
    whole = [sum(example.whole.memory_bytes.values()) for example in examples]
    folds = _folds(examples)
    names: set[str] = set()
    for example in examples:
        names.update(example.memory_bytes, example.whole.memory_bytes)
    plain: dict[str, Fitted] = {}
    fitted: dict[str, Fitted] = {}
    for name in sorted(names):
        rows = []
        for example, fold in zip(examples, folds, strict=True):
            alone = {"": example.memory_bytes.get(name, 0)}
            rows.append(TrainingRow(alone, example.whole.memory_bytes.get(name, 0), fold))
        plain[name] = Fitted({}, [float(row.alone[""]) for row in rows])
        if sum(abs(row.whole - row.alone[""]) for row in rows) > MIN_MEMORY_ERROR * sum(whole):
            fitted[name] = fit_factors(rows)
    plain_sums, corrected_sums = _sums(plain.values()), _sums((plain | fitted).values())
    plain_interval, interval = _interval(whole, plain_sums), _interval(whole, corrected_sums)
    plain_need, need = plain_interval.high * sum(plain_sums), interval.high * sum(corrected_sums)
    if need > MAX_CORRECTED_NEED * plain_need or interval.high > plain_interval.high:
        return {}, plain_interval
    # Without a factor no whole range needs any memory of the category, though its layers alone do.
    return {name: part.factors.get("", 0.0) for name, part in fitted.items()}, interval


def _sums(parts: Iterable[Fitted]) -> list[float]:
    by_part = [part.predictions for part in parts]
    return list(map(sum, zip(*by_part, strict=True)))


def _interval(whole: Sequence[int], predictions: Sequence[float]) -> PredictionInterval:
    pairs = zip(whole, predictions, strict=True)
    return prediction_interval([value / max(prediction, 1.0) for value, prediction in pairs if value > 0])


def non_negative(matrix: FloatArray, target: FloatArray) -> FloatArray:
    """The x >= 0 for which |matrix x - target| is smallest [lawson-hanson].

    Columns enter one at a time, that along which the error falls most steeply first; those that are in have the plain
    least squares. Where these would make an x negative, x moves towards them until one is 0, which leaves:

        free    plain least squares     x
        a       a  3                    3
        a b     a  2   b  4             2  4
        a b c   a -1   b  3   c 3       0  3.3  2        two thirds of the way; a leaves, b and c are solved for again

    Ours, since SciPy's takes 0.3 s to import, a tenth of a search. The columns must be independent.
    """
    x = np.zeros(matrix.shape[1])
    is_in = np.zeros(len(x), dtype=np.bool_)
    # Slopes as small as this are of rounding.
    tolerance = 10 * max(matrix.shape) * np.finfo(np.float64).eps * np.abs(matrix).sum(axis=0).max()
    for _ in range(_MAX_ENTRIES * len(x)):
        slopes = np.where(is_in, -np.inf, matrix.T @ (target - matrix @ x))
        if slopes.max() <= tolerance:
            return x  # no column that is out lowers the error
        is_in[slopes.argmax()] = True
        while (plain := _plain(matrix, target, is_in)).min() < 0.0:
            # As far towards the plain solution as the first x reaches 0; its column leaves.
            falls = plain < 0.0
            x += (x[falls] / (x[falls] - plain[falls])).min() * (plain - x)
            is_in &= x > tolerance
            x[~is_in] = 0.0
        x = plain
    raise ArithmeticError("least squares do not converge: columns depend on each other")


def _plain(matrix: FloatArray, target: FloatArray, is_in: BoolArray) -> FloatArray:
    plain = np.zeros(matrix.shape[1])
    plain[is_in] = np.linalg.lstsq(matrix[:, is_in], target)[0]
    return plain
