"""A plan on real processes until its pace is steady: `run_plan`, `SteadyPace`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from time import monotonic_ns

import numpy as np

from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerGraph, Source
from autoauto.records.plan import Plan, Stage
from autoauto.records.profile import CompileOptions, SessionOptions
from autoauto.records.schedule import Schedule
from autoauto.records.target import Origin
from autoauto.records.timeline import Run, Timeline
from autoauto.targets.host.machine.machine import core_beside_gpu, cores_of
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
    keep: Callable[[Batch], None] = lambda _: None,
    gpus: Sequence[str] = (),
) -> Run:
    """Run `plan` in pipelines side by side, with made-up inputs, until their pace is steady.

    Args:
        source, graph: the model.
        plan: the stages of a pipeline, and its devices; without a placement pipelines are packed.
        cluster: the devices; a stage may use `options.memory_proportion` of its device's memory.
        options: batch size, memory proportion, and cores of a device, which are threads of its session.
        replicas: number of pipelines.
        keep: called with the outputs of the first micro-batch; the arrays are valid until it returns.
        gpus: the UUID of the GPU of every device; empty where cores are the devices.

    Raises:
        OutOfMemory: a stage exceeds its budget.
    """
    n_devices, share, n_cores = plan.n_devices, options.memory_proportion, options.cores_per_device
    session = session_options(options)

    def resources_of(number: int) -> StageResources:
        budget_bytes = int(cluster.devices[number].memory_bytes * share)
        if gpus:
            return StageResources(core_beside_gpu(number), session._replace(gpu=gpus[number]), budget_bytes)
        return StageResources(cores_of(number, n_cores), session, budget_bytes)

    packed = (range(first, first + n_devices) for first in range(0, n_devices * replicas, n_devices))
    placement = [map(cluster.index, replica) for replica in plan.placement] or packed
    resources = [list(map(resources_of, replica)) for replica in placement]
    inputs = example_inputs(source, graph, options.batch_size)
    pace = SteadyPace(len(resources), n_devices)

    def batches() -> Iterator[Batch]:
        while not pace.is_steady:
            yield inputs

    def take(pipeline: int, number: int, outputs: Batch) -> None:
        pace.record_output(pipeline)
        if number == 0:
            keep(outputs)

    ranges = [stage.layers for stage in plan.stages]
    n_replicas = [stage.n_replicas for stage in plan.stages]
    with Pipelines(graph, source, ranges, options.batch_size, resources, n_replicas) as pipelines:
        streams = pipelines.stream(batches(), take)
        ready = pipelines.ready[0]
    ends = pairwise(accumulate(n_replicas, initial=0))
    measured = (
        _measured(stage, streams[0][first:last], ready[first:last], resources[0][first].budget_bytes)
        for stage, (first, last) in zip(plan.stages, ends, strict=True)
    )
    core_fraction = min(spans.core_fraction for processes in streams for spans in processes)
    timelines = tuple(timeline_of(processes, n_replicas) for processes in streams)
    return Run(replace(plan, stages=tuple(measured)), timelines, core_fraction)


def example_inputs(source: Source, graph: LayerGraph, batch_size: int) -> Batch:
    """Made-up inputs of a micro-batch, the same every time."""
    return {port.name: example(port) for port in source.carried(graph, 0, batch_size)}


def session_options(options: CompileOptions) -> SessionOptions:
    """How a session of these options computes."""
    return SessionOptions(options.cores_per_device, options.runtime, options.computes_in)


def timeline_of(processes: Sequence[StageSpans], n_replicas: Sequence[int]) -> Timeline:
    """The timeline of one pipeline, from the first action on; 1 cycle = 1 ns.

    Args:
        processes: their times, those of stage 0 first.
        n_replicas: the processes of every stage.
    """
    start = min(int(spans.times[0, 0]) for spans in processes)
    times = [spans.times - start for spans in processes]
    n_micro_batches = sum(map(len, times[: n_replicas[0]]))
    return Timeline(
        schedule=Schedule.of_inference(n_replicas, n_micro_batches),
        starts=tuple(t[:, 1] for t in times),
        stops=tuple(t[:, 2] for t in times),
        exchanges=tuple(t.reshape(-1, 2, 2).reshape(-1, 2) for t in times),
        stop_tick=max(int(t[-1, 3]) for t in times),
        origin=Origin.MEASURED,
    )


def _measured(stage: Stage, streams: Sequence[StageSpans], ready: Sequence[StageReady], budget_bytes: int) -> Stage:
    """The stage with the median times and the largest memory of its processes.

    Receiving takes no time, because they read inputs in the rings.
    """
    copied, computed, sent = np.diff(np.concatenate([spans.times for spans in streams]), axis=1).T
    memory = [process.memory_bytes for process in ready]
    return replace(
        stage,
        forward_cycles=int(np.median(computed)),
        receive_cycles=0,
        send_cycles=int(np.median(copied + sent)),
        memory_bytes={name: max(n_bytes[name] for n_bytes in memory) for name in memory[0]},
        limit_bytes=budget_bytes,
    )


class SteadyPace:
    """Records the outputs of pipelines, and decides when the pace of each is steady.

    The first and the last quarter of a run are left out, as start and end. A pace is steady when the second and the
    third quarter of the outputs took the same time up to `TOLERANCE`, after at least `MIN_S` seconds. After `MAX_S`
    seconds any pace counts as steady.

    Attributes:
        is_steady: whether no more outputs are needed.
    """

    def __init__(self, n_pipelines: int, n_devices: int) -> None:
        self.is_steady = False
        self._output_times_ns: list[list[int]] = [[] for _ in range(n_pipelines)]
        self._min_outputs = n_devices + 3

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
