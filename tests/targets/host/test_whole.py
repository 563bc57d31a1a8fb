"""Whole training against gradients by finite differences of the whole network."""

from __future__ import annotations

import numpy as np

from autoauto.targets.host.digits import digits
from autoauto.targets.host.network import Network, forward, output
from autoauto.targets.host.streaming import Array
from autoauto.targets.host.whole import _first_layers, _step, _train

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
