"""Orders of loads, computes and stores, and the walk through them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from autoauto.records.phased import IoMode
from autoauto.targets.host.loop import ORDERS, mover, overlapped, serial, walk


def test_the_overlapped_order_is_the_documented_one(vectors: Callable[[str], Any]) -> None:
    documented = vectors("batch_serialise")["overlapped_order"]
    assert len(documented) > 2
    for steps, moments in documented.items():
        assert [[list(action) for action in moment] for moment in overlapped(range(int(steps)))] == moments


def test_one_step_has_nothing_to_overlap() -> None:
    assert list(overlapped([5])) == list(serial([5]))


@pytest.mark.parametrize("io_mode", IoMode)
@pytest.mark.parametrize("steps", [range(1), range(2), range(7), range(3, 4), range(2, 6)])
def test_every_step_is_loaded_computed_and_stored(io_mode: IoMode, steps: range) -> None:
    stored: dict[int, tuple[int, int]] = {}
    with mover(io_mode) as start_move:
        walk(ORDERS[io_mode](steps), lambda i: 10 * i, lambda i, x: (i, x), stored.__setitem__, start_move)
    assert stored == {i: (i, 10 * i) for i in steps}


@pytest.mark.parametrize(("io_mode", "here"), [(IoMode.COMPUTE, True), (IoMode.IO, False)])
def test_io_is_another_thread(io_mode: IoMode, here: bool) -> None:
    threads: list[int] = []
    with mover(io_mode) as start_move:
        start_move(lambda: threads.append(threading.get_ident()))()
    assert (threads == [threading.get_ident()]) is here


def test_the_loader_works_while_a_step_is_computed() -> None:
    """Computing step 0 waits for the load of step 1: a serial loop would never end."""
    loaded = [threading.Event() for _ in range(2)]

    def compute(step: int, _: None) -> bool:
        return loaded[min(step + 1, 1)].wait(timeout=10)

    stored: dict[int, bool] = {}
    with mover(IoMode.IO_OVERLAPPED) as start_move:
        walk(overlapped(range(2)), lambda i: loaded[i].set(), compute, stored.__setitem__, start_move)
    assert stored == {0: True, 1: True}


@pytest.mark.parametrize("io_mode", IoMode)
def test_the_first_failure_comes_out(io_mode: IoMode) -> None:
    def load(step: int) -> float:
        return 1 / (2 - step)

    with pytest.raises(ZeroDivisionError), mover(io_mode) as start_move:
        walk(ORDERS[io_mode](range(4)), load, lambda i, x: x, lambda i, y: None, start_move)
