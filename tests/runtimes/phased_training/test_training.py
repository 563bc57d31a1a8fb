"""Phased training: the losses of the whole network, under a budget that the whole network exceeds."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from autoauto.records.errors import OutOfMemory
from autoauto.records.phased import IoMode
from autoauto.records.units import MIB
from autoauto.runtimes.phased_training import training as phased
from autoauto.runtimes.phased_training import training as whole
from autoauto.runtimes.phased_training.network import Network, Samples, digits, forward, output
from autoauto.runtimes.phased_training.phase import mover
from autoauto.runtimes.phased_training.training import (
    Loop,
    _first_layers,
    _step,
    _train,
    feed,
    fill,
    order,
    run_update,
    train_phased,
    train_whole,
)
from autoauto.targets.host.transport.array_file import Array, StreamingMemory

LOOPS = [Loop(serialised, io_mode) for serialised, io_mode in product((True, False), IoMode)]
SMALL = Network(n_hidden=32, steps=3)
LARGE, BUDGET_BYTES = Network(n_hidden=512, steps=2), 6 * MIB
RTOL = 1e-6
"""Of float32: less than ten units in the last place. So far all losses have been equal bit by bit."""


@pytest.fixture(scope="module")
def whole_losses() -> Array:
    """50 updates of the small network in memory."""
    return whole._train(SMALL, digits(), 50)


@pytest.mark.parametrize("loop", LOOPS)
def test_losses_are_those_of_the_whole_network(whole_losses: Array, loop: Loop) -> None:
    losses = phased._train(SMALL, digits(), 50, loop).losses
    assert losses.shape == (50, 3)
    np.testing.assert_allclose(losses, whole_losses, rtol=RTOL)


def test_it_learns(whole_losses: Array) -> None:
    assert whole_losses[:5].mean() > 2
    assert whole_losses[-5:].mean() < 1.5


@pytest.mark.parametrize("n_inner", [1, 3])
def test_other_depths(n_inner: int) -> None:
    network = Network(n_hidden=16, n_inner=n_inner, steps=2)
    losses = phased._train(network, digits(), 5, Loop()).losses
    np.testing.assert_allclose(losses, whole._train(network, digits(), 5), rtol=RTOL)


def test_phased_fits_where_the_whole_network_does_not() -> None:
    assert LARGE.learned_bytes > BUDGET_BYTES
    ran = train_phased(LARGE, digits(), 2, Loop(), BUDGET_BYTES)
    assert ran.result.loads.n_bytes > 2 * BUDGET_BYTES
    assert ran.limit_bytes == ran.overhead_bytes + BUDGET_BYTES
    with pytest.raises(OutOfMemory, match=r"a budget of 6.0 MiB does not suffice: Unable to allocate") as failure:
        train_whole(LARGE, digits(), 2, BUDGET_BYTES)
    assert failure.value.excess_bytes > 0


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_losses_under_a_budget_are_those_of_the_whole_network(large_losses: Array, loop: Loop) -> None:
    losses = train_phased(LARGE, digits(), 50, loop, BUDGET_BYTES).result.losses
    np.testing.assert_allclose(losses, large_losses, rtol=RTOL)


@pytest.fixture(scope="module")
def large_losses() -> Array:
    """50 updates of the large network, in a process without a budget."""
    return train_whole(LARGE, digits(), 50).result


def test_serialised_loads_each_variable_once_and_naive_at_every_step() -> None:
    """Four reads of a layer's weights in an update: two inner layers, forward and backward."""
    network = Network(n_hidden=8, steps=5)
    serialised, naive = loaded(network, Loop(True)), loaded(network, Loop(False))
    learning = 2  # each inner layer's weights once more, to learn
    assert serialised["inner.w"] - learning == 4
    assert naive["inner.w"] - learning == 4 * 5
    assert (serialised["inner.w.sum"], naive["inner.w.sum"]) == (0, 2 * (5 - 1))
    assert serialised["x"] == naive["x"] == 5 * (2 + 1 + 2)


def loaded(network: Network, loop: Loop) -> Counter[str]:
    """How often each buffer is loaded in one update."""
    counted: Counter[str] = Counter()

    class Counting(StreamingMemory):
        def load(self, name: str, row: int, step: int = 0) -> Array:
            counted[name] += 1
            return super().load(name, row, step)

    with Counting(network.buffers()) as memory, mover(loop.io_mode) as start_move:
        fill(memory, network)
        feed(memory, network, digits(), 0)
        run_update(memory, network, network.steps, loop, start_move)
    return counted


def test_order() -> None:
    a, b, *_ = SMALL.calls
    assert list(order([a, b], 3, serialised=True)) == [(a, range(3)), (b, range(3))]
    one_by_one = [(call, range(step, step + 1)) for step in range(3) for call in (a, b)]
    assert list(order([a, b], 3, serialised=False)) == one_by_one


def test_the_host_feeds_every_step() -> None:
    samples = Samples(np.arange(40 * 64, dtype=np.float32).reshape(40, 64), np.arange(40))
    with StreamingMemory(SMALL.buffers()) as memory:
        feed(memory, SMALL, samples, update=1)
        assert memory.load("label", 0, 1).tolist() == [32, 33, 34, 35, 36, 37, 38, 39]
        assert memory.load("image", 0, 1)[0, 0] == 32 * 64


NETWORK = Network(n_hidden=5, n_inner=2)


def test_gradients_are_those_of_the_loss() -> None:
    x, labels = (array[:8].astype(kind) for array, kind in zip(digits(), ("float64", "int64"), strict=True))
    variables = [w_or_b.astype(np.float64) for layer in _first_layers(NETWORK) for w_or_b in layer]
    loss, gradients = _step(variables, x, labels)
    assert loss == loss_of(variables, x, labels)
    assert [gradient.shape for gradient in gradients] == [variable.shape for variable in variables]
    for variable, gradient in zip(variables, gradients, strict=True):
        index = np.unravel_index(abs(gradient).argmax(), gradient.shape)
        ends = []
        for step in (1e-6, -2e-6):
            variable[index] += step
            ends.append(loss_of(variables, x, labels))
        variable[index] += 1e-6
        np.testing.assert_allclose(gradient[index], (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


def loss_of(variables: list[Array], x: Array, labels: Array) -> float:
    """Forward only."""
    *hidden, last = zip(variables[::2], variables[1::2], strict=True)
    for layer in hidden:
        x = forward(layer, (x,)).stored[0]
    return float(output(last, (x, labels)).stored[1])


def test_it_learns_what_it_sees_again_and_again() -> None:
    few = type(digits())(*(array[:32] for array in digits()))
    losses = _train(Network(n_hidden=64), few, 60)
    assert losses[0].mean() > 2
    assert losses[-1].mean() < 0.1
