"""The loop of a phase over its micro-batches: the order of its actions, and a walk through them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from autoauto.records.phased import IoMode

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
