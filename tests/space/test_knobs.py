"""Configurations, the search space and objectives."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from autoauto.records.costs.profile import Optimizer, OptimizerState
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.objectives import Objective, objectives_text, parse_objectives
from autoauto.space.space import SearchSpace
from autoauto.space.table import KNOB_NAMES, TABLE, flat_value, numbers, simplicity


def test_the_default_space_has_1152_configurations() -> None:
    assert SearchSpace().n_configurations == 3 * 3 * 128 == 1152


@pytest.mark.parametrize("knobs", [(0, 0.6, 1), (1, 0.0, 1), (1, 1.1, 1), (1, float("nan"), 1), (1, 0.6, 0)])
def test_impossible_knobs_are_refused(knobs: tuple[int, float, int]) -> None:
    n_ipu, memory_proportion, batch_size = knobs
    with pytest.raises(BadInput, match=r"must be .*, got"):
        Knobs(n_ipu, batch_size, memory_proportion=memory_proportion)


@pytest.mark.parametrize(
    "space",
    [
        lambda: SearchSpace(n_ipu=()),
        lambda: SearchSpace(n_ipu=(1, 1)),
        lambda: SearchSpace(n_ipu=(0,)),
        lambda: SearchSpace(memory_proportion=(2.0,)),
        lambda: SearchSpace(batch_size=(4, 2)),
        lambda: SearchSpace(steps=(16, 0)),
        lambda: SearchSpace(schedule=(Order.INFERENCE, Order.GPIPE), n_micro_batches=(8,)),
        lambda: SearchSpace(n_ipu=(2, 4), schedule=(Order.POPART,), n_micro_batches=(6,)),  # 4 devices need 7
        lambda: SearchSpace(schedule=(Order.INTERLEAVED,), n_micro_batches=(8,)),
        lambda: SearchSpace(recompute=(True,)),
        lambda: SearchSpace(n_ipu=(4,), schedule=(Order.ZB1P,), n_micro_batches=(8_193,)),
        lambda: SearchSpace(n_ipu=(64,), schedule=(Order.GPIPE,), n_micro_batches=(10_000,)),
    ],
)
def test_impossible_spaces_are_refused(space: Callable[[], SearchSpace]) -> None:
    with pytest.raises(BadInput):
        space()


@pytest.mark.parametrize(
    ("space", "problem"),
    [
        (lambda: SearchSpace(3), "n_ipu takes a tuple of whole numbers, got 3"),  # type: ignore[arg-type]
        (lambda: SearchSpace((True,)), r"n_ipu takes a tuple of whole numbers, got \(True,\)"),
        (lambda: SearchSpace(memory_proportion=(True,)), r"takes a tuple of numbers, got \(True,\)"),
        (lambda: SearchSpace("12"), "n_ipu takes a tuple of whole numbers, got '12'"),  # type: ignore[arg-type]
        (lambda: SearchSpace((1.5,)), r"n_ipu takes a tuple of whole numbers, got \(1.5,\)"),  # type: ignore[arg-type]
        (lambda: SearchSpace(memory_proportion=("all",)), r"memory_proportion must be in \(0, 1\], got all"),
        (lambda: SearchSpace((2,), ("0.3:1.5",)), r"memory_proportion must be in \(0, 1\], got 0.3:1.5"),
        (
            lambda: SearchSpace((2, 4), ("0.3:0.2:0.1", 0.6)),
            "0.3:0.2:0.1 is for 3 devices, got n_ipu [24]; try --n-ipu 3",
        ),
        (lambda: SearchSpace(schedule="gpipe"), "the words inference, popart, gpipe, .*, got 'gpipe'"),
        (lambda: SearchSpace(recompute=("off",)), 'tuple of False, True and "auto", got'),
        (
            lambda: SearchSpace(constraints=(Constraint("latency_s < 1"),)),
            "names knobs only, got 'latency_s < 1'; give it to search",
        ),
        (lambda: SearchSpace(steps=(16, 10**30)), "steps must be a whole number from 1 to 100,000, got 1000000"),
        (lambda: SearchSpace(constraints=("n_ipus < 3",)), "did you mean 'n_ipu'"),  # type: ignore[arg-type]
    ],
)
def test_values_of_a_wrong_type_are_refused(space: Callable[[], SearchSpace], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        space()


@pytest.mark.parametrize(
    ("knobs", "name", "owner"),
    [
        (Knobs(engine="vllm", input_tokens=8, output_tokens=8), "memory_proportion", "--target ipu"),
        (Knobs(memory_proportion=0.3), "tensor_parallel", "--target gpu"),
        (Knobs(memory_proportion=0.3), "optimizer", "training"),
        (Knobs(schedule=Order.GPIPE, n_micro_batches=4), "output_tokens", "text that decoders generate"),
    ],
)
def test_a_knob_that_a_configuration_does_not_have_cannot_be_read(knobs: Knobs, name: str, owner: str) -> None:
    with pytest.raises(AttributeError, match=f"^{name} is a knob of {owner}, the configuration has "):
        getattr(knobs, name)
    assert flat_value(knobs, name) == TABLE[name].absent


def test_stage_replicas_are_for_inference_by_pipelines() -> None:
    refused = "^stage_replicas are for inference by pipelines; try --mode inference --strategy pipeline$"
    with pytest.raises(BadInput, match=refused):
        Knobs(
            n_ipu=2, memory_proportion=0.6, batch_size=1, schedule=Order.GPIPE, n_micro_batches=4, stage_replicas=True
        )
    with pytest.raises(BadInput, match=refused):
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1, strategy=Strategy.PHASED, stage_replicas=True)
    with pytest.raises(BadInput, match=refused):
        SearchSpace((2,), (0.6,), (1,), schedule=(Order.GPIPE,), n_micro_batches=(4,), stage_replicas=(False, True))


def test_cells_differ_in_stage_replicas_and_constraints_see_them() -> None:
    space = SearchSpace((1, 2), (0.6,), (1, 2), stage_replicas=(False, True))
    assert space.n_configurations == 8
    assert Knobs(n_ipu=2, memory_proportion=0.6, batch_size=2, stage_replicas=True) in space
    some = space.with_values(constraints=(Constraint("n_ipu > 1 or stage_replicas == 0"),))
    assert [(cell[0].n_ipu, cell[0].mode.stage_replicas) for cell in some.cells] == [(1, False), (2, False), (2, True)]
    assert Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1, stage_replicas=True) not in some
    plain, shared = (
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4),
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1, stage_replicas=True),
    )
    assert simplicity(plain) < simplicity(shared)
    phased = SearchSpace((2,), (0.6,), (1,), strategy=tuple(Strategy), stage_replicas=(True,))
    assert [cell[0].mode.stage_replicas for cell in phased.cells] == [True, False]


def test_lists_ranges_and_arrays_are_read_like_tuples() -> None:
    arrays = {"schedule": np.array(["gpipe"]), "n_micro_batches": np.array([8])}
    space = SearchSpace([1, 2], np.array([0.25, 0.5]), range(1, 3), **arrays)  # type: ignore[arg-type]
    assert space == SearchSpace((1, 2), (0.25, 0.5), (1, 2), schedule=(Order.GPIPE,), n_micro_batches=(8,))
    assert {type(value) for value in (*space["n_ipu"], *space["batch_size"], *space["n_micro_batches"])} == {int}
    assert json.dumps(space["memory_proportion"]) == "[0.25, 0.5]"
    assert SearchSpace(constraints=["n_ipu <= 2"]).constraints == (Constraint("n_ipu <= 2"),)  # type: ignore[list-item]


def test_cells_hold_all_configurations_by_batch_size() -> None:
    space = SearchSpace(
        (1, 2), (0.6,), (1, 3), schedule=(Order.GPIPE, Order.POPART), recompute=(False, True), n_micro_batches=(4, 8)
    )
    assert space.training
    assert len(space.cells) == 2 * 2 * 2 * 2
    assert sum(map(len, space.cells)) == space.n_configurations == 32
    first, last = space.cells[0][1], space.cells[-1][0]
    assert first == Knobs(
        n_ipu=1, memory_proportion=0.6, batch_size=3, schedule=Order.GPIPE, recompute=False, n_micro_batches=4
    )
    assert last == Knobs(
        n_ipu=2, memory_proportion=0.6, batch_size=1, schedule=Order.POPART, recompute=True, n_micro_batches=8
    )
    assert first in space
    assert Knobs(n_ipu=1, memory_proportion=0.6, batch_size=3) not in space


def test_phases_join_the_grid() -> None:
    both = SearchSpace((1, 2), (0.6,), (1, 3), strategy=tuple(Strategy), steps=(4, 8))
    assert both.n_configurations == 2 * (2 + 2 * 2)
    phased = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=3, n_micro_batches=8, strategy=Strategy.PHASED)
    assert phased in both
    assert phased.n_samples == 2 * 3 * 8
    training = both.with_values(schedule=(Order.GPIPE,), n_micro_batches=(8,), recompute=(False, True))
    assert (
        Knobs(
            n_ipu=2,
            memory_proportion=0.6,
            batch_size=3,
            schedule=Order.SEQUENTIAL,
            recompute=True,
            n_micro_batches=4,
            strategy=Strategy.PHASED,
        )
        in training
    )


def test_a_step_of_training_has_the_samples_of_all_micro_batches() -> None:
    assert (
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=3, schedule=Order.ONE_F_ONE_B, n_micro_batches=8).n_samples
        == 24
    )
    assert Knobs(n_ipu=2, memory_proportion=0.6, batch_size=3).n_samples == 3


def test_replicas_multiply_devices_and_samples_and_are_for_pipelines() -> None:
    knobs = Knobs(n_ipu=2, memory_proportion=1.0, batch_size=4, replicas=3)
    assert (knobs.n_devices, knobs.n_samples) == (6, 12)
    space = SearchSpace((1,), (1.0,), (1,), replicas=(1, 2))
    assert [cell[0].replicas for cell in space.cells] == [1, 2]
    assert (
        Knobs(
            n_ipu=2, memory_proportion=1.0, batch_size=4, schedule=Order.GPIPE, n_micro_batches=5, replicas=3
        ).n_samples
        == 60
    )
    with pytest.raises(BadInput, match="try --strategy pipeline"):
        Knobs(n_ipu=1, memory_proportion=1.0, batch_size=1, replicas=2, strategy=Strategy.PHASED)
    with pytest.raises(BadInput, match="at least 1, got 0"):
        Knobs(n_ipu=1, memory_proportion=1.0, batch_size=1, replicas=0)


def test_micro_batches_that_are_too_few_for_some_pipelines_leave_the_others() -> None:
    space = SearchSpace((1, 4), (0.6,), (2,), schedule=(Order.POPART, Order.GPIPE), n_micro_batches=(1, 8))
    choices = {(cell[0].mode.order, cell[0].n_ipu, cell[0].mode.n_micro_batches) for cell in space.cells}
    assert choices == {
        (order, n_ipu, m) for order in (Order.POPART, Order.GPIPE) for n_ipu in (1, 4) for m in (1, 8)
    } - {
        (Order.POPART, 4, 1)  # needs 7
    }
    with pytest.raises(BadInput, match="at least 7, got 1"):
        SearchSpace((4,), (0.6,), (2,), schedule=(Order.POPART,), n_micro_batches=(1,))
    with pytest.raises(BadInput, match="at least 7, got 2"):
        SearchSpace((4,), (0.6,), (2,), schedule=(Order.POPART,), n_micro_batches=(1, 2))


def test_an_optimizer_is_for_training_by_pipelines() -> None:
    training = Knobs(
        n_ipu=2,
        memory_proportion=1.0,
        batch_size=4,
        schedule=Order.GPIPE,
        replicas=3,
        optimizer=Optimizer.ADAM,
        shard_optimizer=True,
    )
    assert training.weight_update == (Optimizer.ADAM, False, 3, False)
    assert training.with_values(shard_optimizer=False).weight_update.n_shards == 1
    streams = training.with_values(shard_optimizer=False, optimizer_state=OptimizerState.STREAMING_SHARDED)
    assert streams.weight_update == (Optimizer.ADAM, False, 3, True)
    with pytest.raises(BadInput, match="try --optimizer-state streaming-sharded"):
        training.with_values(optimizer_state=OptimizerState.STREAMING)
    for other in ({"optimizer": Optimizer.LAMB}, {"master_weights": True}, {"shard_optimizer": True}):
        with pytest.raises(BadInput, match="for training by pipelines"):
            Knobs(n_ipu=1, memory_proportion=1.0, batch_size=1, **other)
        with pytest.raises(BadInput, match="for training by pipelines"):
            Knobs(
                n_ipu=1,
                memory_proportion=1.0,
                batch_size=1,
                schedule=Order.SEQUENTIAL,
                strategy=Strategy.PHASED,
                **other,
            )


def test_a_constraint_over_knobs_shrinks_the_space() -> None:
    space = SearchSpace((1, 2, 4), (0.6,), (1, 2, 8), replicas=(1, 2), constraints=(Constraint("n_devices <= 4"),))
    small = space.with_values(constraints=(*space.constraints, Constraint("n_ipu * batch_size <= 8")))
    assert [(cell[0].n_ipu, cell[0].replicas) for cell in space.cells] == [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1)]
    assert [len(cell) for cell in small.cells] == [3, 3, 2, 2, 2]
    assert small.n_configurations == sum(knobs in small for cell in space.cells for knobs in cell) == 12
    assert Knobs(n_ipu=4, memory_proportion=0.6, batch_size=8) in space
    assert Knobs(n_ipu=4, memory_proportion=0.6, batch_size=8) not in small
    with pytest.raises(BadInput, match="no configuration of the space meets n_ipu > 4"):
        space.with_values(constraints=(Constraint("n_ipu > 4"),))


def test_every_knob_that_a_constraint_may_name_is_a_number() -> None:
    values = numbers(
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=3, schedule=Order.GPIPE, recompute=True, n_micro_batches=4)
    )
    assert tuple(values) == KNOB_NAMES
    assert (values["recompute"], values["n_samples"]) == (1.0, 12.0)


@pytest.mark.parametrize("name", ["throughput", "latency,throughput", "throughput,latency,per-device"])
def test_objectives_are_named_with_commas(name: str) -> None:
    assert objectives_text(parse_objectives(name)) == name
    assert isinstance(parse_objectives(name), Objective) == ("," not in name)


@pytest.mark.parametrize("name", ["", "speed", "latency,", "latency,latency", "latency, throughput"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match="objectives are one or more of throughput, per-device, latency"):
        parse_objectives(name)


def test_a_space_of_too_many_configurations_is_refused() -> None:
    with pytest.raises(BadInput, match=r"at most 300,000 configurations, got 1,000,000; try fewer values of n_ipu"):
        SearchSpace(tuple(range(1, 1001)), (0.6,), tuple(range(1, 1001)))
