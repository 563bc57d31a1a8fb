"""Training by phased execution [popxl-mnist] (`train_phased`), and of the whole network (`train_whole`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from time import perf_counter

import numpy as np

from autoauto.programs.phased_training.network import (
    STATE,
    Network,
    PhaseCall,
    adam,
    backward,
    first_backward,
    forward,
    output,
)
from autoauto.programs.phased_training.phase import Mover, add, mover, run_phase, store_all, sums_of, update_variables
from autoauto.programs.samples import Samples
from autoauto.records.plans.phased import IoMode
from autoauto.records.units import Array
from autoauto.targets.host.memory_budget import LimitedResult, run_alone
from autoauto.targets.host.transport.shared_memory import ArrayFile, Traffic


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

    Raises:
        OutOfMemory: a phase with its variables, gradients and optimiser state exceeds the budget.
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

    Raises:
        OutOfMemory: the whole model exceeds the budget.
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
