"""Orders of loads, computes and stores, and the walk through them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from autoauto.records.phased import IoMode
from autoauto.runtimes.phased_training.network import Call, Computed, Place
from autoauto.runtimes.phased_training.phase import (
    ORDERS,
    add,
    learn,
    load_all,
    mover,
    overlapped,
    run_phase,
    serial,
    store_all,
    sums_of,
    walk,
)
from autoauto.targets.host.transport.array_file import Array, Buffer, StreamingMemory


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


STEPS = 4


def array(value: float) -> Array:
    return np.array([value], np.float32)


def times(variables: Sequence[Array], loaded: Sequence[Array]) -> Computed:
    """y = w x, with x as the gradient of w."""
    return Computed((variables[0] * loaded[0],), (loaded[0].copy(),))


W = Place("w", 1)
CALL = Call("times", 1, times, (W,), (Place("x", 0),), (Place("x", 1),), (W,))


@pytest.fixture
def memory() -> Iterator[StreamingMemory]:
    names = ("w", "w.first", "w.second", "w.sum")
    with StreamingMemory([Buffer.of("x", (1,), 2, STEPS), *(Buffer.of(name, (1,), 2) for name in names)]) as memory:
        memory.store("w", 1, 0, array(10))
        for step in range(STEPS):
            memory.store("x", 0, step, array(step + 1))
        yield memory


@pytest.mark.parametrize("io_mode", IoMode)
def test_a_phase_runs_all_its_steps(memory: StreamingMemory, io_mode: IoMode) -> None:
    with mover(io_mode) as start_move:
        sums = run_phase(memory, CALL, range(STEPS), io_mode, start_move)
    assert sums == [[1 + 2 + 3 + 4]]
    assert [memory.load("x", 1, step) for step in range(STEPS)] == [10, 20, 30, 40]
    assert not memory.load("w.sum", 1).any()


def test_a_later_start_goes_on_with_the_stored_sums(memory: StreamingMemory) -> None:
    memory.store("w.sum", 1, 0, array(100))
    with mover(IoMode.COMPUTE) as start_move:
        assert run_phase(memory, CALL, range(2, 4), IoMode.COMPUTE, start_move) == [[107]]
        assert run_phase(memory, CALL, range(2), IoMode.COMPUTE, start_move) == [[3]]


def test_learning_uses_the_mean_gradient_and_its_own_row(memory: StreamingMemory) -> None:
    sums = [array(8)]
    learn(memory, CALL, sums, STEPS, learning_rate=0.1)
    assert sums == []
    first, second = 0.1 * 2, 0.001 * 4
    expected = 10 - 0.1 * first / (second**0.5 + 1e-5)
    row = [Place(name, 1) for name in ("w", "w.first", "w.second")]
    np.testing.assert_allclose(np.concatenate(load_all(memory, row)), [expected, first, second], rtol=1e-6)
    assert not any(memory.load(name, 0) for name, _ in row)


def test_the_first_gradients_become_the_sums() -> None:
    sums: list[Array] = []
    first = np.ones(2)
    add(sums, [first])
    add(sums, [np.array([1.0, 2.0])])
    assert sums[0] is first
    assert sums[0].tolist() == [2, 3]


def test_places(memory: StreamingMemory) -> None:
    assert sums_of(CALL) == (("w.sum", 1),)
    store_all(memory, [Place("x", 0), Place("x", 1)], [array(7), array(8)], step=3)
    assert load_all(memory, [Place("x", 1), Place("x", 0)], step=3) == [8, 7]
