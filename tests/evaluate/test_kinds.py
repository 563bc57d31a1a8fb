"""Plans on devices of several kinds, in any order: against exhaustive search, and compiled for each kind by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product
from math import inf
from pathlib import Path

import pytest

from autoauto.evaluate.costs.layer_costs import LayerCosts
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.plan.pipeline import range_problem
from autoauto.profile.cache import ProfileCache
from autoauto.records.costs.correction import Estimator
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import CompiledRange, ProgramStep
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Cluster, Device, DeviceKind, Link, Period, Topology
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.plans.phased import PhasedOptions
from autoauto.records.plans.plan import Plan
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status
from autoauto.study.defaults import default_space
from autoauto.study.methods.simple_uses import simple_uses
from autoauto.study.search import search_flow
from tests.drawn import is_thorough
from tests.evaluate.linear import DEVICE, MIB, LinearTarget
from tests.plan.exhaustive import exhaustive

FAST = replace(DEVICE, name="fast", clock_hz=2e6, memory_bytes=40 * MIB)
SLOW = DeviceKind(DEVICE, 2, Link(1e5, 0), Link(8e4, 0))
MIXED = Cluster.of_kinds("mixed", "ipu", (SLOW, DeviceKind(FAST, 1, Link(2e5, 0), Link(5e4, 0))))
"""Tensors of 128 bytes a sample take whole cycles on every link, by either clock."""


def lines(cluster: Cluster, n_ipu: int) -> Iterator[Cluster]:
    """Every line of so many devices; the host is behind the link of whichever device is first, or last."""
    every = [kind for kind in cluster.kinds for _ in range(kind.n_devices)]
    for line in dict.fromkeys(permutations(every, n_ipu)):
        links = tuple(kind.device_link for kind in line)
        yield replace(
            cluster,
            kinds=(),
            devices=tuple(kind.device for kind in line),
            receive_links=(line[0].host_link, *links[1:]),
            send_links=(*links[:-1], line[-1].host_link),
        )


def period_s(flow: Flow, cost_cycles: int) -> float:
    return cost_cycles / flow.cluster.devices[0].clock_hz


@pytest.mark.drawn
@pytest.mark.parametrize(("period", "topology"), list(product(Period, Topology)))
def test_a_plan_costs_what_the_cheapest_of_all_lines_costs(flow: Flow, period: Period, topology: Topology) -> None:
    kinds = flow.with_setting(cluster=replace(MIXED, topology=topology), period=period)
    n_unfit = 0
    for n_ipu, batch_size in product((1, 2, 3), (2, 6, 8, 14) if is_thorough() else (2, 14)):
        knobs, cheapest_s = Knobs(n_ipu=n_ipu, memory_proportion=0.6, batch_size=batch_size), inf
        for cluster in lines(kinds.cluster, n_ipu):
            line = kinds.with_setting(cluster=cluster)
            try:
                cheapest_s = min(cheapest_s, period_s(line, exhaustive(line.table(knobs)).cost_cycles))
            except Infeasible:
                n_unfit += 1
        if cheapest_s == inf:
            with pytest.raises(Infeasible):
                kinds.predict(knobs)
            continue
        plan = kinds.predict(knobs)
        assert period_s(kinds, plan.cost_cycles) == pytest.approx(cheapest_s, rel=1e-12)
        assert len(plan.stages) == len(set(plan.placement[0])) == n_ipu
        assert [stage.device_kind for stage in plan.stages] == [MIXED.devices[d.device].name for d in plan.placement[0]]
        assert kinds.evaluate(knobs).samples_per_s == pytest.approx(batch_size / cheapest_s)
    assert n_unfit > 0


@pytest.mark.parametrize("period", Period)
def test_kinds_that_are_equal_plan_like_a_line_of_equal_devices(flow: Flow, period: Period) -> None:
    link, host = Link(1e5, 7), Link(5e4, 30)
    twins = [DeviceKind(replace(DEVICE, name=name), 2, link, host) for name in ("a", "b")]
    line = Cluster("line", "ipu", (DEVICE,) * 4, (host, link, link, link), (link, link, link, host))
    for n_ipu, batch_size in product((1, 2, 3, 4), (1, 8, 30)):
        knobs = Knobs(n_ipu=n_ipu, memory_proportion=0.6, batch_size=batch_size)
        plain = flow.with_setting(cluster=line, period=period).expect(knobs)
        mixed = flow.with_setting(cluster=Cluster.of_kinds("twins", "ipu", twins), period=period).expect(knobs)
        assert (mixed.status, mixed.samples_per_s) == (plain.status, plain.samples_per_s)
        assert mixed.excess_bytes == plain.excess_bytes


class TiledTarget(LinearTarget):
    """As `LinearTarget` on 1472 tiles; fewer tiles take longer, and hold more a tile. It counts what it compiles."""

    version = "tiled 1"

    def __init__(self) -> None:
        super().__init__()
        self.compiled: list[tuple[str, LayerRange]] = []

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        self.compiled.append((device.name, layers))
        plain = super().compile(graph, layers, device, options)
        times = 1472 / device.n_tiles
        [step] = plain.steps
        exclusive = {"state": int(plain.exclusive["state"] * times)}
        return replace(plain, steps=(ProgramStep("all", int(step.cycles * times), 0),), exclusive=exclusive)


HALF = DeviceKind(replace(DEVICE, name="half", n_tiles=736), 1, Link(1e12, 0), Link(1e12, 0))
WHOLE = DeviceKind(replace(DEVICE, name="whole"), 1, Link(1e12, 0), Link(1e12, 0))


def test_kinds_with_other_tiles_are_compiled_each_for_itself(flow: Flow) -> None:
    """Of 8 layers the kind with half the tiles gets 2 or 3; compiled for itself, each takes twice the cycles."""
    target = TiledTarget()
    both = flow.with_setting(target=target, cluster=Cluster.of_kinds("both", "ipu", (HALF, WHOLE)))
    plan = both.predict(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=6))
    by_kind = {stage.device_kind: stage for stage in plan.stages}
    sizes = {name: stage.layers.stop - stage.layers.start for name, stage in by_kind.items()}
    assert sizes in ({"half": 3, "whole": 5}, {"half": 2, "whole": 6})
    assert plan.compute_cycles == 36_000
    assert by_kind["half"].compute_cycles == sizes["half"] * 12_000
    assert by_kind["half"].memory_bytes["state"] == sizes["half"] * 12 * MIB
    target.compiled.clear()
    run = both.measure(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=6), plan)
    assert set(target.compiled) == {(name, stage.layers) for name, stage in by_kind.items()}
    assert [stage.compute_cycles for stage in run.plan.stages] == [stage.compute_cycles for stage in plan.stages]
    assert [stage.memory_bytes for stage in run.plan.stages] == [stage.memory_bytes for stage in plan.stages]
    with pytest.raises(BadInput, match=r"not in tiles.*write \[\[kinds\]\]"):
        both.with_setting(cluster=replace(both.cluster, kinds=()))


def test_kinds_have_memory_limits_and_corrections_of_their_own(flow: Flow, tmp_path: Path) -> None:
    small = replace(HALF, device=replace(HALF.device, memory_bytes=50 * MIB))
    both = flow.with_setting(
        target=TiledTarget(),
        cluster=Cluster.of_kinds("both", "ipu", (WHOLE, small)),
        cache=ProfileCache(tmp_path / "kinds.db"),
        estimator=Estimator.REGRESSION,
    )
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=3)
    corrections = [kind.correction(knobs) for kind in both.plans.kinds]
    stores = [kind._store(both.options(knobs)) for kind in both.plans.kinds if isinstance(kind, LayerCosts)]
    assert [len(store.examples()) for store in stores] == [correction.n_examples for correction in corrections]
    assert stores[0].subject != stores[1].subject
    limits = {stage.device_kind: stage.limit_bytes for stage in both.predict(knobs).stages}
    highs = [correction.memory_interval.high for correction in corrections]
    assert limits == {"whole": int(100 * MIB / highs[0]), "half": int(50 * MIB / highs[1])}


def devices_by_kind(plan: Plan) -> list[list[str]]:
    """The kinds of every replica's devices, sorted; no device has two replicas."""
    devices = [device for each in plan.plans for replica in each.placement for device in replica]
    assert len(set(devices)) == len(devices)
    return sorted(sorted(s.device_kind for s in each.stages) for each in plan.plans for _ in each.placement)


def test_replicas_have_equal_parts_of_every_kind_or_one_after_the_other_what_is_left(flow: Flow) -> None:
    links = (Link(1e9, 0), Link(1e9, 0))
    kinds = [DeviceKind(DEVICE, 3, *links), DeviceKind(FAST, 4, *links)]
    both = flow.with_setting(cluster=Cluster.of_kinds("seven", "ipu", kinds))
    single, double = (
        both.predict(Knobs(n_ipu=3, memory_proportion=0.6, batch_size=2)),
        both.predict(Knobs(n_ipu=3, memory_proportion=0.6, batch_size=2, replicas=2)),
    )
    assert devices_by_kind(single) == [["fast"] * 3]
    rate = 2 * flow.cluster.clock_hz
    one_by_one = [["fast"] * 3, ["fast", "small", "small"]]
    equal = [["fast", "fast", "small"]] * 2
    assert devices_by_kind(double) in (one_by_one, equal)
    like = both.plans.of_pipeline(Knobs(n_ipu=3, memory_proportion=0.6, batch_size=2), (1, 2)).plan
    left = both.plans.of_pipeline(Knobs(n_ipu=3, memory_proportion=0.6, batch_size=2), (3, 1)).plan
    rates = [2 * rate / like.cost_cycles, rate / single.cost_cycles + rate / left.cost_cycles]
    assert double.samples_per_s(2 * 2, flow.cluster.clock_hz) == pytest.approx(max(rates))


def test_single_devices_of_all_kinds_are_replicas(flow: Flow) -> None:
    """The best so many devices, each with the throughput of its kind."""
    kinds = [replace(SLOW, n_devices=2), replace(MIXED.kinds[1], n_devices=3)]
    both = flow.with_setting(cluster=Cluster.of_kinds("five", "ipu", kinds))
    alone = {
        kind.setting.cluster.devices[0].name: flow.with_setting(cluster=kind.setting.cluster.first(1)).evaluate(
            Knobs(n_ipu=1, memory_proportion=0.6, batch_size=2)
        )
        for kind in both.plans.kinds
    }
    assert alone["fast"].samples_per_s > alone["small"].samples_per_s
    for replicas in range(1, 6):
        n_fast = min(replicas, 3)
        trial = both.evaluate(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=2, replicas=replicas))
        assert isinstance(trial.measured, Plan)
        assert devices_by_kind(trial.measured) == [["fast"]] * n_fast + [["small"]] * (replicas - n_fast)
        rates = [alone["fast"].samples_per_s] * n_fast + [alone["small"].samples_per_s] * (replicas - n_fast)
        assert trial.samples_per_s == pytest.approx(sum(rates))


def test_too_few_devices_for_like_replicas_and_too_many_replicas_do_not_fit(flow: Flow) -> None:
    both = flow.with_setting(cluster=MIXED)
    assert both.evaluate(Knobs(n_ipu=3, memory_proportion=0.6, batch_size=2, replicas=2)).status is Status.INFEASIBLE
    big = both.evaluate(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=12, replicas=3))
    assert big.status is Status.INFEASIBLE
    assert big.excess_bytes > 0


def test_more_ways_to_use_the_kinds_than_are_tried_have_a_lower_bound(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [replace(SLOW, n_devices=4), replace(MIXED.kinds[1], n_devices=4)]
    both = flow.with_setting(cluster=Cluster.of_kinds("eight", "ipu", kinds))
    exact = both.plans.of_pipeline(Knobs(n_ipu=6, memory_proportion=0.6, batch_size=2))
    monkeypatch.setattr(range_problem, "MAX_STATES", 10)
    bounded = both.plans.of_pipeline(Knobs(n_ipu=6, memory_proportion=0.6, batch_size=2))
    assert exact.gap == 0
    assert bounded.bound_cycles <= exact.plan.cost_cycles <= bounded.plan.cost_cycles
    assert Counter(stage.device_kind for stage in bounded.plan.stages) <= Counter({"small": 4, "fast": 4})


def test_what_needs_a_given_order_is_refused_in_a_line(flow: Flow) -> None:
    mixed = flow.with_setting(cluster=MIXED)
    why = r"needs devices in a given order, mixed has small, fast in any order; try a --cluster of one kind$"
    training = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1, schedule=Order.GPIPE, n_micro_batches=4)
    with pytest.raises(BadInput, match=f"^this query {why}"):
        mixed.table(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1))
    for attempt in (mixed.predict, mixed.evaluate, mixed.expect):
        with pytest.raises(BadInput, match=f"^training {why}"):
            attempt(training)
    with pytest.raises(BadInput, match=f"^training {why}"):
        mixed.checked(SearchSpace(n_ipu=(1,), schedule=(Order.GPIPE,), n_micro_batches=(4,)))
    with pytest.raises(BadInput, match=f"^a plan of phases {why}"):
        mixed.checked(SearchSpace(n_ipu=(1,), strategy=tuple(Strategy)))
    with pytest.raises(BadInput, match=f"^a plan of phases {why}"):
        mixed.phases.plan(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1), PhasedOptions(4))


def test_the_kinds_are_part_of_the_fingerprint(flow: Flow) -> None:
    [line] = (line for line in lines(MIXED, 3) if line.devices == MIXED.devices)
    given, any_order = (flow.with_setting(cluster=cluster).fingerprint() for cluster in (line, MIXED))
    assert line.receive_links == MIXED.receive_links
    assert given["cluster_content"] != any_order["cluster_content"]


@pytest.mark.slow
def test_a_default_search_is_no_worse_than_each_simple_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path))
    flow = load_flow("resnet50", "bow-mk2")
    space = default_space(flow, {"batch_size": (1, 4, 16), "memory_proportion": (0.6,)})
    result = search_flow(flow, space, storage=f"sqlite:///{tmp_path}/trials.db")
    assert result.best is not None
    uses = [
        trial
        for use in simple_uses(space)
        for trial in (flow.evaluate(knobs) for cell in space.cells for knobs in cell if use.has(knobs))
        if trial.fits
    ]
    assert {trial.knobs.n_ipu for trial in uses} == {1, 4}
    assert result.best.samples_per_s >= max(trial.samples_per_s for trial in uses)
    assert isinstance(result.best.plan, Plan)
    assert {stage.device_kind for stage in result.best.plan.stages} <= {"bow", "mk2"}
