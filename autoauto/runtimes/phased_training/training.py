"""Phased execution, really run: one process holds one phase at a time (seed 002)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from time import perf_counter

import numpy as np

from autoauto.records.phased import IoMode
from autoauto.runtimes.phased_training.network import (
    STATE,
    Call,
    Network,
    Samples,
    adam,
    backward,
    first_backward,
    forward,
    output,
)
from autoauto.runtimes.phased_training.phase import Mover, learn, mover, run_phase, store_all, sums_of
from autoauto.targets.host.memory_budget import Limited, run_alone
from autoauto.targets.host.transport.array_file import Array, StreamingMemory, Traffic


@dataclass(frozen=True, slots=True)
class Loop:
    """How an update runs.

    Attributes:
        serialised: a phase runs for all micro-batches before the next phase; otherwise (naive) a micro-batch runs
            through all phases before the next one, and every phase loads its variables and gradients each time.
        io_mode: who moves activations, and when.
    """

    serialised: bool = True
    io_mode: IoMode = IoMode.COMPUTE


@dataclass(frozen=True, slots=True)
class Training:
    """What a phased training returns.

    Attributes:
        losses: (updates, steps), the mean over each micro-batch.
        seconds: of all updates.
        loads, stores: traffic of streaming memory.
        streaming_bytes: its size.
    """

    losses: Array
    seconds: float
    loads: Traffic
    stores: Traffic
    streaming_bytes: int


def train_phased(
    network: Network, samples: Samples, n_updates: int, loop: Loop, budget_bytes: int | None = None
) -> Limited[Training]:
    """Train in one process under a memory budget, phase by phase.

    Raises:
        OutOfMemory: the budget does not hold a phase with its variables, gradients and optimiser state.
    """
    return run_alone(_train, network, samples, n_updates, loop, budget_bytes=budget_bytes)


def _train(network: Network, samples: Samples, n_updates: int, loop: Loop) -> Training:
    losses = np.empty((n_updates, network.steps), np.float32)
    with StreamingMemory(network.buffers()) as memory, mover(loop.io_mode) as start_move:
        fill(memory, network)
        begin = perf_counter()
        for update in range(n_updates):
            feed(memory, network, samples, update)
            run_update(memory, network, network.steps, loop, start_move)
            losses[update] = [memory.load("loss", 0, step) for step in range(network.steps)]
        return Training(losses, perf_counter() - begin, memory.loads, memory.stores, memory.n_bytes)


def fill(memory: StreamingMemory, network: Network) -> None:
    """Store the first weights, one layer at a time."""
    for layer, rows, _, _ in network.layers:
        for row in range(rows):
            memory.store(f"{layer}.w", row, 0, network.first_weights(layer, row))


def feed(memory: StreamingMemory, network: Network, samples: Samples, update: int) -> None:
    """Store the samples of an update, the host's part."""
    for step in range(network.steps):
        images, labels = network.micro_batch_of(samples, update, step)
        memory.store("image", 0, step, images)
        memory.store("label", 0, step, labels)


def run_update(memory: StreamingMemory, network: Network, steps: int, loop: Loop, start_move: Mover) -> None:
    """Run all phases for `steps` micro-batches; a variable learns when its phase has seen the last of them."""

    def run(call: Call, these: range) -> None:
        sums = run_phase(memory, call, these, loop.io_mode, start_move)
        if these[-1] == steps - 1:
            learn(memory, call, sums, steps, network.learning_rate)
        else:
            store_all(memory, sums_of(call), sums)

    for call, these in order(network.calls, steps, loop.serialised):
        run(call, these)  # what it held is free before the next phase


def order(calls: Sequence[Call], steps: int, serialised: bool) -> Iterator[tuple[Call, range]]:
    """Which phase runs when, and for which steps.

    serialised   A(0, 1)  B(0, 1)  C(0, 1)
    naive        A(0)  B(0)  C(0)  A(1)  B(1)  C(1)
    """
    for start in range(0, steps, steps if serialised else 1):
        for call in calls:
            yield call, range(start, steps if serialised else start + 1)


def train_whole(network: Network, samples: Samples, n_updates: int, budget_bytes: int | None = None) -> Limited[Array]:
    """Train in one process that holds the whole model; losses (updates, steps).

    Raises:
        OutOfMemory: the budget does not hold the whole model.
    """
    return run_alone(_train_whole, network, samples, n_updates, budget_bytes=budget_bytes)


def _train_whole(network: Network, samples: Samples, n_updates: int) -> Array:
    variables = [w_or_b for layer in _first_layers(network) for w_or_b in layer]
    states = [[np.zeros_like(variable) for _ in STATE] for variable in variables]
    losses = np.empty((n_updates, network.steps), np.float32)
    for update in range(n_updates):
        sums: list[Array] = []
        for step in range(network.steps):
            losses[update, step], gradients = _step(variables, *network.micro_batch_of(samples, update, step))
            sums = [total + gradient for total, gradient in zip(sums, gradients, strict=True)] if sums else gradients
        for variable, state, total in zip(variables, states, sums, strict=True):
            adam(total / network.steps, network.learning_rate, variable, *state)
    return losses


def _first_layers(network: Network) -> list[tuple[Array, Array]]:
    weights = [network.first_weights(layer, row) for layer, rows, _, _ in network.layers for row in range(rows)]
    return [(w, np.zeros(w.shape[1], np.float32)) for w in weights]


def _step(variables: list[Array], x: Array, labels: Array) -> tuple[Array, list[Array]]:
    """Forward and backward of one micro-batch: its loss, and a gradient for every variable."""
    *hidden, last = zip(variables[::2], variables[1::2], strict=True)
    tape = []
    for layer in hidden:
        y, z = forward(layer, (x,)).stored
        tape.append((x, z))
        x = y
    (dx, loss), gradients = output(last, (x, labels))
    of_layers = [gradients]
    for (w, _), seen in zip(hidden[:0:-1], tape[:0:-1], strict=True):
        (dx,), gradients = backward((w,), (dx, *seen))
        of_layers.append(gradients)
    of_layers.append(first_backward((), (dx, *tape[0])).gradients)
    return loss, list(chain.from_iterable(reversed(of_layers)))
