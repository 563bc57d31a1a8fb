"""A plan on real processes until its pace is steady: `run_plan`, `SteadyPace`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic_ns

import numpy as np

from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerGraph, Source
from autoauto.records.plan import Plan, Stage
from autoauto.records.profile import CompileOptions
from autoauto.records.schedule import FORWARD, Codes, Order, Schedule
from autoauto.records.target import Origin
from autoauto.records.timeline import Run, Timeline
from autoauto.targets.host.machine.machine import cores_of
from autoauto.targets.host.measure.session import example
from autoauto.targets.host.run.pipelines import Batch, Pipelines
from autoauto.targets.host.run.stage import StageReady, StageResources, StageSpans

N_ATTEMPTS = 3

MIN_S, MAX_S = 1.0, 10.0
"""Duration of a run: the minimum, and the time after which an unsteady run ends, too."""

TOLERANCE = 0.02
"""Relative difference of the times of two quarters with a steady pace."""


def repeat_until_undisturbed(attempt: Callable[[], Run]) -> Run:
    """Repeat a run until it is undisturbed, `N_ATTEMPTS` times at most; returns the run that had most of its cores."""
    runs = [attempt()]
    while not runs[-1].undisturbed and len(runs) < N_ATTEMPTS:
        runs.append(attempt())
    return max(runs, key=lambda run: run.core_fraction)


def run_plan(
    source: Source,
    graph: LayerGraph,
    plan: Plan,
    cluster: Cluster,
    options: CompileOptions,
    replicas: int = 1,
) -> Run:
    """Run `plan` in pipelines side by side, with made-up inputs, until their pace is steady.

    Args:
        source, graph: the model.
        plan: the stages of one pipeline.
        cluster: the devices; a stage may use `options.memory_proportion` of its device's memory.
        options: batch size, memory proportion, and cores of a device, which are threads of its session.
        replicas: number of pipelines.

    Raises:
        OutOfMemory: a stage exceeds its budget.
    """
    n_stages, share, n_cores = len(plan.stages), options.memory_proportion, options.cores_per_device
    devices = [
        StageResources(cores_of(number, n_cores), n_cores, int(device.memory_bytes * share))
        for number, device in enumerate(cluster.devices[: n_stages * replicas])
    ]
    resources = [devices[first : first + n_stages] for first in range(0, len(devices), n_stages)]
    inputs = {port.name: example(port) for port in source.carried(graph, 0, options.batch_size)}
    pace = SteadyPace(len(resources), n_stages)

    def batches() -> Iterator[Batch]:
        while not pace.is_steady:
            yield inputs

    ranges = [stage.layers for stage in plan.stages]
    with Pipelines(graph, source, ranges, options.batch_size, resources) as pipelines:
        streams = pipelines.stream(batches(), lambda pipeline, _number, _outputs: pace.record_output(pipeline))
        ready = pipelines.ready[0]
    measured = tuple(map(_measured, plan.stages, streams[0], ready, resources[0]))
    core_fraction = min(spans.core_fraction for stages in streams for spans in stages)
    return Run(replace(plan, stages=measured), tuple(map(timeline_of, streams)), core_fraction)


def timeline_of(stages: Sequence[StageSpans]) -> Timeline:
    """The timeline of one pipeline's stages, from the first action on; 1 cycle = 1 ns."""
    start = min(int(spans.times[0, 0]) for spans in stages)
    times = [spans.times - start for spans in stages]
    n_micro_batches = len(times[0])
    codes = Codes(len(stages), n_micro_batches)
    programs = tuple(codes.of(FORWARD, stage, range(n_micro_batches)) for stage in range(len(stages)))
    return Timeline(
        schedule=Schedule(Order.INFERENCE, tuple(range(len(stages))), n_micro_batches, programs),
        starts=tuple(t[:, 1] for t in times),
        stops=tuple(t[:, 2] for t in times),
        exchanges=tuple(t.reshape(-1, 2, 2).reshape(-1, 2) for t in times),
        stop_tick=max(int(t[-1, 3]) for t in times),
        origin=Origin.MEASURED,
    )


def _measured(stage: Stage, spans: StageSpans, ready: StageReady, resources: StageResources) -> Stage:
    """The stage with its measured medians; receiving takes no time, because a stage reads its inputs in the ring."""
    copied, computed, sent = np.diff(spans.times, axis=1).T
    return replace(
        stage,
        forward_cycles=int(np.median(computed)),
        receive_cycles=0,
        send_cycles=int(np.median(copied + sent)),
        memory_bytes=ready.memory_bytes,
        limit_bytes=resources.budget_bytes,
    )


class SteadyPace:
    """Records the outputs of pipelines, and decides when the pace of each is steady.

    The first and the last quarter of a run are left out, as start and end. A pace is steady when the second and the
    third quarter of the outputs took the same time up to `TOLERANCE`, after at least `MIN_S` seconds. After `MAX_S`
    seconds any pace counts as steady.

    Attributes:
        is_steady: whether no more outputs are needed.
    """

    def __init__(self, n_pipelines: int, n_stages: int) -> None:
        self.is_steady = False
        self._output_times_ns: list[list[int]] = [[] for _ in range(n_pipelines)]
        self._min_outputs = n_stages + 3

    def record_output(self, pipeline: int) -> None:
        """A micro-batch has left a pipeline now."""
        self._output_times_ns[pipeline].append(monotonic_ns())
        start_ns = min(times[0] for times in self._output_times_ns if times)
        seconds = (monotonic_ns() - start_ns) / 1e9
        if seconds >= MIN_S and min(map(len, self._output_times_ns)) >= self._min_outputs:
            self.is_steady = seconds >= MAX_S or all(map(has_even_quarters, self._output_times_ns))


def has_even_quarters(times: Sequence[int]) -> bool:
    """Whether the second and the third quarter, of at least two intervals each, took the same time.

    >>> has_even_quarters([0, 9, 12, 13, 14, 15, 16, 17, 18]), has_even_quarters([0, 9, 12, 13, 14, 16, 18, 19, 20])
    (True, False)
    """
    n = (len(times) - 1) // 4
    if n < 2:
        return False
    second, third = times[2 * n] - times[n], times[3 * n] - times[2 * n]
    return abs(third - second) <= TOLERANCE * second
