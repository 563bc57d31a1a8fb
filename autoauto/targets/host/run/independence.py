"""Finds out by running a model whether the samples of a micro-batch depend on each other: `SampleProbe`, `dependence`.

If they do, as with batch normalisation in training mode or a mean over the batch, a request that shares a micro-batch
with others, or does not fill it, gets other numbers than it would alone. So one micro-batch runs several times:

    0   a b c d     1   a b c d    again: by how much does rounding change it?
    2   A b C d     3   a B c D    other samples in the other places: the rows of small letters must stay
    4   A B c d     5   a b C D    by every bit of a sample's number, so that each is seen beside others of each
    6   c d a b                    samples in other places: rows must move with them

The other samples differ as much as a model may take: larger numbers, other ids, other lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.layers import Port
from autoauto.records.units import Array, Precision
from autoauto.targets.host.measure.examples import lengths_of

ROUNDING = {Precision.FP32: 1e-5, Precision.TF32: 2e-3, Precision.FP16: 2e-3, Precision.BF16: 1e-2}
"""By how much a row may change, relative to the largest value, if its sample stays in its position, where the same
kernel computes the same numbers."""
MOVED_ROUNDING = {Precision.FP32: 1e-3, Precision.TF32: 2e-2, Precision.FP16: 2e-2, Precision.BF16: 0.1}
"""By how much a row may change if its sample moves to another position, where a kernel may add in another order."""
NOISE_FACTOR = 4.0
"""Changes up to so many times those of a repeated run count as rounding, too."""
LARGER = 4.0
"""The other samples are so many times as large, so that a scale by the largest value of a batch changes."""
MAX_TOGETHER_BYTES = 1 << 28

Batch = Mapping[str, Array]


class BatchTensor(NamedTuple):
    """An input or output of a micro-batch; `axis` is the axis along which samples lie, None if there is none."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    axis: int | None


class Variation:
    """A micro-batch and other samples for its positions; runs are numbered as at the top of this file."""

    def __init__(self, probe: SampleProbe, samples: Batch, others: Batch) -> None:
        self._outputs, self._batch_size, self._precision = probe.outputs, probe.batch_size, probe.precision
        self._axes = {each.name: each.axis for each in probe.inputs}
        self._samples, self._others = samples, others
        self._first: dict[str, Array] = {}
        self._noise: dict[str, float] = {}
        self.n_runs = 3 + 2 * (probe.batch_size - 1).bit_length()
        self._shift = probe.batch_size // 2

    def batch(self, number: int) -> dict[str, Array]:
        """The inputs of a run."""
        return {name: self._arranged(name, number) for name in self._samples}

    def _arranged(self, name: str, number: int) -> Array:
        array, axis = self._samples[name], self._axes[name]
        if axis is None or number < 2:
            return array
        length = array.shape[axis] // self._batch_size
        if number == self.n_runs - 1:
            return np.roll(array, self._shift * length, axis)
        stays = _along(np.repeat(self._stays(number), length), axis, array.ndim)
        return np.where(stays, array, self._others[name])

    def _stays(self, number: int) -> Array:
        """True for samples that a run leaves in their positions: those with, or without, one bit of their number."""
        bit, inverted = divmod(number - 2, 2)
        numbers = np.arange(self._batch_size)
        stays: Array = (numbers >> bit & 1) != inverted
        return stays

    def changed(self, number: int, outputs: Batch) -> str | None:
        """The name of an output that shows that samples depend on each other; run 0 must have been seen first."""
        if number == 0:
            self._first = {each.name: self._rows(each, outputs).copy() for each in self._outputs}
            return None
        return next((each.name for each in self._outputs if self._is_changed(each, number, outputs)), None)

    def _is_changed(self, tensor: BatchTensor, number: int, outputs: Batch) -> bool:
        first, rows = self._first[tensor.name], self._rows(tensor, outputs)
        if number == 1:  # the same inputs again
            self._noise[tensor.name] = _difference(rows, first)
            return False
        if number == self.n_runs - 1:
            limit = MOVED_ROUNDING[self._precision]
            if np.dtype(tensor.dtype).itemsize == 1 and tensor.dtype != "bool":  # quantised: one step
                limit = max(limit, 1.01 / max(np.abs(first.astype(float)).max(initial=0.0), 1.0))
            difference = _difference(np.roll(rows, -self._shift, 0), first)
        else:
            stays, limit = self._stays(number), ROUNDING[self._precision]
            difference = _difference(rows[stays], first[stays])
        return difference > max(limit, NOISE_FACTOR * self._noise[tensor.name])

    def _rows(self, tensor: BatchTensor, outputs: Batch) -> Array:
        assert tensor.axis is not None
        return np.moveaxis(outputs[tensor.name], tensor.axis, 0).reshape(self._batch_size, -1)


def _difference(rows: Array, first: Array) -> float:
    """The largest difference of two arrays, relative to the largest finite value; other truth values differ by 1."""
    if rows.tobytes() == first.tobytes():
        return 0.0
    a, b = rows.astype(np.float64), first.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    largest = np.abs(b[finite]).max(initial=0.0)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0) / (largest or 1.0))


@dataclass(frozen=True, slots=True)
class SampleProbe:
    """The inputs with which a model shows whether samples of a micro-batch depend on each other.

    Attributes:
        inputs, outputs: of the model at the batch size; every one has an axis of samples.
        given: inputs of a micro-batch that the model takes, if there are any.
    """

    inputs: Sequence[BatchTensor]
    outputs: Sequence[BatchTensor]
    batch_size: int
    precision: Precision = Precision.FP32
    given: Batch | None = None

    def variations(self) -> Iterator[Variation]:
        """Variations to try one after the other until the model takes one; each differs less from its samples."""
        lengths = lengths_of([Port(each.name, each.shape, each.dtype) for each in self.inputs])
        rng = np.random.default_rng(0)
        pairs: list[dict[str, tuple[Array, Array]]] = [
            {each.name: self._varied(each, rng, lengths.get(each.name)) for each in self.inputs},
            {each.name: self._floats_varied(each, rng, lengths.get(each.name)) for each in self.inputs},
        ]
        if self.given:
            pairs.append({each.name: _rolled(self.given[each.name], each.axis) for each in self.inputs})
        for pair in pairs:
            samples = {name: first for name, (first, _) in pair.items()}
            others = {name: second for name, (_, second) in pair.items()}
            if any(not np.array_equal(samples[name], others[name]) for name in samples):
                yield Variation(self, samples, others)

    def _varied(self, tensor: BatchTensor, rng: np.random.Generator, length: int | None) -> tuple[Array, Array]:
        """The samples and the others of an input: noise and larger noise for floats and bytes.

        For other types samples alternate between two values, and the others have the opposite one: 0 and 1 for whole
        numbers, all and half for masks, the whole length and half of it for lengths.
        """
        kind, shape = np.dtype(tensor.dtype).kind, tensor.shape
        if kind == "f":
            return _noise(tensor, rng)
        if kind in "iu" and np.dtype(tensor.dtype).itemsize == 1:
            low = 0 if kind == "u" else -16
            small = rng.integers(low, 16, shape).astype(tensor.dtype)
            return small, rng.integers(8 * low, 8 * 16, shape).astype(tensor.dtype)
        assert tensor.axis is not None
        numbers = np.repeat(np.arange(self.batch_size), shape[tensor.axis] // self.batch_size)
        odd = _along(numbers % 2 == 1, tensor.axis, len(shape))
        if length is not None:
            short, long = np.full(shape, max(1, length // 2)), np.full(shape, length)
        elif kind == "b" or tensor.name.lower().endswith("mask"):
            long, short = np.ones(shape, np.int64), np.zeros(shape, np.int64)
            if len(shape) > 1:
                short[..., : max(1, shape[-1] // 2)] = 1
        else:
            short, long = np.zeros(shape, np.int64), np.ones(shape, np.int64)
        return np.where(odd, long, short).astype(tensor.dtype), np.where(odd, short, long).astype(tensor.dtype)

    def _floats_varied(self, tensor: BatchTensor, rng: np.random.Generator, length: int | None) -> tuple[Array, Array]:
        """Noise and larger noise; all else as a stage warms up with it."""
        kind = np.dtype(tensor.dtype).kind
        if kind == "f":
            return _noise(tensor, rng)
        array = np.full(tensor.shape, length if length is not None else kind == "b", tensor.dtype)
        return array, array


def _along(values: Array, axis: int, n_axes: int) -> Array:
    """Values along one axis of an array with `n_axes` axes, the others of length 1."""
    return np.expand_dims(values, tuple(other for other in range(n_axes) if other != axis))


def _noise(tensor: BatchTensor, rng: np.random.Generator) -> tuple[Array, Array]:
    small = rng.standard_normal(tensor.shape, np.float32).astype(tensor.dtype)
    large = rng.standard_normal(tensor.shape, np.float32).astype(tensor.dtype)
    return small, (large * np.asarray(LARGER, tensor.dtype)).astype(tensor.dtype)


def _rolled(array: Array, axis: int | None) -> tuple[Array, Array]:
    """Given samples, and in every position the sample before it, larger if it has floats."""
    assert axis is not None
    others = np.roll(array, 1, axis)
    if array.dtype.kind == "f":
        others = others * np.asarray(LARGER, array.dtype)
    return array, others


def dependence(probe: SampleProbe, run: Callable[[dict[str, Array]], Batch]) -> str | None:
    """Why samples of a micro-batch depend on each other, in a few words; None if they do not.

    Args:
        run: computes the outputs of several micro-batches, joined along the axes of samples.
    """
    for variation in probe.variations():
        try:
            return _changed_in(probe, variation, run)
        except BadInput:  # the model does not take these
            continue
    return UNCHECKED


UNCHECKED = "the model takes no made-up samples that differ, by which it is seen whether it does"
"""Why a model counts as one whose samples depend on each other although nothing was seen."""


def reason_of(name: str) -> str:
    """Why samples count as dependent where an output has changed."""
    return f"output {name} of a sample changes with the others"


def _changed_in(probe: SampleProbe, variation: Variation, run: Callable[[dict[str, Array]], Batch]) -> str | None:
    n_bytes = sum(array.nbytes for array in variation.batch(0).values())
    n_together = max(1, MAX_TOGETHER_BYTES // max(n_bytes, 1))
    for start in range(0, variation.n_runs, n_together):
        numbers = range(start, min(start + n_together, variation.n_runs))
        batches = [variation.batch(number) for number in numbers]
        joined = {}
        for name, _, _, axis in probe.inputs:
            assert axis is not None
            joined[name] = np.concatenate([batch[name] for batch in batches], axis)
        outputs = run(joined)
        parts = {}
        for name, shape, _, axis in probe.outputs:
            assert axis is not None
            parts[name] = np.split(outputs[name], outputs[name].shape[axis] // shape[axis], axis)
        for index, number in enumerate(numbers):
            changed = variation.changed(number, {name: each[index] for name, each in parts.items()})
            if changed is not None:
                return reason_of(changed)
    return None
