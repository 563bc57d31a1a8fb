"""A plan on real processes: `run_plan`."""

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
from autoauto.records.timeline import Run, Timeline
from autoauto.targets.host.machine.machine import cores_of
from autoauto.targets.host.measure.session import example
from autoauto.targets.host.run.pipelines import Batch, Pipelines
from autoauto.targets.host.run.stage import Place, Ready, Spans

N_ATTEMPTS = 3


def least_disturbed(attempt: Callable[[], Run]) -> Run:
    """The run of a few that had its cores most; the first that nothing disturbed ends them."""
    runs = [attempt()]
    while not runs[-1].quiet and len(runs) < N_ATTEMPTS:
        runs.append(attempt())
    return max(runs, key=lambda run: run.core_fraction)


def run_plan(
    source: Source,
    graph: LayerGraph,
    plan: Plan,
    cluster: Cluster,
    options: CompileOptions,
    cores_per_device: int = 1,
    replicas: int = 1,
) -> Run:
    """Run `plan` in pipelines side by side, with made-up inputs, until they are steady.

    Args:
        source, graph: the model.
        plan: the stages of one pipeline.
        cluster: its devices; a stage may hold the part `options.memory_proportion` of its device's memory.
        options: batch size and memory proportion.
        cores_per_device: cores, hence threads, of a device.
        replicas: how many pipelines.

    Raises:
        OutOfMemory: a stage exceeds its budget in its own process.
    """
    n_stages, share = len(plan.stages), options.memory_proportion
    devices = [
        Place(cores_of(number, cores_per_device), cores_per_device, int(device.memory_bytes * share))
        for number, device in enumerate(cluster.devices[: n_stages * replicas])
    ]
    places = [devices[first : first + n_stages] for first in range(0, len(devices), n_stages)]
    inputs = {port.name: example(port) for port in source.carried(graph, 0, options.batch_size)}
    steady = Steady(len(places), n_stages)

    def batches() -> Iterator[Batch]:
        while not steady.reached:
            yield inputs

    ranges = [stage.layers for stage in plan.stages]
    with Pipelines(graph, source, ranges, options.batch_size, places) as pipelines:
        streams = pipelines.stream(batches(), lambda pipeline, _number, _outputs: steady.left(pipeline))
        ready = pipelines.ready[0]
    measured = tuple(map(_measured, plan.stages, streams[0], ready, places[0]))
    core_fraction = min(spans.core_fraction for stages in streams for spans in stages)
    return Run(replace(plan, stages=measured), tuple(map(timeline_of, streams)), core_fraction)


def timeline_of(stages: Sequence[Spans]) -> Timeline:
    """What the stages of one pipeline did, from the first action on; 1 cycle = 1 ns."""
    begin = min(int(spans.times[0, 0]) for spans in stages)
    times = [spans.times - begin for spans in stages]
    n_micro_batches = len(times[0])
    codes = Codes(len(stages), n_micro_batches)
    programs = tuple(codes.of(FORWARD, stage, range(n_micro_batches)) for stage in range(len(stages)))
    return Timeline(
        schedule=Schedule(Order.INFERENCE, tuple(range(len(stages))), n_micro_batches, programs),
        starts=tuple(t[:, 1] for t in times),
        stops=tuple(t[:, 2] for t in times),
        exchanges=tuple(t.reshape(-1, 2, 2).reshape(-1, 2) for t in times),
        stop_tick=max(int(t[-1, 3]) for t in times),
        source="measured",
    )


def _measured(stage: Stage, spans: Spans, ready: Ready, place: Place) -> Stage:
    """Medians of a stage; what it receives lies where it is read."""
    copied, computed, sent = np.diff(spans.times, axis=1).T
    return replace(
        stage,
        forward_cycles=int(np.median(computed)),
        receive_cycles=0,
        send_cycles=int(np.median(copied + sent)),
        memory_bytes=ready.memory_bytes,
        limit_bytes=place.budget_bytes,
    )


TOLERANCE = 0.02
LEAST_S = 1.0
MOST_S = 10.0


class Steady:
    """Watches micro-batches leave pipelines, until the pace of each stays what it is.

    A pace is steady when the second and the third quarter of what has left, the part that counts, took the same time up
    to `TOLERANCE`, after at least `LEAST_S` seconds; after `MOST_S` it is what it is.

    Attributes:
        reached: whether there is no need for more.
    """

    def __init__(self, n_pipelines: int, n_stages: int) -> None:
        self.reached = False
        self._left: list[list[int]] = [[] for _ in range(n_pipelines)]
        self._least = n_stages + 3

    def left(self, pipeline: int) -> None:
        """A micro-batch has left a pipeline now."""
        self._left[pipeline].append(monotonic_ns())
        started = min((times[0] for times in self._left if times), default=0)
        seconds = (monotonic_ns() - started) / 1e9
        if seconds >= LEAST_S and min(map(len, self._left)) >= self._least:
            self.reached = seconds >= MOST_S or all(map(is_steady, self._left))


def is_steady(times: Sequence[int]) -> bool:
    """Whether the second and third quarter, of at least two intervals each, took the same time.

    >>> is_steady([0, 9, 12, 13, 14, 15, 16, 17, 18]), is_steady([0, 9, 12, 13, 14, 16, 18, 19, 20])
    (True, False)
    """
    n = (len(times) - 1) // 4
    if n < 2:
        return False
    second, third = times[2 * n] - times[n], times[3 * n] - times[2 * n]
    return abs(third - second) <= TOLERANCE * second
