"""Objectives: what they need of devices, and their values as far as a trial has them."""

from dataclasses import replace

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, DeviceKind, Link
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.numbers import DeviceTotals, Result
from autoauto.space.objectives import Objective, scores_of, shown_values, values_of
from autoauto.space.trial import Status, Trial
from autoauto.targets.clusters import load_cluster
from autoauto.targets.gpu.session import GpuSession


@pytest.mark.parametrize("objective", Objective)
def test_a_value_follows_from_its_score(objective: Objective) -> None:
    assert objective.value_of(objective.score(0.25)) == 0.25


def test_devices_without_the_quantity_of_an_objective_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for objective in (Objective.THROUGHPUT, Objective.PER_DEVICE, Objective.LATENCY):
        objective.check(load_cluster("bow-2000"))
    with pytest.raises(BadInput, match=r"^--objective cost needs price_per_hour of every device, bow-2000 has none "):
        Objective.COST.check(load_cluster("bow-2000"))
    monkeypatch.setattr(Objective.LATENCY, "_quantity", "fp8")
    Objective.LATENCY.check(load_cluster("c600"))
    with pytest.raises(BadInput, match=r"^--objective latency needs fp8 of every device, bow-2000 has none of bow; "):
        Objective.LATENCY.check(load_cluster("bow-2000"))


def test_values_without_plans_are_numbers_or_what_the_study_stores() -> None:
    objectives = (Objective.PER_DEVICE, Objective.LATENCY)
    trial = Trial(Knobs(), Status.OK, latency_s=0.5, values=(3e5, 0.25))
    assert shown_values(objectives, trial) == (3e5, 0.5)
    assert shown_values(objectives, Trial(Knobs(), Status.TIME_OUT)) == (None, None)


PIPELINES = Trial(
    Knobs(n_ipu=2, replicas=3, batch_size=4),
    Status.OK,
    result=Result(60.0, 50.0, 0.25, devices=DeviceTotals(0.432, 150.0)),
    number=0,
)


@pytest.mark.parametrize(
    ("objective", "value", "worth"),
    [
        (Objective.THROUGHPUT, 60.0, 60.0),
        (Objective.LATENCY, 0.25, 4.0),
        (Objective.COST, 2.0, 10.0),  # 0.432 dollars buy 216,000 samples; of one of six devices 10 a second
        (Objective.ENERGY, 2.5, 10.0),  # 150 W by 60 a second
        (Objective.DEVICES, 6.0, 1 / 6),
    ],
)
def test_values_by_hand(objective: Objective, value: float, worth: float) -> None:
    assert objective.of(PIPELINES) == pytest.approx(value)
    assert objective.worth(PIPELINES) == pytest.approx(worth)
    assert values_of(objective, PIPELINES) == pytest.approx((value,))


def test_cycles_of_devices_by_hand() -> None:
    """110 cycles for four samples by each of three pipelines on six devices; a step of 3 micro-batches takes 900."""
    of = Objective.PER_DEVICE.of
    stage = Stage(LayerRange(0, 2), 0, 100, 0, 4, 6, {"parameter": 70}, 100)
    plan = Plan((stage,))
    pipelines = replace(PIPELINES, measured=plan)
    assert of(pipelines) == 110 * 6 / 12
    step = Knobs(n_ipu=2, batch_size=4, schedule=Order.GPIPE, n_micro_batches=3)
    assert of(Trial(step, Status.OK, measured=plan, makespan_cycles=900.0)) == 900 * 2 / 12
    text = Knobs(1, 8, session=GpuSession("vllm", 2), mode=Generation(9, 9))
    assert of(Trial(text, Status.OK, measured=plan, tokens_per_s=400.0)) == 1e9 * 2 / 400
    assert Objective.PER_DEVICE.worth(pipelines) == 10.0


def test_facts_of_objectives() -> None:
    facts = {
        str(each): (each.direction, each.per_device, each.follows_throughput, each.is_throughput, each.metric_name)
        for each in Objective
    }
    assert facts == {
        "throughput": ("maximize", False, True, True, "throughput (samples/s)"),
        "per-device": ("minimize", True, True, False, "cost (cycles x n_ipu / sample)"),
        "latency": ("minimize", False, False, False, "latency (s)"),
        "cost": ("minimize", True, True, False, "price (USD / million)"),
        "energy": ("minimize", True, True, False, "energy at most (J / sample)"),
        "devices": ("minimize", False, False, False, "number used (devices)"),
    }


def test_unlike_devices_are_refused_where_they_are_counted_or_cost() -> None:
    kinds = (
        DeviceKind(Device(name, 1e9, 1, 1, 1, power_limit_w=power), 2, Link(1e9, 0), Link(1e9, 0))
        for name, power in (("a", 100.0), ("b", 200.0))
    )
    unlike = Cluster.of_kinds("unlike", "ipu", tuple(kinds))
    for objective in (Objective.THROUGHPUT, Objective.LATENCY, Objective.PER_DEVICE):
        objective.check(unlike)
    with pytest.raises(BadInput, match="counts devices of one kind, unlike has several"):
        Objective.DEVICES.check(unlike)
    Objective.DEVICES.check(load_cluster("c600"))
    with pytest.raises(BadInput, match=r"energy needs devices of one power_limit_w, .* has kinds that differ"):
        Objective.ENERGY.check(unlike)


def test_scores_are_those_of_each_objective() -> None:
    both = (Objective.THROUGHPUT, Objective.LATENCY)
    assert values_of(both, PIPELINES) == (60.0, 0.25)
    assert scores_of(both, (60.0, 0.25)) == (60.0, 4.0)
