"""A memory proportion for each device of a pipeline: planned, cut as given and measured with that of every stage."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.records.errors import BadInput, Mismatch
from autoauto.records.hardware import Cluster, DeviceKind, Link
from autoauto.records.plans.plan import Plan
from autoauto.records.schedule import Order
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.space import SearchSpace
from autoauto.space.table import numbers
from autoauto.targets.ipu.session import IpuSession

MIXED = "0.1:0.6:0.3"
TRAINING = {"schedule": Order.ONE_F_ONE_B, "n_micro_batches": 12, "recompute": True}


@pytest.fixture(scope="module")
def resnet() -> Flow:
    return load_flow("resnet50", "bow-pod16")


def knobs_of(proportion: float | str, **values: Any) -> Knobs:
    return Knobs(n_ipu=3, batch_size=32, memory_proportion=proportion, **values)


def test_every_device_has_the_ranges_of_its_own_proportion(resnet: Flow) -> None:
    mixed = resnet.plans.costs.pipeline_table(knobs_of(MIXED))
    for device, proportion in enumerate((0.1, 0.6, 0.3)):
        alone = resnet.plans.costs.pipeline_table(knobs_of(proportion))
        assert mixed.compute_cycles(10, 40, device) == alone.compute_cycles(10, 40, device)
        assert mixed.memory_bytes(10, 40, device) == alone.memory_bytes(10, 40, device)
    assert len({mixed.compute_cycles(10, 40, device) for device in range(3)}) > 1


@pytest.mark.parametrize("values", [{}, TRAINING])
def test_given_cuts_are_priced_and_measured_by_device(resnet: Flow, values: dict[str, Any]) -> None:
    cuts = (0, 40, 80, len(resnet.graph))

    def stages(proportion: float | str) -> tuple[Plan, Plan]:
        plan = resnet.plans.cut_at(knobs_of(proportion, **values), cuts)
        return plan, resnet.measure(knobs_of(proportion, **values), plan).plan

    mixed = stages(MIXED)
    for device, proportion in enumerate((0.1, 0.6, 0.3)):
        for together, alone in zip(mixed, stages(proportion), strict=True):
            assert together.stages[device] == alone.stages[device]


def test_equal_proportions_are_one(resnet: Flow) -> None:
    assert resnet.plans.best(knobs_of("0.3:0.3:0.3")) == resnet.plans.best(knobs_of(0.3))


@pytest.mark.parametrize("values", [{}, TRAINING])
def test_the_plan_lies_between_those_of_the_smallest_and_the_largest_proportion(
    resnet: Flow, values: dict[str, Any]
) -> None:
    best = [resnet.expect(knobs_of(each, **values)).samples_per_s for each in (0.1, MIXED, 0.6)]
    assert best == sorted(best)
    assert len(set(best)) == 3


def test_the_plan_is_the_cheapest_of_all(resnet: Flow) -> None:
    knobs, table = knobs_of(MIXED), resnet.plans.costs.pipeline_table(knobs_of(MIXED))
    allowed = [cut for cut in range(1, len(resnet.graph), 6) if table.cut_allowed[cut]]
    best = resnet.plans.best(knobs).cost_cycles
    for inner in combinations(allowed, 2):
        plan = resnet.plans.cut_at(knobs, (0, *inner, len(resnet.graph)))
        assert plan.excess_bytes > 0 or plan.cost_cycles >= best


def test_a_space_has_them_where_their_number_is_that_of_the_devices() -> None:
    space = SearchSpace((1, 2, 4), (0.6, "0.3:0.6", "0.1:.2:0.20:0.2"), (8,))
    proportions = {(knobs.n_ipu, knobs.session.values["memory_proportion"]) for cell in space.cells for knobs in cell}
    assert proportions == {(1, 0.6), (2, 0.6), (4, 0.6), (2, "0.3:0.6"), (4, "0.1:0.2:0.2:0.2")}
    within = SearchSpace((2,), (0.6, "0.3:0.5", "0.3:0.7"), (8,), constraints=(Constraint("memory_proportion <= 0.6"),))
    assert [knobs.session for cell in within.cells for knobs in cell] == [IpuSession(0.6), IpuSession("0.3:0.5")]
    assert numbers(Knobs(n_ipu=2, memory_proportion="0.3:0.7"))["memory_proportion"] == 0.7


def test_what_has_no_line_of_devices_is_refused(resnet: Flow) -> None:
    first = resnet.cluster.devices[0]
    link, slow = Link(1e9, 0), replace(first, name="slow", clock_hz=1e9)
    ipus = (DeviceKind(first, 2, link, link), DeviceKind(slow, 2, link, link))
    unordered = resnet.with_setting(cluster=Cluster.of_kinds("mixed", "ipu", ipus))
    with pytest.raises(Mismatch, match="is for 3 devices, got n_ipu 2; try --n-ipu 3, or one number"):
        Knobs(n_ipu=2, memory_proportion=MIXED)
    with pytest.raises(Mismatch, match="phases have one memory_proportion"):
        Knobs(n_ipu=3, memory_proportion=MIXED, strategy=Strategy.PHASED)
    with pytest.raises(BadInput, match=r"0\.1:0\.6:0\.3 needs devices in a given order"):
        unordered.expect(knobs_of(MIXED))
    with pytest.raises(BadInput, match="like devices"):
        resnet.expect(knobs_of(MIXED, stage_replicas=True))
