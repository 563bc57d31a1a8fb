"""Whether samples of a micro-batch depend on each other: `SampleProbe`, `dependence`.

Where they do, as by batch normalisation in training mode or a mean over the batch, a request that shares a micro-batch
with others, or does not fill it, gets other numbers than its own. So one micro-batch runs several times:

    0   a b c d     1   a b c d    again: by how much does rounding change it?
    2   A b C d     3   a B c D    other samples in the other places: the rows of small letters must stay
    4   A B c d     5   a b C D    by every bit of a sample's number, so that each is seen beside others of each
    6   c d a b                    samples in other places: rows must move with them

The other samples differ as much as a model may take: larger numbers, other ids, other lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.layers import Port
from autoauto.records.units import Array, Precision
from autoauto.targets.host.measure.examples import lengths_of

ROUNDING = {Precision.FP32: 1e-5, Precision.TF32: 2e-3, Precision.FP16: 2e-3, Precision.BF16: 1e-2}
"""By how much a row may change, relative to the largest value, where its own sample stays where it is: the same kernel
computes the same numbers there."""
MOVED_ROUNDING = {Precision.FP32: 1e-3, Precision.TF32: 2e-2, Precision.FP16: 2e-2, Precision.BF16: 0.1}
"""The same where its sample is in another place, and a kernel may add in another order."""
NOISE_FACTOR = 4.0
"""How many times what a repeated run changes counts as rounding, too."""
LARGER = 4.0
"""How many times as large the other samples are, so that what is scaled by the largest value of a batch changes."""
MAX_TOGETHER_BYTES = 1 << 28

Batch = Mapping[str, Array]


class BatchTensor(NamedTuple):
    """An input or output of a micro-batch; `axis` is that along which samples lie, None where there is none."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    axis: int | None


class Variation:
    """A micro-batch and other samples for its places; runs are numbered as at the top of this file.

    Args:
        outputs: of the model.
        batch_size: samples of the micro-batch.
        axes: of the inputs, by name.
        samples, others: the inputs, as they are and for other places.
        precision: in which the model computes.
    """

    def __init__(
        self,
        outputs: Sequence[BatchTensor],
        batch_size: int,
        axes: Mapping[str, int | None],
        samples: Batch,
        others: Batch,
        precision: Precision,
    ) -> None:
        self._outputs, self._batch_size, self._axes = outputs, batch_size, axes
        self._samples, self._others, self._precision = samples, others, precision
        self._first: dict[str, Array] = {}
        self._noise: dict[str, float] = {}
        self.n_runs = 3 + 2 * (batch_size - 1).bit_length()

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
        shape = [-1 if each == axis else 1 for each in range(array.ndim)]
        return np.where(np.repeat(self._stays(number), length).reshape(shape), array, self._others[name])

    @property
    def _shift(self) -> int:
        return self._batch_size // 2

    def _stays(self, number: int) -> Array:
        """Which samples a run leaves in their places: those with, or without, one bit of their number."""
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
        first, rows, name = self._first[tensor.name], self._rows(tensor, outputs), tensor.name
        if number == 1:
            self._noise[name] = _difference(rows, first)
            return False
        if number == self.n_runs - 1:
            limit = MOVED_ROUNDING[self._precision]
            if np.dtype(tensor.dtype).itemsize == 1 and tensor.dtype != "bool":  # quantised: one step
                limit = max(limit, 1.01 / max(np.abs(first.astype(float)).max(initial=0.0), 1.0))
            difference = _difference(np.roll(rows, -self._shift, 0), first)
        else:
            stays, limit = self._stays(number), ROUNDING[self._precision]
            difference = _difference(rows[stays], first[stays])
        return difference > max(limit, NOISE_FACTOR * self._noise[name])

    def _rows(self, tensor: BatchTensor, outputs: Batch) -> Array:
        """An output with a row for every sample."""
        assert tensor.axis is not None
        return np.moveaxis(outputs[tensor.name], tensor.axis, 0).reshape(self._batch_size, -1)


def _difference(rows: Array, first: Array) -> float:
    """The largest difference of two arrays, relative to the largest finite value; any of truth values counts as 1."""
    if rows.tobytes() == first.tobytes():
        return 0.0
    a, b = (array.astype(np.float64) for array in (rows, first))
    finite = np.isfinite(a) & np.isfinite(b)
    if (a[~finite] != b[~finite])[~(np.isnan(a[~finite]) & np.isnan(b[~finite]))].any():
        return np.inf
    largest = np.abs(b[finite]).max(initial=0.0)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0) / (largest or 1.0))


class SampleProbe:
    """What to run to see whether samples of a micro-batch depend on each other.

    Args:
        inputs, outputs: of the model at the batch size; every one has an axis of samples.
        batch_size: samples of a micro-batch.
        precision: in which the model computes.
        given: inputs of a micro-batch that the model takes, if there are any.
    """

    def __init__(
        self,
        inputs: Sequence[BatchTensor],
        outputs: Sequence[BatchTensor],
        batch_size: int,
        precision: Precision = Precision.FP32,
        given: Batch | None = None,
    ) -> None:
        self.inputs, self.outputs, self.batch_size = inputs, outputs, batch_size
        self._precision, self._given = precision, given

    def variations(self) -> Iterator[Variation]:
        """Variations of which the next is to be tried where the model does not take one; each differs less."""
        ports = [Port(each.name, each.shape, each.dtype) for each in self.inputs]
        lengths, rng = lengths_of(ports), np.random.default_rng(0)
        pairs: list[dict[str, tuple[Array, Array]]] = [
            {each.name: self._varied(each, rng, lengths.get(each.name)) for each in self.inputs},
            {each.name: self._floats_varied(each, rng, lengths.get(each.name)) for each in self.inputs},
        ]
        if self._given:
            pairs.append({each.name: _rolled(self._given[each.name], each.axis) for each in self.inputs})
        axes = {each.name: each.axis for each in self.inputs}
        for pair in pairs:
            samples, others = ({name: arrays[i] for name, arrays in pair.items()} for i in (0, 1))
            if any(not np.array_equal(samples[name], others[name]) for name in samples):
                yield Variation(self.outputs, self.batch_size, axes, samples, others, self._precision)

    def _varied(self, tensor: BatchTensor, rng: np.random.Generator, length: int | None) -> tuple[Array, Array]:
        """Noise and larger noise; of whole numbers 0 and 1, and of masks all and half, by turns; lengths as well."""
        kind, shape = np.dtype(tensor.dtype).kind, tensor.shape
        if kind == "f":
            return _noise(tensor, rng)
        if kind in "iu" and np.dtype(tensor.dtype).itemsize == 1:
            low = 0 if kind == "u" else -16
            return tuple(  # type: ignore[return-value]
                rng.integers(low * n, 16 * n, shape).astype(tensor.dtype) for n in (1, 8)
            )
        odd = self._odd(tensor)
        if length is not None:
            short, long = np.full(shape, max(1, length // 2)), np.full(shape, length)
        elif kind == "b" or tensor.name.lower().endswith("mask"):
            long = np.ones(shape, np.int64)
            short = long * (np.arange(shape[-1]) < max(1, shape[-1] // 2)) if len(shape) > 1 else 0 * long
        else:
            short, long = np.zeros(shape, np.int64), np.ones(shape, np.int64)
        return np.where(odd, long, short).astype(tensor.dtype), np.where(odd, short, long).astype(tensor.dtype)

    def _odd(self, tensor: BatchTensor) -> Array:
        """Which elements of a tensor are of samples with odd numbers."""
        assert tensor.axis is not None
        length = tensor.shape[tensor.axis] // self.batch_size
        shape = [-1 if each == tensor.axis else 1 for each in range(len(tensor.shape))]
        odd: Array = np.repeat(np.arange(self.batch_size) % 2 == 1, length).reshape(shape)
        return odd

    def _floats_varied(self, tensor: BatchTensor, rng: np.random.Generator, length: int | None) -> tuple[Array, Array]:
        """Noise and larger noise; all else as a stage warms up with it."""
        kind = np.dtype(tensor.dtype).kind
        if kind == "f":
            return _noise(tensor, rng)
        array = np.full(tensor.shape, length if length is not None else kind == "b", tensor.dtype)
        return array, array


def _noise(tensor: BatchTensor, rng: np.random.Generator) -> tuple[Array, Array]:
    small, large = (rng.standard_normal(tensor.shape, np.float32).astype(tensor.dtype) for _ in range(2))
    return small, (large * np.asarray(LARGER, tensor.dtype)).astype(tensor.dtype)


def _rolled(array: Array, axis: int | None) -> tuple[Array, Array]:
    """Given samples, and for every place that of another, floats larger."""
    assert axis is not None
    others = np.roll(array, 1, axis)
    return array, (others * np.asarray(LARGER, array.dtype)) if array.dtype.kind == "f" else others


def dependence(probe: SampleProbe, run: Callable[[dict[str, Array]], Batch]) -> str | None:
    """What shows that samples of a micro-batch depend on each other, in a few words; None where nothing does.

    Args:
        probe: what to run.
        run: computes the outputs of some micro-batches, which lie one behind the other along the axes of samples.
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
        numbers = range(variation.n_runs)[start : start + n_together]
        batches = [variation.batch(number) for number in numbers]
        outputs = run({each.name: _joined(each, batches) for each in probe.inputs})
        for index, number in enumerate(numbers):
            part = {each.name: _part(each, outputs[each.name], index) for each in probe.outputs}
            if (name := variation.changed(number, part)) is not None:
                return reason_of(name)
    return None


def _joined(tensor: BatchTensor, batches: Sequence[Batch]) -> Array:
    assert tensor.axis is not None
    return np.concatenate([batch[tensor.name] for batch in batches], tensor.axis)


def _part(tensor: BatchTensor, array: Array, index: int) -> Array:
    """The output of one of several micro-batches."""
    assert tensor.axis is not None
    length = tensor.shape[tensor.axis]
    return array[(*(slice(None),) * tensor.axis, slice(index * length, (index + 1) * length))]
