"""A phase over its micro-batches, `run_phase`: the orders of its actions, and their execution, `run_moments`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import numpy as np

from autoauto.programs.phased_training.network import STATE, BufferEntry, PhaseCall, adam
from autoauto.records.plans.phased import IoMode
from autoauto.records.units import Array
from autoauto.targets.host.transport.shared_memory import ArrayFile

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
    """While a step is computed, the next one is loaded and then the previous one stored [popxl-phased].

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
