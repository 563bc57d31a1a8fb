"""The loop of a phase over its micro-batches: the order of its actions, and a walk through them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import numpy as np

from autoauto.records.phased import IoMode
from autoauto.runtimes.phased_training.network import STATE, Call, Place, adam
from autoauto.targets.host.transport.array_file import Array, StreamingMemory

Loaded = TypeVar("Loaded")
Stored = TypeVar("Stored")
Moment = tuple[tuple[str, int], ...]
"""Actions that run at the same time, each "load", "compute" or "store" with its step."""
Mover = Callable[[Callable[[], None]], Callable[[], object]]
"""Starts a move; what it returns waits for the end of the move."""


def serial(steps: Sequence[int]) -> Iterator[Moment]:
    """One action after the other.

    >>> list(serial([7]))
    [(('load', 7),), (('compute', 7),), (('store', 7),)]
    """
    for step in steps:
        yield from (((kind, step),) for kind in ("load", "compute", "store"))


def overlapped(steps: Sequence[int]) -> Iterator[Moment]:
    """While a step is computed, the next is loaded and then the one before stored (popxl-addons, IPU.md section 5).

    >>> for moment in overlapped(range(2)): print(*moment)
    ('load', 0)
    ('load', 1) ('compute', 0)
    ('store', 0) ('compute', 1)
    ('store', 1)
    """
    for i in range(len(steps) + 2):
        actions = (("load", i), ("store", i - 2), ("compute", i - 1))
        yield tuple((kind, steps[j]) for kind, j in actions if 0 <= j < len(steps))


ORDERS = {IoMode.COMPUTE: serial, IoMode.IO: serial, IoMode.IO_OVERLAPPED: overlapped}


@contextmanager
def mover(io_mode: IoMode) -> Iterator[Mover]:
    """Who moves: the thread that computes, or one loader thread (this machine's io tiles)."""
    if io_mode is IoMode.COMPUTE:
        yield _move_here
    else:
        with ThreadPoolExecutor(1, "loader") as loader:
            yield lambda move: loader.submit(move).result


def _move_here(move: Callable[[], None]) -> Callable[[], object]:
    move()
    return lambda: None


def walk(
    moments: Iterable[Moment],
    load: Callable[[int], Loaded],
    compute: Callable[[int, Loaded], Stored],
    store: Callable[[int, Stored], None],
    start_move: Mover,
) -> None:
    """Run all actions; a moment ends when all of its actions have ended."""
    loaded: dict[int, Loaded] = {}
    computed: dict[int, Stored] = {}

    def move(kind: str, step: int) -> None:
        if kind == "load":
            loaded[step] = load(step)
        else:
            store(step, computed.pop(step))

    for moment in moments:
        waits = [start_move(partial(move, kind, step)) for kind, step in moment if kind != "compute"]
        for step in (step for kind, step in moment if kind == "compute"):
            computed[step] = compute(step, loaded.pop(step))
        for wait in waits:
            wait()


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
