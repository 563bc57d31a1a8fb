"""Phased training: its losses are those of the whole network, under a budget that the whole network exceeds."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from autoauto.programs.phased_training import training
from autoauto.programs.phased_training.network import Network, Samples, forward, output, read_samples
from autoauto.programs.phased_training.training import (
    UpdateLoop,
    feed,
    fill,
    initial_variables,
    loss_and_gradients,
    mover,
    phase_order,
    run_update,
    train_phased,
    train_whole,
)
from autoauto.records.errors import OutOfMemory
from autoauto.records.plans.phased import IoMode
from autoauto.records.units import MIB, Array
from autoauto.targets.host.transport.shared_memory import ArrayFile

LOOPS = [UpdateLoop(serialised, io_mode) for serialised, io_mode in product((True, False), IoMode)]
DIGITS = read_samples(Path("data/samples/digits.csv.gz"))
SMALL = Network(n_hidden=32, steps=3)
LARGE, BUDGET_BYTES = Network(n_hidden=512, steps=2), 6 * MIB
RTOL = 1e-6
"""Relative tolerance of float32 losses: less than ten units in the last place."""


@pytest.fixture(scope="module")
def whole_losses() -> Array:
    """Losses of 50 updates of the small network as a whole."""
    return training._train_whole(SMALL, DIGITS, 50)


@pytest.mark.parametrize("loop", LOOPS)
def test_losses_are_those_of_the_whole_network(whole_losses: Array, loop: UpdateLoop) -> None:
    losses = training._train_phased(SMALL, DIGITS, 50, loop).losses
    assert losses.shape == (50, 3)
    np.testing.assert_allclose(losses, whole_losses, rtol=RTOL)


def test_training_reduces_the_loss(whole_losses: Array) -> None:
    assert whole_losses[:5].mean() > 2
    assert whole_losses[-5:].mean() < 1.5


@pytest.mark.parametrize("n_inner", [1, 3])
def test_losses_are_those_of_the_whole_network_at_other_depths(n_inner: int) -> None:
    network = Network(n_hidden=16, n_inner=n_inner, steps=2)
    losses = training._train_phased(network, DIGITS, 5, UpdateLoop()).losses
    np.testing.assert_allclose(losses, training._train_whole(network, DIGITS, 5), rtol=RTOL)


@pytest.mark.slow
def test_phased_training_fits_a_budget_that_the_whole_network_exceeds() -> None:
    assert LARGE.trained_bytes > BUDGET_BYTES
    limited = train_phased(LARGE, DIGITS, 2, UpdateLoop(), BUDGET_BYTES)
    assert limited.result.loads.n_bytes > 2 * BUDGET_BYTES
    assert limited.limit_bytes == limited.overhead_bytes + BUDGET_BYTES
    with pytest.raises(OutOfMemory, match=r"a budget of 6.0 MiB does not suffice: Unable to allocate") as failure:
        train_whole(LARGE, DIGITS, 2, BUDGET_BYTES)
    assert failure.value.excess_bytes > 0


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_losses_under_a_budget_are_those_of_the_whole_network(large_losses: Array, loop: UpdateLoop) -> None:
    losses = train_phased(LARGE, DIGITS, 20, loop, BUDGET_BYTES).result.losses
    np.testing.assert_allclose(losses, large_losses, rtol=RTOL)


@pytest.fixture(scope="module")
def large_losses() -> Array:
    """Losses of 20 updates of the large network, in a process without a budget."""
    return train_whole(LARGE, DIGITS, 20).result


def test_serialised_loads_each_variable_once_and_naive_at_every_step() -> None:
    """Four reads of a layer's weights in an update: two inner layers, forward and backward."""
    network = Network(n_hidden=8, steps=5)
    serialised, naive = n_loads(network, UpdateLoop(True)), n_loads(network, UpdateLoop(False))
    n_updates = 2  # the weights of each inner layer are loaded once more for the update
    assert serialised["inner.w"] - n_updates == 4
    assert naive["inner.w"] - n_updates == 4 * 5
    assert (serialised["inner.w.sum"], naive["inner.w.sum"]) == (0, 2 * (5 - 1))
    assert serialised["x"] == naive["x"] == 5 * (2 + 1 + 2)


def n_loads(network: Network, loop: UpdateLoop) -> Counter[str]:
    """How often each buffer is loaded in one update."""
    counted: Counter[str] = Counter()

    class Counting(ArrayFile):
        def load(self, name: str, row: int, step: int = 0) -> Array:
            counted[name] += 1
            return super().load(name, row, step)

    with Counting(network.buffers()) as memory, mover(loop.io_mode) as start_move:
        fill(memory, network)
        feed(memory, network, DIGITS, 0)
        run_update(memory, network, network.steps, loop, start_move)
    return counted


def test_serialised_order_finishes_a_phase_and_naive_order_finishes_a_step() -> None:
    a, b, *_ = SMALL.calls
    assert list(phase_order([a, b], 3, serialised=True)) == [(a, range(3)), (b, range(3))]
    step_by_step = [(call, range(step, step + 1)) for step in range(3) for call in (a, b)]
    assert list(phase_order([a, b], 3, serialised=False)) == step_by_step


def test_the_samples_of_every_step_are_stored() -> None:
    samples = Samples(np.arange(40 * 64, dtype=np.float32).reshape(40, 64), np.arange(40))
    with ArrayFile(SMALL.buffers()) as memory:
        feed(memory, SMALL, samples, update=1)
        assert memory.load("label", 0, 1).tolist() == [32, 33, 34, 35, 36, 37, 38, 39]
        assert memory.load("image", 0, 1)[0, 0] == 32 * 64


def test_gradients_are_those_of_the_loss() -> None:
    x, labels = (array[:8].astype(kind) for array, kind in zip(DIGITS, ("float64", "int64"), strict=True))
    network = Network(n_hidden=5, n_inner=2)
    variables = [variable.astype(np.float64) for variable in initial_variables(network)]
    loss, gradients = loss_and_gradients(variables, x, labels)
    assert loss == loss_of(variables, x, labels)
    assert [gradient.shape for gradient in gradients] == [variable.shape for variable in variables]
    for variable, gradient in zip(variables, gradients, strict=True):
        index = np.unravel_index(abs(gradient).argmax(), gradient.shape)
        losses = []
        for step in (1e-6, -2e-6):
            variable[index] += step
            losses.append(loss_of(variables, x, labels))
        variable[index] += 1e-6
        np.testing.assert_allclose(gradient[index], (losses[0] - losses[1]) / 2e-6, rtol=1e-6)


def loss_of(variables: list[Array], x: Array, labels: Array) -> float:
    """The loss of a micro-batch, by the forward functions only."""
    *hidden, last = zip(variables[::2], variables[1::2], strict=True)
    for layer in hidden:
        x = forward(layer, (x,)).stored[0]
    return float(output(last, (x, labels)).stored[1])


def test_training_on_a_few_samples_reduces_the_loss_to_almost_zero() -> None:
    samples = Samples(*(array[:32] for array in DIGITS))
    losses = training._train_whole(Network(n_hidden=64), samples, 60)
    assert losses[0].mean() > 2
    assert losses[-1].mean() < 0.1
