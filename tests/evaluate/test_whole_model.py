"""Estimates that begin with the whole model: what is measured for what, and what pipelines give at best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.evaluate.costs.whole_first import WholeFirstCosts
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.setting import Setting
from autoauto.profile.cache import ProfileCache
from autoauto.records.costs.correction import RangeFeature, WholeRange
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import CompiledRange, NodeTime, ProgramStep
from autoauto.records.errors import AutoautoError, BadInput, Infeasible, OutOfMemory, WorkerLost
from autoauto.records.hardware import Cluster, Device, Link, Period
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.target import RUNS_PLANS
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.study.methods.guided import guided
from autoauto.study.methods.protocol import Observation, drive
from autoauto.study.methods.registry import predictor
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from tests.evaluate.linear import DEVICE, MIB, LinearTarget

N_LAYERS = 8


class WholeFirst(LinearTarget):
    """A micro-batch of the whole model takes `fixed_cycles`, and 1,000 more for every layer and sample."""

    traits = replace(
        RUNS_PLANS, whole_first=True, groups=("cores_per_device",), sessions=(OnnxRuntimeSession,), period=Period.SERIAL
    )

    def __init__(self) -> None:
        super().__init__()
        self.fixed_cycles = 2000
        self.asked: list[tuple[LayerRange, int, int]] = []

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        self.asked.append((layers, options.batch_size, options.group_size))
        compiled = super().compile(graph, layers, device, options)
        cycles = (compiled.forward_cycles + self.fixed_cycles) // options.group_size
        return CompiledRange((ProgramStep("all", cycles, 0),), 0, {}, compiled.exclusive)


@pytest.fixture
def target() -> WholeFirst:
    return WholeFirst()


@pytest.fixture
def flow(chain: Callable[..., LayerGraph], tmp_path: Path, target: WholeFirst) -> Flow:
    link = Link(1e12, 0)
    cluster = Cluster("four", "host", (DEVICE,) * 4, (link,) * 4, (link,) * 4)
    return Flow(Setting(chain(kinds=["a"] * N_LAYERS), cluster, target, cache=ProfileCache(tmp_path / "cache.db")))


def test_one_device_and_replicas_of_it_are_estimated_without_a_layer(flow: Flow, target: WholeFirst) -> None:
    for batch_size in (12, 8, 4, 2, 1):
        (alone, four) = (
            flow.expect(Knobs(n_ipu=1, runtime="onnxruntime", batch_size=batch_size, replicas=n)) for n in (1, 4)
        )
        assert alone.result.compute_cycles == 2000 + 1000 * N_LAYERS * batch_size
        assert four.samples_per_s == pytest.approx(4 * alone.samples_per_s)
        assert sum(alone.plan.parts[0].memory_bytes.values()) == N_LAYERS * batch_size * MIB
    assert target.asked == [(LayerRange(0, N_LAYERS), n, 1) for n in (1, 8)]


def test_what_was_measured_is_found_in_the_cache(flow: Flow, target: WholeFirst) -> None:
    flow.expect(Knobs(n_ipu=1, runtime="onnxruntime", batch_size=4))
    again = Flow(Setting(flow.graph, flow.cluster, target, cache=flow.setting.cache))
    n_before = len(target.asked)
    assert again.expect(Knobs(n_ipu=1, runtime="onnxruntime", batch_size=2)).runs
    assert len(target.asked) == n_before


def test_a_long_run_is_measured_at_a_smaller_batch(flow: Flow, target: WholeFirst) -> None:
    slow = replace(DEVICE, clock_hz=40_000.0)  # a sample takes a quarter of a second
    cluster = replace(flow.cluster, devices=(slow,) * 4)
    assert (
        Flow(Setting(flow.graph, cluster, target, cache=flow.setting.cache))
        .expect(Knobs(n_ipu=1, runtime="onnxruntime", batch_size=4))
        .result.compute_cycles
        == 34_000
    )
    assert [size for _, size, _ in target.asked] == [1, 2]


@pytest.mark.parametrize(
    ("clock_hz", "fixed_cycles", "cycles"),
    [(1e6, 2000, 66_000), (40_000.0, 2000, 68_000), (10_000.0, 2000, 72_000), (10_000.0, 4000, 68_000)],
)
def test_a_long_micro_batch_gains_nothing_that_two_measurements_may_err_by(
    flow: Flow, target: WholeFirst, clock_hz: float, fixed_cycles: int, cycles: int
) -> None:
    """8 samples gain 3 % over 4, which take a second with the second clock, 9 % over 2 with the third, then 18 %."""
    target.fixed_cycles = fixed_cycles
    cluster = replace(flow.cluster, devices=(replace(DEVICE, clock_hz=clock_hz),) * 4)
    own = Flow(Setting(flow.graph, cluster, target, cache=flow.setting.cache))
    assert (
        own.expect(Knobs(n_ipu=1, runtime="onnxruntime", batch_size=1)).result.compute_cycles == fixed_cycles + 8000
    )  # what is measured first is on the line
    assert own.expect(Knobs(n_ipu=1, runtime="onnxruntime", batch_size=8)).result.compute_cycles == cycles


class NoRoom(WholeFirst):
    """More than three samples need more memory than all devices have."""

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        if options.batch_size > 3:
            raise OutOfMemory("too large", 1)
        return super().compile(graph, layers, device, options)


def test_a_batch_is_measured_itself_where_a_larger_one_needs_too_much_memory(flow: Flow) -> None:
    own = flow.with_setting(target=NoRoom())
    for batch_size in (1, 2, 3):
        assert (
            own.expect(Knobs(1, batch_size, runtime="onnxruntime")).result.compute_cycles
            == 2000 + 1000 * N_LAYERS * batch_size
        )
    assert not own.expect(Knobs(1, 4, runtime="onnxruntime")).runs


class ManyUnits(WholeFirst):
    """Up to 12 samples take as long as one; more than `most_samples` fail."""

    most_samples = 1024
    failure: AutoautoError = OutOfMemory("too large", 1)

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        if options.batch_size > self.most_samples:
            raise self.failure
        compiled = super().compile(graph, layers, device, options)
        cycles = 1000 * N_LAYERS * max(options.batch_size, 12)
        return replace(compiled, steps=(ProgramStep("all", cycles, 0),), exclusive={})


def with_many_units(flow: Flow, target: ManyUnits) -> Flow:
    """The model on devices that are fast enough for large batches."""
    cluster = replace(flow.cluster, devices=(replace(DEVICE, clock_hz=1e9),) * 4)
    return Flow(Setting(flow.graph, cluster, target, cache=flow.setting.cache))


def test_a_larger_batch_is_measured_where_a_large_one_does_not_keep_a_device_busy(flow: Flow) -> None:
    own = with_many_units(flow, target := ManyUnits())
    assert own.expect(Knobs(n_ipu=1, runtime="onnxruntime", batch_size=8)).result.compute_cycles == 96_000
    assert [size for _, size, _ in target.asked] == [8]
    assert own.expect(Knobs(n_ipu=1, runtime="onnxruntime", batch_size=64)).result.compute_cycles == 512_000
    for batch_size, most in ((32, 0.09), (128, 0.05), (256, 0.06)):
        exact = 1000 * N_LAYERS * batch_size
        assert own.expect(
            Knobs(n_ipu=1, runtime="onnxruntime", batch_size=batch_size)
        ).result.compute_cycles == pytest.approx(exact, rel=most)
    assert [size for _, size, _ in target.asked] == [8, 1, 64]


@pytest.mark.parametrize("failure", [OutOfMemory("too large", 1), WorkerLost("killed"), BadInput("does not run")])
def test_a_batch_may_run_where_the_larger_one_does_not(flow: Flow, failure: AutoautoError) -> None:
    own = with_many_units(flow, target := ManyUnits())
    target.most_samples, target.failure = 16, failure
    assert [
        own.expect(Knobs(n_ipu=1, runtime="onnxruntime", batch_size=size)).result.compute_cycles for size in (1, 16, 12)
    ] == [96_000] * 3
    assert [size for _, size, _ in target.asked] == [1, 8]


def test_a_pipeline_is_at_best_cut_into_equal_parts(flow: Flow, target: WholeFirst) -> None:
    knobs = Knobs(n_ipu=4, runtime="onnxruntime", batch_size=8)
    best = flow.upper_bound(knobs)
    assert best is not None
    assert best.samples_per_s == pytest.approx(4 * flow.expect(replace(knobs, n_ipu=1)).samples_per_s, rel=1e-3)
    assert [layers for layers, _, _ in target.asked] == [LayerRange(0, N_LAYERS)]
    assert best.samples_per_s >= flow.expect(knobs).samples_per_s > 0
    assert LayerRange(0, 1) in [layers for layers, _, _ in target.asked]


def test_replicas_that_ran_show_how_much_longer_as_many_devices_take(flow: Flow) -> None:
    knobs, others = (
        Knobs(n_ipu=4, runtime="onnxruntime", batch_size=8),
        Knobs(n_ipu=2, runtime="onnxruntime", batch_size=8),
    )
    before = [flow.upper_bound(each) for each in (knobs, others)]
    assert isinstance(flow.costs, WholeFirstCosts)
    flow.costs.learn_speed(Knobs(n_ipu=1, runtime="onnxruntime", batch_size=8, replicas=4), 10.0, 8.0)
    after = [flow.upper_bound(each) for each in (knobs, others)]
    ratios = [b.samples_per_s / a.samples_per_s for a, b in zip(before, after, strict=True) if a and b]
    assert ratios == pytest.approx([0.8, 1.0], rel=1e-3)


def test_several_cores_are_at_best_as_many_times_as_fast_until_they_are_measured(
    flow: Flow, target: WholeFirst
) -> None:
    two = Knobs(n_ipu=1, runtime="onnxruntime", batch_size=8, cores_per_device=2)
    assert flow.upper_bound(two) is None  # nothing is known of one core
    single = flow.expect(Knobs(n_ipu=1, runtime="onnxruntime", batch_size=8))
    best = flow.upper_bound(two)
    assert best is not None
    assert best.samples_per_s == pytest.approx(2.2 * single.samples_per_s, rel=1e-3)
    assert flow.expect(two).samples_per_s == pytest.approx(2 * single.samples_per_s, rel=1e-3)
    assert flow.upper_bound(two) is None
    assert [cores for *_, cores in target.asked] == [1, 2]


def test_a_model_that_no_device_holds_has_no_best_case_and_its_parts_may_be_too_large(flow: Flow) -> None:
    alone = flow.expect(Knobs(n_ipu=1, runtime="onnxruntime", batch_size=32))  # 256 MiB, of 100
    assert (alone.runs, alone.excess_bytes) == (False, 156 * MIB)
    assert not (flow.upper_bound(Knobs(n_ipu=2, runtime="onnxruntime", batch_size=32)) or alone).runs
    best = flow.upper_bound(Knobs(n_ipu=4, runtime="onnxruntime", batch_size=32))
    assert best is not None
    assert best.runs
    assert isinstance(flow.costs, WholeFirstCosts)
    with pytest.raises(Infeasible, match="9 devices need a layer each, got 8"):
        flow.costs.bound_plan(Knobs(n_ipu=9, runtime="onnxruntime", batch_size=1))


def test_a_search_profiles_no_layer_where_no_pipeline_can_win(flow: Flow, target: WholeFirst) -> None:
    """Four replicas give all that four equal parts could."""
    space = SearchSpace(
        (1, 2, 4),
        batch_size=(1, 2, 4, 8),
        replicas=(1, 2, 4),
        runtime=("onnxruntime",),
        constraints=(Constraint("n_devices <= 4"),),
    )
    asked = flow.expect, Objective.THROUGHPUT, flow.upper_bound
    tried: list[Knobs] = []
    costs = flow.costs
    assert isinstance(costs, WholeFirstCosts)

    def observe(knobs: Knobs) -> Observation:
        tried.append(knobs)
        trial = flow.expect(knobs)
        costs.learn_speed(knobs, trial.samples_per_s, trial.samples_per_s)
        return Observation(trial.samples_per_s if trial.runs else None, trial.runs)

    drive(guided(space, {}, predictor(*asked), 0.01), observe)
    assert Knobs(n_ipu=1, runtime="onnxruntime", batch_size=8, replicas=4) in tried
    assert {layers for layers, _, _ in target.asked} == {LayerRange(0, N_LAYERS)}
    assert all(knobs.n_ipu == 1 for knobs in tried)


def test_without_replicas_pipelines_are_profiled_and_measured(flow: Flow, target: WholeFirst) -> None:
    space = SearchSpace((1, 2, 4), (1.0,), (1, 2, 4))
    asked = flow.expect, Objective.THROUGHPUT, flow.upper_bound
    tried: dict[Knobs, float] = {}

    def observe(knobs: Knobs) -> Observation:
        tried[knobs] = flow.expect(knobs).samples_per_s
        return Observation(tried[knobs] or None, measured=True)

    drive(guided(space, {}, predictor(*asked), 0.01), observe)
    assert max(tried, key=lambda knobs: tried[knobs]).n_ipu == 4
    assert {size for layers, size, _ in target.asked if layers == LayerRange(0, 1)} == {4}


class TimesItsNodes(WholeFirst):
    """Of one sample layer i takes i + 1 parts; in a larger batch all layers take the same."""

    def __init__(self, known: bool = True) -> None:
        super().__init__()
        self.known = known
        self.timed: list[int] = []

    def node_times(self, graph: LayerGraph, device: Device, options: CompileOptions) -> tuple[NodeTime, ...]:
        self.timed.append(options.batch_size)
        names = [layer.name if self.known else "new" for layer in graph.layers]
        return tuple(NodeTime((name,), i + 1.0 if options.batch_size == 1 else 4.5) for i, name in enumerate(names))


def with_target(flow: Flow, target: WholeFirst) -> Flow:
    """The same for layers of different kinds."""
    layers = tuple(replace(layer, kind=layer.name) for layer in flow.graph.layers)
    return Flow(Setting(replace(flow.graph, layers=layers), flow.cluster, target, cache=flow.setting.cache))


def test_layers_are_timed_in_their_model_where_the_runtime_says_what_they_take(flow: Flow) -> None:
    """1 + 2 + ... + 8 parts are cut at 21, and so are the 10,000 cycles of the whole; 128 bytes are read at the cut."""
    target = TimesItsNodes()
    plan = with_target(flow, target).predict(Knobs(n_ipu=2, runtime="onnxruntime", batch_size=1))
    assert [stage.layers for stage in plan.stages] == [LayerRange(0, 6), LayerRange(6, 8)]
    assert [stage.forward_cycles for stage in plan.stages] == pytest.approx([5833, 4167 + 13], abs=1)
    assert {layers for layers, _, _ in target.asked} == {LayerRange(0, N_LAYERS)}
    assert with_target(flow, TimesItsNodes()).predict(Knobs(n_ipu=2, runtime="onnxruntime", batch_size=1)) == plan
    assert target.timed == [1]


@pytest.mark.parametrize(("batch_size", "first_parts"), [(1, 1.0), (4, 2.5), (8, 4.5), (12, 4.5)])
def test_times_in_a_model_are_linear_between_two_batch_sizes_and_stay_beyond(
    flow: Flow, batch_size: int, first_parts: float
) -> None:
    cluster = replace(flow.cluster, devices=(replace(DEVICE, memory_bytes=1000 * MIB),) * 4)
    own = with_target(flow, TimesItsNodes()).with_setting(cluster=cluster)
    own.expect(Knobs(n_ipu=1, runtime="onnxruntime", batch_size=1))  # so that 8 is not the first
    cycles = own.table(Knobs(n_ipu=2, runtime="onnxruntime", batch_size=batch_size)).compute_cycles(0, 1)
    assert cycles == pytest.approx((2000 + 1000 * N_LAYERS * batch_size) * first_parts / 36, abs=1)


@pytest.mark.parametrize(("known", "batch_size"), [(False, 1), (True, 8)])
def test_layers_are_measured_alone_where_memory_matters_or_the_runtime_says_too_little(
    flow: Flow, known: bool, batch_size: int
) -> None:
    """8 samples take 64 MiB of 100."""
    target = TimesItsNodes(known)
    with_target(flow, target).predict(Knobs(n_ipu=2, runtime="onnxruntime", batch_size=batch_size))
    assert LayerRange(0, 1) in [layers for layers, _, _ in target.asked]
    assert target.timed == ([] if known else [1])


@pytest.mark.parametrize("batch_size", [1, 8, 64])
def test_a_stage_inside_the_model_reads_its_inputs_at_ten_bytes_a_cycle_whatever_the_batch(
    flow: Flow, batch_size: int
) -> None:
    cluster = replace(flow.cluster, devices=(replace(DEVICE, memory_bytes=2000 * MIB),) * 4)
    own = with_target(flow, TimesItsNodes()).with_setting(cluster=cluster)
    assert own.table(Knobs(n_ipu=2, runtime="onnxruntime", batch_size=batch_size)).entry_cycles[1:] == pytest.approx(
        128 * batch_size / 10, abs=1
    )


def test_ranges_measured_beside_layers_alone_teach_nothing_about_layers_in_their_model(flow: Flow) -> None:
    alone, own = with_target(flow, WholeFirst()), with_target(flow, TimesItsNodes())
    options = own.options(Knobs(n_ipu=2, runtime="onnxruntime", batch_size=1))
    wholes = [WholeRange(LayerRange(i, i + 4), 90_000, 0, {}) for i in range(4)]
    alone.costs.learn_ranges(options, wholes)
    assert alone.costs.correction(Knobs(n_ipu=2, runtime="onnxruntime", batch_size=1)).n_examples == 4
    assert own.costs.correction(Knobs(n_ipu=2, runtime="onnxruntime", batch_size=1)).n_examples == 0
    own.costs.learn_ranges(options, wholes)
    correction = own.costs.correction(Knobs(n_ipu=2, runtime="onnxruntime", batch_size=1))
    assert correction.n_examples == 4
    assert set(correction.features) == {RangeFeature.WEIGHTS, RangeFeature.ENTRY}
