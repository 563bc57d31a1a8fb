"""One phase on the device: `run_phase` for its micro-batches, `learn` for its variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from autoauto.records.phased import IoMode
from autoauto.targets.host.loop import ORDERS, Mover, walk
from autoauto.targets.host.network import STATE, Call, Place, adam
from autoauto.targets.host.streaming import Array, StreamingMemory


def run_phase(
    memory: StreamingMemory, call: Call, steps: Sequence[int], io_mode: IoMode, start_move: Mover
) -> list[Array]:
    """Load the variables; load, compute and store each of consecutive steps; return the sums of gradients so far.

    The sums start at step 0; a phase that starts later goes on with the sums that streaming memory holds.
    """
    variables = load_all(memory, call.variables)
    sums = load_all(memory, sums_of(call)) if steps[0] else []

    def compute(step: int, loaded: list[Array]) -> Sequence[Array]:
        stored, gradients = call.graph(variables, loaded)
        add(sums, gradients)
        return stored

    walk(
        ORDERS[io_mode](steps),
        lambda step: load_all(memory, call.loads, step),
        compute,
        lambda step, stored: store_all(memory, call.stores, stored, step),
        start_move,
    )
    return sums


def learn(memory: StreamingMemory, call: Call, sums: list[Array], steps: int, learning_rate: float) -> None:
    """Update the variables of a phase, one at a time, by the mean gradient of `steps` micro-batches; empties `sums`."""
    for name, row in reversed(call.trained):
        gradient = sums.pop()
        gradient /= steps
        places = [Place(name, row), *(Place(f"{name}.{state}", row) for state in STATE)]
        updated = load_all(memory, places)
        adam(gradient, learning_rate, *updated)
        store_all(memory, places, updated)
        del gradient, updated  # before the next variable is loaded


def sums_of(call: Call) -> tuple[Place, ...]:
    """Where the sums of gradients lie between two steps of the naive loop."""
    return tuple(Place(f"{name}.sum", row) for name, row in call.trained)


def add(sums: list[Array], gradients: Iterable[Array]) -> None:
    """Add in place; the first gradients become the sums."""
    if not sums:
        sums.extend(gradients)
        return
    for total, gradient in zip(sums, gradients, strict=True):
        np.add(total, gradient, out=total)


def load_all(memory: StreamingMemory, places: Iterable[Place], step: int = 0) -> list[Array]:
    """Load an entry from each place."""
    return [memory.load(name, row, step) for name, row in places]


def store_all(memory: StreamingMemory, places: Iterable[Place], arrays: Iterable[Array], step: int = 0) -> None:
    """Store an array to each place."""
    for (name, row), array in zip(places, arrays, strict=True):
        memory.store(name, row, step, array)
