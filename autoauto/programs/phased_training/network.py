"""The network of [popxl-mnist] as phases (`Network`), its functions, and Adam."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.random import default_rng

from autoauto.records.errors import BadInput
from autoauto.records.units import Array
from autoauto.targets.host.transport.shared_memory import Buffer

MAX_CLASSES = 1000


class Samples(NamedTuple):
    """A data set.

    Attributes:
        inputs: (n_samples, n_inputs), float32.
        labels: (n_samples,), int64, from 0.
    """

    inputs: Array
    labels: Array


def read_samples(path: Path) -> Samples:
    """Read a CSV file, also a compressed one (`.gz`), whose rows are the numbers of a sample and its label.

    Inputs are divided by the largest of them, so that none is above 1. Raises BadInput if the file cannot be read, a
    cell is no finite number, or a label is no whole number from 0 to 999.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # NumPy warns of an empty file, which is refused below
            table = np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise BadInput(f"{path}: samples are a CSV file of numbers: {error}") from None
    if table.shape[0] < 1 or table.shape[1] < 2 or not np.isfinite(table).all():
        raise BadInput(f"{path}: a sample is a row of one finite number or more and its label, got {table.shape}")
    inputs, labels = table[:, :-1], table[:, -1].astype(np.int64)
    if (labels != table[:, -1]).any() or labels.min() < 0 or labels.max() >= MAX_CLASSES:
        raise BadInput(f"{path}: labels are whole numbers from 0 to {MAX_CLASSES - 1}, the last number of each row")
    largest = np.abs(inputs).max()
    return Samples((inputs / (largest or 1)).astype(np.float32), labels)


STATE = ("first", "second")
"""The names of Adam's two moving averages."""


class PhaseOutput(NamedTuple):
    """Outputs of a phase's function: arrays to store, and the gradient of every variable that the phase trains."""

    stored: tuple[Array, ...]
    gradients: tuple[Array, ...] = ()


PhaseFunction = Callable[[Sequence[Array], Sequence[Array]], PhaseOutput]
"""Computes a `PhaseOutput` from variables and loaded arrays; it has no access to streaming memory."""


class BufferEntry(NamedTuple):
    """A row of a named buffer."""

    name: str
    row: int


@dataclass(frozen=True, slots=True)
class PhaseCall:
    """A phase: a graph, called with a row.

    Attributes:
        row: which of the layers that share the graph.
        variables: entries that are loaded once a phase.
        loads, stores: entries in the order of the graph's arguments and results; each has a column a step.
        trained: entries of the trained variables, in the order of the graph's gradients.
    """

    name: str
    row: int
    graph: PhaseFunction
    variables: tuple[BufferEntry, ...]
    loads: tuple[BufferEntry, ...]
    stores: tuple[BufferEntry, ...]
    trained: tuple[BufferEntry, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({self.row})"


@dataclass(frozen=True)
class Network:
    """Sizes of the network and of its training.

    Attributes:
        n_hidden: width of every layer but the last.
        steps: micro-batches of an update.
        micro_batch: samples of a micro-batch.
        n_inner: layers between fc1 and the output layer; [popxl-mnist] has fc2 and fc3.
    """

    n_hidden: int
    steps: int = 4
    micro_batch: int = 8
    n_inner: int = 2
    n_inputs: int = 64
    n_classes: int = 10
    learning_rate: float = 1e-3
    seed: int = 0  # of the initial weights

    @property
    def layers(self) -> tuple[tuple[str, int, int, int], ...]:
        """Name, rows, inputs and outputs of every kind of layer."""
        return (
            ("fc1", 1, self.n_inputs, self.n_hidden),
            ("inner", self.n_inner, self.n_hidden, self.n_hidden),
            ("fc4", 1, self.n_hidden, self.n_classes),
        )

    @property
    def trained_bytes(self) -> int:
        """Size of weights, biases and optimiser state, as float32."""
        return 4 * (1 + len(STATE)) * sum(rows * (n + 1) * m for _, rows, n, m in self.layers)

    def buffers(self) -> Iterator[Buffer]:
        """All buffers of streaming memory: samples, x, dx, z (before the GELU, for the backward), loss, variables."""
        hidden = (self.micro_batch, self.n_hidden)
        yield Buffer.of("image", (self.micro_batch, self.n_inputs), steps=self.steps)
        yield Buffer.of("label", (self.micro_batch,), steps=self.steps, dtype="int64")
        yield Buffer.of("x", hidden, self.n_inner + 1, self.steps)
        yield Buffer.of("dx", hidden, self.n_inner + 1, self.steps)
        yield Buffer.of("fc1.z", hidden, steps=self.steps)
        yield Buffer.of("inner.z", hidden, self.n_inner, self.steps)
        yield Buffer.of("loss", (), steps=self.steps)
        for layer, rows, n, m in self.layers:
            for name, shape in ((f"{layer}.w", (n, m)), (f"{layer}.b", (m,))):
                yield Buffer.of(name, shape, rows)
                yield from (Buffer.of(f"{name}.{state}", shape, rows) for state in STATE)
                yield Buffer.of(f"{name}.sum", shape, rows)

    def first_weights(self, layer: str, row: int) -> Array:
        """Weights before training, normal with variance 2 / inputs; biases and state are zero."""
        kinds = [name for name, *_ in self.layers]
        _, _, n, m = self.layers[kinds.index(layer)]
        weights: Array = default_rng((self.seed, kinds.index(layer), row)).standard_normal((n, m), np.float32)
        weights *= np.float32((2 / n) ** 0.5)
        return weights

    def micro_batch_of(self, samples: Samples, update: int, step: int) -> Samples:
        """The samples of a step, in the order of the data set, which repeats."""
        start = (update * self.steps + step) * self.micro_batch
        indices = np.arange(start, start + self.micro_batch) % len(samples.labels)
        return Samples(samples.inputs[indices], samples.labels[indices])

    @cached_property
    def calls(self) -> tuple[PhaseCall, ...]:
        """The phases of an update, in order."""
        first = PhaseCall(
            "fc1",
            0,
            forward,
            variables=_variables("fc1", 0),
            loads=(BufferEntry("image", 0),),
            stores=(BufferEntry("x", 0), BufferEntry("fc1.z", 0)),
        )
        last = PhaseCall(
            "fc4",
            0,
            output,
            variables=_variables("fc4", 0),
            loads=(BufferEntry("x", self.n_inner), BufferEntry("label", 0)),
            stores=(BufferEntry("dx", self.n_inner), BufferEntry("loss", 0)),
            trained=_variables("fc4", 0),
        )
        first_grad = PhaseCall(
            "fc1_grad",
            0,
            first_backward,
            variables=(),
            loads=(BufferEntry("dx", 0), BufferEntry("image", 0), BufferEntry("fc1.z", 0)),
            stores=(),
            trained=_variables("fc1", 0),
        )
        inner = [self._inner(row) for row in range(self.n_inner)]
        inner_grads = [self._inner_grad(row) for row in reversed(range(self.n_inner))]
        return (first, *inner, last, *inner_grads, first_grad)

    def _inner(self, row: int) -> PhaseCall:
        stores = (BufferEntry("x", row + 1), BufferEntry("inner.z", row))
        return PhaseCall("inner", row, forward, _variables("inner", row), (BufferEntry("x", row),), stores)

    def _inner_grad(self, row: int) -> PhaseCall:
        variables = _variables("inner", row)
        loads = (BufferEntry("dx", row + 1), BufferEntry("x", row), BufferEntry("inner.z", row))
        return PhaseCall("inner_grad", row, backward, variables[:1], loads, (BufferEntry("dx", row),), variables)


def _variables(layer: str, row: int) -> tuple[BufferEntry, BufferEntry]:
    return BufferEntry(f"{layer}.w", row), BufferEntry(f"{layer}.b", row)


def forward(variables: Sequence[Array], loaded: Sequence[Array]) -> PhaseOutput:
    """Given w, b and x: gelu(z) and z = x w + b."""
    (w, b), (x,) = variables, loaded
    z = x @ w + b
    return PhaseOutput((gelu(z), z))


def backward(variables: Sequence[Array], loaded: Sequence[Array]) -> PhaseOutput:
    """Given w, the gradient of the output, x and z: the gradient of x, and the gradients of w and b."""
    (w,), (dy, x, z) = variables, loaded
    dz = dy * gelu_slope(z)
    return PhaseOutput((dz @ w.T,), (x.T @ dz, dz.sum(0)))


def first_backward(variables: Sequence[Array], loaded: Sequence[Array]) -> PhaseOutput:
    """As `backward` for the first layer, which needs neither the gradient of x nor w."""
    dy, x, z = loaded
    dz = dy * gelu_slope(z)
    return PhaseOutput((), (x.T @ dz, dz.sum(0)))


def output(variables: Sequence[Array], loaded: Sequence[Array]) -> PhaseOutput:
    """Given w, b, x and labels: the gradient of x, the mean cross-entropy of softmax(x w + b), gradients of w and b."""
    (w, b), (x, labels) = variables, loaded
    logits = x @ w + b
    logits -= logits.max(1, keepdims=True)
    log_probabilities = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    at_label = (np.arange(len(labels)), labels)
    dz = np.exp(log_probabilities)
    dz[at_label] -= 1
    dz /= len(labels)
    loss = np.asarray(-log_probabilities[at_label].mean())
    return PhaseOutput((dz @ w.T, loss), (x.T @ dz, dz.sum(0)))


def gelu(z: Array) -> Array:
    """z / 2 (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) [gelu]."""
    y: Array = 0.5 * z * (1 + _tanh(z))
    return y


def gelu_slope(z: Array) -> Array:
    """The derivative of `gelu`."""
    t = _tanh(z)
    slope: Array = 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * z * z)
    return slope


def _tanh(z: Array) -> Array:
    inner: Array = np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z * z * z))
    return inner


def adam(gradient: Array, learning_rate: float, value: Array, first: Array, second: Array) -> None:
    """Update a variable and its state in place by [adam], without the bias correction.

    It updates a few rows at a time, so that no temporary array is as large as the variable.
    """
    n_rows = max(1, 2**16 // max(1, value[0].size))
    for start in range(0, len(value), n_rows):
        rows = slice(start, start + n_rows)
        g = gradient[rows]
        first[rows] += 0.1 * (g - first[rows])
        second[rows] += 0.001 * (g * g - second[rows])
        value[rows] -= learning_rate * first[rows] / (np.sqrt(second[rows]) + 1e-5)
