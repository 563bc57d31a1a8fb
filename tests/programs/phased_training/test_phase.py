"""A phase: the orders of its loads, computations and stores, and their execution."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from autoauto.programs.phased_training.network import BufferEntry, PhaseCall, PhaseOutput
from autoauto.programs.phased_training.training import (
    ORDERS,
    add,
    load_all,
    mover,
    overlapped,
    run_moments,
    run_phase,
    serial,
    store_all,
    sums_of,
    update_variables,
)
from autoauto.records.plans.phased import IoMode
from autoauto.records.units import Array
from autoauto.targets.host.transport.shared_memory import ArrayFile, Buffer
from tests.running import PATIENCE_S

STEPS = 4


def array(value: float) -> Array:
    return np.array([value], np.float32)


def multiply(variables: Sequence[Array], loaded: Sequence[Array]) -> PhaseOutput:
    """y = w x, with x as the gradient of w."""
    return PhaseOutput((variables[0] * loaded[0],), (loaded[0].copy(),))


W = BufferEntry("w", 1)
CALL = PhaseCall("multiply", 1, multiply, (W,), (BufferEntry("x", 0),), (BufferEntry("x", 1),), (W,))


def test_the_overlapped_order_is_the_documented_one(vectors: Callable[[str], Any]) -> None:
    documented = vectors("batch_serialise")["overlapped_order"]
    assert len(documented) > 2
    for steps, moments in documented.items():
        assert [[list(action) for action in moment] for moment in overlapped(range(int(steps)))] == moments


def test_a_single_step_has_the_same_order_with_and_without_overlap() -> None:
    assert list(overlapped([5])) == list(serial([5]))


@pytest.mark.parametrize("io_mode", IoMode)
@pytest.mark.parametrize("steps", [range(1), range(2), range(7), range(3, 4), range(2, 6)])
def test_every_step_is_loaded_computed_and_stored(io_mode: IoMode, steps: range) -> None:
    stored: dict[int, tuple[int, int]] = {}
    with mover(io_mode) as start_move:
        run_moments(ORDERS[io_mode](steps), lambda i: 10 * i, lambda i, x: (i, x), stored.__setitem__, start_move)
    assert stored == {i: (i, 10 * i) for i in steps}


@pytest.mark.parametrize(("io_mode", "here"), [(IoMode.COMPUTE, True), (IoMode.IO, False)])
def test_the_computing_thread_moves_data_only_in_compute_mode(io_mode: IoMode, here: bool) -> None:
    threads: list[int] = []
    with mover(io_mode) as start_move:
        start_move(lambda: threads.append(threading.get_ident()))()
    assert (threads == [threading.get_ident()]) is here


def test_the_loader_loads_the_next_step_while_a_step_is_computed() -> None:
    """Step 0 is computed until step 1 has been loaded; in a serial loop the wait would fail."""
    loaded = [threading.Event() for _ in range(2)]

    def compute(step: int, _: None) -> bool:
        return loaded[min(step + 1, 1)].wait(PATIENCE_S)

    stored: dict[int, bool] = {}
    with mover(IoMode.IO_OVERLAPPED) as start_move:
        run_moments(overlapped(range(2)), lambda i: loaded[i].set(), compute, stored.__setitem__, start_move)
    assert stored == {0: True, 1: True}


@pytest.mark.parametrize("io_mode", IoMode)
def test_the_first_failure_is_raised(io_mode: IoMode) -> None:
    def load(step: int) -> float:
        return 1 / (2 - step)

    with pytest.raises(ZeroDivisionError), mover(io_mode) as start_move:
        run_moments(ORDERS[io_mode](range(4)), load, lambda i, x: x, lambda i, y: None, start_move)


@pytest.fixture
def memory() -> Iterator[ArrayFile]:
    names = ("w", "w.first", "w.second", "w.sum")
    with ArrayFile([Buffer.of("x", (1,), 2, STEPS), *(Buffer.of(name, (1,), 2) for name in names)]) as memory:
        memory.store("w", 1, 0, array(10))
        for step in range(STEPS):
            memory.store("x", 0, step, array(step + 1))
        yield memory


@pytest.mark.parametrize("io_mode", IoMode)
def test_a_phase_runs_all_its_steps(memory: ArrayFile, io_mode: IoMode) -> None:
    with mover(io_mode) as start_move:
        sums = run_phase(memory, CALL, range(STEPS), io_mode, start_move)
    assert sums == [[1 + 2 + 3 + 4]]
    assert [memory.load("x", 1, step) for step in range(STEPS)] == [10, 20, 30, 40]
    assert not memory.load("w.sum", 1).any()


def test_a_later_start_continues_the_stored_sums(memory: ArrayFile) -> None:
    memory.store("w.sum", 1, 0, array(100))
    with mover(IoMode.COMPUTE) as start_move:
        assert run_phase(memory, CALL, range(2, 4), IoMode.COMPUTE, start_move) == [[107]]
        assert run_phase(memory, CALL, range(2), IoMode.COMPUTE, start_move) == [[3]]


def test_an_update_uses_the_mean_gradient_and_the_row_of_the_call(memory: ArrayFile) -> None:
    sums = [array(8)]
    update_variables(memory, CALL, sums, STEPS, learning_rate=0.1)
    assert sums == []
    first, second = 0.1 * 2, 0.001 * 4
    expected = 10 - 0.1 * first / (second**0.5 + 1e-5)
    row = [BufferEntry(name, 1) for name in ("w", "w.first", "w.second")]
    np.testing.assert_allclose(np.concatenate(load_all(memory, row)), [expected, first, second], rtol=1e-6)
    assert not any(memory.load(name, 0) for name, _ in row)


def test_the_first_gradients_become_the_sums() -> None:
    sums: list[Array] = []
    first = np.ones(2)
    add(sums, [first])
    add(sums, [np.array([1.0, 2.0])])
    assert sums[0] is first
    assert sums[0].tolist() == [2, 3]


def test_entries_are_stored_and_loaded_in_the_given_order(memory: ArrayFile) -> None:
    assert sums_of(CALL) == (("w.sum", 1),)
    store_all(memory, [BufferEntry("x", 0), BufferEntry("x", 1)], [array(7), array(8)], step=3)
    assert load_all(memory, [BufferEntry("x", 1), BufferEntry("x", 0)], step=3) == [8, 7]
