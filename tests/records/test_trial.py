from collections.abc import Callable
from dataclasses import replace

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from autoauto.records.trial import Knobs, Outcome, SearchSpace, Strategy


def test_the_default_space_has_1152_configurations() -> None:
    assert SearchSpace().n_configurations == 3 * 3 * 128 == 1152


@pytest.mark.parametrize("knobs", [(0, 0.6, 1), (1, 0.0, 1), (1, 1.1, 1), (1, float("nan"), 1), (1, 0.6, 0)])
def test_impossible_knobs_are_refused(knobs: tuple[int, float, int]) -> None:
    with pytest.raises(BadInput, match=r"must be .*, got"):
        Knobs(*knobs)


@pytest.mark.parametrize(
    "space",
    [
        lambda: SearchSpace(n_ipu=()),
        lambda: SearchSpace(n_ipu=(1, 1)),
        lambda: SearchSpace(n_ipu=(0,)),
        lambda: SearchSpace(memory_proportion=(2.0,)),
        lambda: SearchSpace(batch_size=(4, 2)),
        lambda: SearchSpace(schedule=(Order.INFERENCE, Order.GPIPE), n_micro_batches=(8,)),
        lambda: SearchSpace(n_ipu=(2, 4), schedule=(Order.POPART,), n_micro_batches=(6,)),  # 4 devices need 7
        lambda: SearchSpace(schedule=(Order.INTERLEAVED,), n_micro_batches=(8,)),
        lambda: SearchSpace(recompute=(True,)),
    ],
)
def test_impossible_spaces_are_refused(space: Callable[[], SearchSpace]) -> None:
    with pytest.raises(BadInput):
        space()


def test_cells_hold_all_configurations_by_batch_size() -> None:
    space = SearchSpace((1, 2), (0.6,), (1, 3), (Order.GPIPE, Order.POPART), (False, True), (4, 8))
    assert space.training
    assert len(space.cells) == 2 * 2 * 2 * 2
    assert sum(map(len, space.cells)) == space.n_configurations == 32
    first, last = space.cells[0][1], space.cells[-1][0]
    assert first == Knobs(1, 0.6, 3, Order.GPIPE, False, 4)
    assert last == Knobs(2, 0.6, 1, Order.POPART, True, 8)
    assert first in space
    assert Knobs(1, 0.6, 3) not in space


def test_phases_join_the_grid() -> None:
    both = SearchSpace((1, 2), (0.6,), (1, 3), strategy=tuple(Strategy), steps=(4, 8))
    assert both.n_configurations == 2 * (2 + 2 * 2)
    phased = Knobs(2, 0.6, 3, n_micro_batches=8, strategy=Strategy.PHASED)
    assert phased in both
    assert phased.n_samples == 2 * 3 * 8
    training = replace(both, schedule=(Order.GPIPE,), n_micro_batches=(8,), recompute=(False, True))
    assert Knobs(2, 0.6, 3, Order.SEQUENTIAL, True, 4, Strategy.PHASED) in training


def test_a_step_of_training_has_the_samples_of_all_micro_batches() -> None:
    assert Knobs(2, 0.6, 3, Order.ONE_F_ONE_B, n_micro_batches=8).n_samples == 24
    assert Knobs(2, 0.6, 3).n_samples == 3


def test_an_outcome_fits_when_it_was_measured() -> None:
    assert not Outcome(Knobs(1, 0.6, 1), None, None, 0.0, 0.0, 5, 10, "too large").fits
