"""One phase: gradients are summed over steps, wherever the sums lie in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from autoauto.records.phased import IoMode
from autoauto.targets.host.loop import mover
from autoauto.targets.host.network import Call, Computed, Place
from autoauto.targets.host.phase import add, learn, load_all, run_phase, store_all, sums_of
from autoauto.targets.host.streaming import Array, Buffer, StreamingMemory

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
