import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoauto.records.errors import OutOfMemory
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.profile import CompileOptions
from autoauto.records.timeline import Run
from autoauto.records.units import MIB, Precision
from autoauto.targets.host.run import run as steady
from autoauto.targets.host.run.run import Steady, is_steady, least_disturbed, run_plan, timeline_of
from autoauto.targets.host.run.stage import Spans
from autoauto.targets.host.target import HostTarget

Models = Callable[[int, int], Any]
LINK = Link(1e9, 1000)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test looks at how much a pipeline does, so what it does in a moment is enough."""
    monkeypatch.setattr(steady, "LEAST_S", 0.1)
    monkeypatch.setattr(steady, "MOST_S", 0.2)


def cluster(n_devices: int, memory_bytes: int) -> Cluster:
    device = Device("core", 1e9, memory_bytes, 1, memory_bytes)
    return Cluster("host", "host", (device,) * n_devices, (LINK,) * n_devices, (LINK,) * n_devices)


def plan(*cuts: int) -> Plan:
    pairs = enumerate(pairwise(cuts))
    return Plan(tuple(Stage(LayerRange(*pair), s, 5, 0, 1, 1, {"parameter": 3}, 9) for s, pair in pairs))


def test_a_plan_comes_back_with_what_it_took(residual_model: Models) -> None:
    model, options = residual_model(3, 128), CompileOptions(64, 1.0, Precision.FP32)
    run = run_plan(model.source, model.graph, plan(0, 3, 7), cluster(2, 256 * MIB), options)
    assert run.plan.partition == (0, 3, 7)
    (timeline,) = run.timelines
    assert timeline.source == "measured"
    for stage, starts, stops in zip(run.plan.stages, timeline.starts, timeline.stops, strict=True):
        assert stage.forward_cycles == int(np.median(stops - starts))
        assert stage.memory_bytes["parameter"] >= 4 * 128 * 128
        assert stage.limit_bytes == 256 * MIB
    assert run.period_cycles == pytest.approx(timeline.period_cycles)
    assert timeline.makespan_cycles >= max(timeline.busy_cycles)


def test_a_stage_holds_what_it_was_measured_to_hold(residual_model: Models) -> None:
    model, options, devices = residual_model(4, 256), CompileOptions(8192, 1.0, Precision.FP32), cluster(2, 256 * MIB)
    stages = run_plan(model.source, model.graph, plan(0, 4, 9), devices, options).plan.stages
    with HostTarget(model.source) as target:
        for stage in reversed(stages):  # what the first one left is not the second's
            alone = target.compile(model.graph, stage.layers, devices.devices[0], options).memory_bytes
            assert alone["temporary"] > 8 * MIB  # 8192 x 256 floats
            for name, n_bytes in stage.memory_bytes.items():
                assert abs(n_bytes - alone.get(name, 0)) < MIB, name


def test_pipelines_run_side_by_side(residual_model: Models) -> None:
    model, options = residual_model(1, 16), CompileOptions(1, 1.0, Precision.FP32)
    run = run_plan(model.source, model.graph, plan(0, 3), cluster(2, 64 * MIB), options, replicas=2)
    assert len(run.timelines) == 2
    assert run.period_cycles < min(timeline.period_cycles for timeline in run.timelines)


def test_memory_proportion_is_the_part_of_a_device_that_counts(residual_model: Models) -> None:
    model = residual_model(2, 1024)  # 8 MiB of weights
    for share, fits in ((1.0, True), (0.25, False)):
        options = CompileOptions(1, share, Precision.FP32)
        ran = (model.source, model.graph, plan(0, 5), cluster(1, 24 * MIB), options)
        if fits:
            run_plan(*ran)
        else:
            with pytest.raises(OutOfMemory, match=r"may use 6\.0 MiB"):
                run_plan(*ran)


def test_a_timeline_tells_of_every_stage_when_it_computed_and_when_it_moved() -> None:
    """A stage copies 1, computes 5, sends 2; the next follows it."""
    first = Spans(np.array([[100, 101, 106, 108], [108, 109, 114, 116]]), 10, 1.0)
    second = Spans(np.array([[108, 108, 110, 111], [116, 116, 118, 119]]), 4, 1.0)
    timeline = timeline_of([first, second])
    assert [str(span.action) for span in timeline.spans(1)] == ["1F0", "1F1"]
    assert [tuple(span[1:]) for span in timeline.spans(0)] == [(1, 6), (9, 14)]
    assert timeline.exchanges[0].tolist() == [[0, 1], [6, 8], [8, 9], [14, 16]]
    assert (timeline.makespan_cycles, timeline.busy_cycles, timeline.exchange_cycles) == (19, (10, 4), (6, 2))
    assert timeline.latency_cycles == 9
    assert (first.core_fraction, second.core_fraction) == (1.0, 1.0)
    assert first._replace(compute_ns=8, speed=0.5).core_fraction == 0.4


def test_a_core_that_is_slower_than_it_was_disturbs_a_run(
    residual_model: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("AUTOAUTO_PATIENCE_S")
    model, options = residual_model(1, 16), CompileOptions(1, 1.0, Precision.FP32)
    ran = (model.source, model.graph, plan(0, 3), cluster(1, 64 * MIB), options)
    run_plan(*ran)
    (path,) = tmp_path.glob("yardstick-*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "looks_ns": [1000] * 300}))
    run = run_plan(*ran)
    assert not run.quiet
    assert run.core_fraction < 0.5


@pytest.mark.parametrize(
    ("fractions", "chosen"),
    [([0.99, 0.5], 0.99), ([0.5, 0.97, 0.99], 0.97), ([0.6, 0.8, 0.7, 0.99], 0.8)],
)
def test_a_disturbed_run_is_repeated(fractions: list[float], chosen: float) -> None:
    left = iter(Run(plan(0, 1), (), fraction) for fraction in fractions)
    assert least_disturbed(lambda: next(left)).core_fraction == chosen


class Clock:
    """Seconds that a test decides."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> int:
        return int(self.now * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(steady, "monotonic_ns", clock)
    return clock


def n_until_steady(clock: Clock, intervals: list[float], n_stages: int = 2) -> int:
    """How many micro-batches have left when one pipeline is steady."""
    watch = Steady(1, n_stages)
    for number, interval in enumerate(intervals):
        clock.now += interval
        watch.left(0)
        if watch.reached:
            return number + 1
    raise AssertionError("never steady")


def test_an_even_pace_is_steady_after_the_least_time(clock: Clock) -> None:
    assert n_until_steady(clock, [0.125] * 100) == 9  # a second after the first left


def test_a_slow_start_is_waited_for(clock: Clock) -> None:
    """Eight intervals of one second, then of a tenth: the last two quarters must both lie in the fast part."""
    n = n_until_steady(clock, [1.0] * 8 + [0.1] * 100)
    assert n > 8
    assert clock.now < 12


def test_an_uneven_pace_is_what_it_is_after_the_most_time(clock: Clock) -> None:
    wild = [0.1 * 1.5 ** (i // 3 % 5) for i in range(200)]
    n_until_steady(clock, wild)
    assert 1.0 <= clock.now < steady.MOST_S + 1


def test_long_micro_batches_need_not_be_many(clock: Clock) -> None:
    assert n_until_steady(clock, [20.0] * 100, n_stages=1) == 4


def test_all_pipelines_must_be_steady(clock: Clock) -> None:
    watch = Steady(2, 1)
    for _ in range(20):
        clock.now += 0.1
        watch.left(0)
    assert not watch.reached
    for _ in range(20):
        clock.now += 0.1
        watch.left(0)
        watch.left(1)
    assert watch.reached


def test_a_few_intervals_tell_nothing() -> None:
    assert not is_steady([0, 1, 2, 3])
