"""Training by phased execution [popxl-mnist] (`train_phased`), and of the whole network (`train_whole`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from time import perf_counter
from typing import TypeVar

import numpy as np

from autoauto.programs.phased_training.network import (
    STATE,
    BufferEntry,
    Network,
    PhaseCall,
    Samples,
    adam,
    backward,
    first_backward,
    forward,
    output,
)
from autoauto.records.plans.phased import IoMode
from autoauto.records.units import Array
from autoauto.targets.host.memory_budget import LimitedResult, run_alone
from autoauto.targets.host.transport.shared_memory import ArrayFile, Traffic

Loaded = TypeVar("Loaded")
Stored = TypeVar("Stored")

Moment = tuple[tuple[str, int], ...]
"""Actions that run at the same time, each "load", "compute" or "store" with its step."""

Mover = Callable[[Callable[[], None]], Callable[[], object]]
"""Starts a move, and returns a function that waits for its end."""


def serial(steps: Sequence[int]) -> Iterator[Moment]:
    """One action after the other."""
    for step in steps:
        for kind in ("load", "compute", "store"):
            yield ((kind, step),)


def overlapped(steps: Sequence[int]) -> Iterator[Moment]:
    """While a step is computed, the next one is loaded and then the previous one stored [popxl-phased]."""
    for i in range(len(steps) + 2):
        actions = (("load", i), ("store", i - 2), ("compute", i - 1))
        yield tuple((kind, steps[j]) for kind, j in actions if 0 <= j < len(steps))


ORDERS = {IoMode.COMPUTE: serial, IoMode.IO: serial, IoMode.IO_OVERLAPPED: overlapped}


@contextmanager
def mover(io_mode: IoMode) -> Iterator[Mover]:
    """A mover that uses the computing thread, or one loader thread, which takes the part of the IPU's I/O tiles."""

    def move_here(move: Callable[[], None]) -> Callable[[], object]:
        move()
        return lambda: None

    if io_mode is IoMode.COMPUTE:
        yield move_here
    else:
        with ThreadPoolExecutor(1, "loader") as loader:
            yield lambda move: loader.submit(move).result


def run_moments(
    moments: Iterable[Moment],
    load: Callable[[int], Loaded],
    compute: Callable[[int, Loaded], Stored],
    store: Callable[[int, Stored], None],
    start_move: Mover,
) -> None:
    """Run all actions; a moment ends when all of its actions have ended. `start_move` runs loads and stores."""
    loaded: dict[int, Loaded] = {}
    computed: dict[int, Stored] = {}

    def move(kind: str, step: int) -> None:
        if kind == "load":
            loaded[step] = load(step)
        else:
            store(step, computed.pop(step))

    for moment in moments:
        # Moves are started before the thread computes: a loader runs them meanwhile.
        waits = [start_move(partial(move, kind, step)) for kind, step in moment if kind != "compute"]
        for kind, step in moment:
            if kind == "compute":
                computed[step] = compute(step, loaded.pop(step))
        for wait in waits:
            wait()


def run_phase(
    memory: ArrayFile, call: PhaseCall, steps: Sequence[int], io_mode: IoMode, start_move: Mover
) -> list[Array]:
    """Load the variables; load, compute and store consecutive steps; return the sums of the gradients so far.

    The sums start at step 0. A call that starts at a later step loads the sums of the steps before.
    """
    variables = load_all(memory, call.variables)
    sums = load_all(memory, sums_of(call)) if steps[0] else []

    def compute(step: int, loaded: list[Array]) -> Sequence[Array]:
        stored, gradients = call.graph(variables, loaded)
        add(sums, gradients)
        return stored

    run_moments(
        ORDERS[io_mode](steps),
        lambda step: load_all(memory, call.loads, step),
        compute,
        lambda step, stored: store_all(memory, call.stores, stored, step),
        start_move,
    )
    return sums


def update_variables(memory: ArrayFile, call: PhaseCall, sums: list[Array], steps: int, learning_rate: float) -> None:
    """Update the variables of a phase, one at a time, by the mean gradient of `steps` micro-batches; empties `sums`."""
    for name, row in reversed(call.trained):
        gradient = sums.pop()
        gradient /= steps
        entries = [BufferEntry(name, row)]
        entries += [BufferEntry(f"{name}.{state}", row) for state in STATE]
        updated = load_all(memory, entries)
        adam(gradient, learning_rate, *updated)
        store_all(memory, entries, updated)
        del gradient, updated  # before the next variable is loaded


def sums_of(call: PhaseCall) -> tuple[BufferEntry, ...]:
    """The buffer entries of the sums of gradients between two steps of the naive loop."""
    return tuple(BufferEntry(f"{name}.sum", row) for name, row in call.trained)


def add(sums: list[Array], gradients: Iterable[Array]) -> None:
    """Add gradients to sums, in place; empty sums become the gradients themselves."""
    if not sums:
        sums.extend(gradients)
        return
    for total, gradient in zip(sums, gradients, strict=True):
        np.add(total, gradient, out=total)


def load_all(memory: ArrayFile, entries: Iterable[BufferEntry], step: int = 0) -> list[Array]:
    """Load all entries."""
    return [memory.load(name, row, step) for name, row in entries]


def store_all(memory: ArrayFile, entries: Iterable[BufferEntry], arrays: Iterable[Array], step: int = 0) -> None:
    """Store an array into each entry."""
    for (name, row), array in zip(entries, arrays, strict=True):
        memory.store(name, row, step, array)


@dataclass(frozen=True, slots=True)
class UpdateLoop:
    """The loop of an update.

    Attributes:
        serialised: a phase runs for all micro-batches before the next phase. Otherwise (naive) a micro-batch runs
            through all phases before the next one, and every phase loads its variables and gradients each time.
        io_mode: which thread moves activations, and when.
    """

    serialised: bool = True
    io_mode: IoMode = IoMode.COMPUTE


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The result of a phased training.

    Attributes:
        losses: (updates, steps), means over micro-batches.
        loads, stores: traffic of streaming memory.
    """

    losses: Array
    seconds: float
    loads: Traffic
    stores: Traffic
    streaming_bytes: int


def train_phased(
    network: Network, samples: Samples, n_updates: int, loop: UpdateLoop, budget_bytes: int | None = None
) -> LimitedResult[TrainingResult]:
    """Train in one process under a memory budget, phase by phase.

    Raises OutOfMemory if a phase with its variables, gradients and optimiser state exceeds the budget.
    """
    return run_alone(_train_phased, network, samples, n_updates, loop, budget_bytes=budget_bytes)


def _train_phased(network: Network, samples: Samples, n_updates: int, loop: UpdateLoop) -> TrainingResult:
    losses = np.empty((n_updates, network.steps), np.float32)
    with ArrayFile(network.buffers()) as memory, mover(loop.io_mode) as start_move:
        fill(memory, network)
        start = perf_counter()
        for update in range(n_updates):
            feed(memory, network, samples, update)
            run_update(memory, network, network.steps, loop, start_move)
            losses[update] = [memory.load("loss", 0, step) for step in range(network.steps)]
        return TrainingResult(losses, perf_counter() - start, memory.loads, memory.stores, memory.n_bytes)


def fill(memory: ArrayFile, network: Network) -> None:
    """Store the initial weights, one layer at a time."""
    for layer, rows, _, _ in network.layers:
        for row in range(rows):
            memory.store(f"{layer}.w", row, 0, network.first_weights(layer, row))


def feed(memory: ArrayFile, network: Network, samples: Samples, update: int) -> None:
    """Store the samples of an update, as the host does."""
    for step in range(network.steps):
        images, labels = network.micro_batch_of(samples, update, step)
        memory.store("image", 0, step, images)
        memory.store("label", 0, step, labels)


def run_update(memory: ArrayFile, network: Network, steps: int, loop: UpdateLoop, start_move: Mover) -> None:
    """Run all phases for `steps` micro-batches; a phase updates its variables after the last of them."""

    def run(call: PhaseCall, call_steps: range) -> None:
        sums = run_phase(memory, call, call_steps, loop.io_mode, start_move)
        if call_steps[-1] == steps - 1:
            update_variables(memory, call, sums, steps, network.learning_rate)
        else:
            store_all(memory, sums_of(call), sums)

    for call, call_steps in phase_order(network.calls, steps, loop.serialised):
        run(call, call_steps)  # a function, so that the memory of a phase is free before the next one


def phase_order(calls: Sequence[PhaseCall], steps: int, serialised: bool) -> Iterator[tuple[PhaseCall, range]]:
    """The phases in the order of execution, each with its steps.

    serialised   A(0, 1)  B(0, 1)  C(0, 1)
    naive        A(0)  B(0)  C(0)  A(1)  B(1)  C(1)
    """
    n_together = steps if serialised else 1
    for start in range(0, steps, n_together):
        for call in calls:
            yield call, range(start, start + n_together)


def train_whole(
    network: Network, samples: Samples, n_updates: int, budget_bytes: int | None = None
) -> LimitedResult[Array]:
    """Train in one process that holds the whole model; returns losses (updates, steps).

    Raises OutOfMemory if the whole model exceeds the budget.
    """
    return run_alone(_train_whole, network, samples, n_updates, budget_bytes=budget_bytes)


def _train_whole(network: Network, samples: Samples, n_updates: int) -> Array:
    variables = initial_variables(network)
    states = [[np.zeros_like(variable) for _ in STATE] for variable in variables]
    losses = np.empty((n_updates, network.steps), np.float32)
    for update in range(n_updates):
        sums: list[Array] = []
        for step in range(network.steps):
            images, labels = network.micro_batch_of(samples, update, step)
            losses[update, step], gradients = loss_and_gradients(variables, images, labels)
            add(sums, gradients)
        for variable, state, total in zip(variables, states, sums, strict=True):
            adam(total / network.steps, network.learning_rate, variable, *state)
    return losses


def initial_variables(network: Network) -> list[Array]:
    """Weights and biases before training, in turn, from the first layer to the last."""
    variables = []
    for layer, rows, _, _ in network.layers:
        for row in range(rows):
            weights = network.first_weights(layer, row)
            variables += [weights, np.zeros(weights.shape[1], np.float32)]
    return variables


def loss_and_gradients(variables: list[Array], x: Array, labels: Array) -> tuple[Array, list[Array]]:
    """Forward and backward of one micro-batch: its loss, and a gradient for every variable."""
    *hidden, last = zip(variables[::2], variables[1::2], strict=True)
    tape = []  # what every hidden layer has read, and its value before the activation function
    for layer in hidden:
        y, z = forward(layer, (x,)).stored
        tape.append((x, z))
        x = y
    (dx, loss), gradients = output(last, (x, labels))
    by_layer = [gradients]
    for (w, _), (x, z) in zip(hidden[:0:-1], tape[:0:-1], strict=True):
        (dx,), gradients = backward((w,), (dx, x, z))
        by_layer.append(gradients)
    x, z = tape[0]
    by_layer.append(first_backward((), (dx, x, z)).gradients)  # nothing comes before it that needs a gradient
    return loss, list(chain.from_iterable(reversed(by_layer)))
