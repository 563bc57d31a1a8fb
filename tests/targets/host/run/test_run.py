"""Plans on real processes: measured stages, timelines, side-by-side pipelines, and disturbed runs."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import OutOfMemory
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.plans.timeline import Run
from autoauto.records.target import Origin
from autoauto.records.units import MIB, Precision
from autoauto.targets.host import devices as devices_module
from autoauto.targets.host.run import run as run_module
from autoauto.targets.host.run.run import MAX_REPEATED_S, OpenPlan, repeat_until_undisturbed, timeline_of
from autoauto.targets.host.run.stage import StageSpans
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.target import HostTarget

Models = Callable[[int, int], Any]
LINK = Link(1e9, 1000)


def run_plan(source: Any, graph: Any, plan: Plan, devices: Cluster, options: CompileOptions, replicas: int = 1) -> Run:
    with OpenPlan(source, graph, plan, devices, options, replicas) as opened:
        return opened.measure(plan)


def cluster(n_devices: int, memory_bytes: int) -> Cluster:
    device = Device("core", 1e9, memory_bytes, 1, memory_bytes)
    return Cluster("host", "host", (device,) * n_devices, (LINK,) * n_devices, (LINK,) * n_devices)


def plan(*cuts: int) -> Plan:
    pairs = enumerate(pairwise(cuts))
    return Plan(tuple(Stage(LayerRange(*pair), s, 5, 0, 1, 1, {"parameter": 3}, 9) for s, pair in pairs))


def test_a_run_returns_the_plan_with_measured_stages(residual_model: Models) -> None:
    model, options = residual_model(3, 128), CompileOptions(64, Precision.FP32, session=OnnxRuntimeSession())
    run = run_plan(model.source, model.graph, plan(0, 3, 7), cluster(2, 256 * MIB), options)
    assert run.plan.partition == (0, 3, 7)
    (timeline,) = run.timelines
    assert timeline.origin is Origin.MEASURED
    for stage, starts, stops in zip(run.plan.stages, timeline.starts, timeline.stops, strict=True):
        assert stage.forward_cycles == int(np.median(stops - starts))
        assert stage.memory_bytes["parameter"] >= 4 * 128 * 128
        assert stage.limit_bytes == 256 * MIB
    assert run.period_cycles == pytest.approx(timeline.period_cycles)
    assert timeline.makespan_cycles >= max(timeline.busy_cycles)


@pytest.mark.slow
def test_the_memory_of_a_stage_is_that_of_its_layers_measured_alone(residual_model: Models) -> None:
    model, options, devices = (
        residual_model(4, 256),
        CompileOptions(8192, Precision.FP32, session=OnnxRuntimeSession()),
        cluster(2, 256 * MIB),
    )
    stages = run_plan(model.source, model.graph, plan(0, 4, 9), devices, options).plan.stages
    with HostTarget(model.source) as target:
        for stage in reversed(stages):  # in reverse, so that memory left by one measurement would show in the next
            whole_bytes = compiled_bytes(target.compile(model.graph, stage.layers, devices.devices[0], options))
            assert whole_bytes["temporary"] > 8 * MIB  # 8192 x 256 floats
            for name, n_bytes in stage.memory_bytes.items():
                assert abs(n_bytes - whole_bytes.get(name, 0)) < MIB, name


def test_pipelines_run_side_by_side(residual_model: Models) -> None:
    model, options = residual_model(1, 16), CompileOptions(1, Precision.FP32, session=OnnxRuntimeSession())
    run = run_plan(model.source, model.graph, plan(0, 3), cluster(2, 64 * MIB), options, replicas=2)
    assert len(run.timelines) == 2
    assert run.period_cycles < min(timeline.period_cycles for timeline in run.timelines)


def test_a_stage_that_devices_run_in_turn_has_the_medians_of_all_of_them(
    residual_model: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = sorted(os.sched_getaffinity(0))  # there may be fewer than devices
    monkeypatch.setattr(devices_module, "cores_of", lambda device, *_: (cores[device % len(cores)],))
    model, options = residual_model(3, 128), CompileOptions(64, Precision.FP32, session=OnnxRuntimeSession())
    first, second = plan(0, 3, 7).stages
    replicated = Plan((first, replace(second, n_replicas=2)))
    run = run_plan(model.source, model.graph, replicated, cluster(3, 256 * MIB), options)
    (timeline,) = run.timelines
    schedule = timeline.schedule
    assert (schedule.n_devices, schedule.devices, schedule.n_replicas) == (3, (0, 1), (1, 2))
    assert len(timeline.starts[0]) == len(timeline.starts[1]) + len(timeline.starts[2]) == schedule.n_micro_batches
    assert [action.micro_batch for action in list(schedule.actions(2))[:3]] == [1, 3, 5]
    both = np.concatenate([timeline.stops[device] - timeline.starts[device] for device in (1, 2)])
    assert run.plan.stages[1].forward_cycles == int(np.median(both))
    assert run.plan.stages[1].n_replicas == 2
    assert run.plan.stages[1].memory_bytes["parameter"] >= 4 * 128 * 128
    assert run.latency_cycles == np.median(timeline.latencies)


def test_a_stage_may_use_the_memory_of_its_device(residual_model: Models) -> None:
    model = residual_model(2, 1024)  # 8 MiB of weights
    for memory_bytes, fits in ((24 * MIB, True), (6 * MIB, False)):
        options = CompileOptions(1, Precision.FP32, session=OnnxRuntimeSession())
        arguments = (model.source, model.graph, plan(0, 5), cluster(1, memory_bytes), options)
        if fits:
            assert run_plan(*arguments).plan.stages[0].limit_bytes == 24 * MIB
        else:
            with pytest.raises(OutOfMemory, match=r"may use 6\.0 MiB"):
                run_plan(*arguments)


def test_a_timeline_has_the_computations_and_the_transfers_of_every_stage() -> None:
    """Stage 0 copies for 1 tick, computes for 5, sends for 2; stage 1 follows."""
    first = StageSpans(np.array([[100, 101, 106, 108], [108, 109, 114, 116]]), 10, 1.0)
    second = StageSpans(np.array([[108, 108, 110, 111], [116, 116, 118, 119]]), 4, 1.0)
    timeline = timeline_of([first, second], [1, 1])
    assert [str(span.action) for span in timeline.spans(1)] == ["1F0", "1F1"]
    assert [tuple(span[1:]) for span in timeline.spans(0)] == [(1, 6), (9, 14)]
    assert timeline.exchanges[0].tolist() == [[0, 1], [6, 8], [8, 9], [14, 16]]
    assert (timeline.makespan_cycles, timeline.busy_cycles, timeline.exchange_cycles) == (19, (10, 4), (6, 2))
    assert timeline.latency_cycles == 9
    assert (first.core_fraction, second.core_fraction) == (1.0, 1.0)
    assert first._replace(compute_ns=8, speed=0.5).core_fraction == 0.4


def test_a_timeline_of_stage_replicas_has_a_row_for_every_process() -> None:
    """Stage 0 copies for 1 tick, computes for 5, sends for 2; two processes of stage 1 follow, 13 ticks each."""
    starts = np.array([100, 108, 116, 124])
    first = StageSpans(np.stack([starts + n for n in (0, 1, 6, 8)], axis=1), 20, 1.0)
    even, odd = (
        StageSpans(np.stack([s + n for n in (8, 8, 20, 21)], axis=1), 24, 1.0) for s in (starts[::2], starts[1::2])
    )
    timeline = timeline_of([first, even, odd], [1, 2])
    assert [str(span.action) for span in timeline.spans(2)] == ["1F1", "1F3"]
    assert [tuple(span[1:]) for span in timeline.spans(2)] == [(16, 28), (32, 44)]
    assert timeline.period_cycles == 8
    assert timeline.latencies.tolist() == [19] * 4


def test_a_run_on_a_core_that_is_slower_than_before_is_disturbed(
    residual_model: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("AUTOAUTO_PATIENCE_S")
    model, options = residual_model(1, 16), CompileOptions(1, Precision.FP32, session=OnnxRuntimeSession())
    arguments = (model.source, model.graph, plan(0, 3), cluster(1, 64 * MIB), options)
    run_plan(*arguments)
    (path,) = tmp_path.glob("yardstick-*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "looks_ns": [1000] * 300}))
    run = run_plan(*arguments)
    assert not run.undisturbed
    assert run.core_fraction < 0.5


@pytest.mark.parametrize(
    ("fractions", "returned"),
    [([0.99, 0.5], 0.99), ([0.5, 0.97, 0.99], 0.97), ([0.6, 0.8, 0.7, 0.99], 0.8)],
)
def test_a_disturbed_run_is_repeated_twice_at_most(fractions: list[float], returned: float) -> None:
    remaining = iter(Run(plan(0, 1), (), fraction) for fraction in fractions)
    assert repeat_until_undisturbed(lambda _: next(remaining)).core_fraction == returned


def test_a_long_run_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    remaining, seconds = iter([0.6, 0.99]), iter([0.0, MAX_REPEATED_S + 1.0])
    monkeypatch.setattr(run_module, "monotonic_ns", lambda: int(1e9 * next(seconds)))
    assert repeat_until_undisturbed(lambda _: Run(plan(0, 1), (), next(remaining))).core_fraction == 0.6
