"""The same training with everything in memory at once: what phased execution is compared with."""

from __future__ import annotations

from itertools import chain

import numpy as np

from autoauto.targets.host.budget import Limited, run_alone
from autoauto.targets.host.network import STATE, Network, Samples, adam, backward, first_backward, forward, output
from autoauto.targets.host.streaming import Array


def train_whole(network: Network, samples: Samples, n_updates: int, budget_bytes: int | None = None) -> Limited[Array]:
    """Train in one process that holds the whole model; losses (updates, steps).

    Raises:
        OutOfMemory: the budget does not hold the whole model.
    """
    return run_alone(_train, network, samples, n_updates, budget_bytes=budget_bytes)


def _train(network: Network, samples: Samples, n_updates: int) -> Array:
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
