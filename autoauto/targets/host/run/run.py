"""A plan on real processes until its pace is steady, or shows that it is slower than another: `OpenPlan`.

Plans that stay loaded, because a search soon measures them again: `OpenPlans`.

What a model computes in fp32, and by how much outputs differ from it: `reference_outputs`, `output_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from time import monotonic_ns
from weakref import finalize

import numpy as np

from autoauto.records.costs.options import CompileOptions, SessionOptions
from autoauto.records.errors import OutOfMemory, Unsupported
from autoauto.records.hardware import Cluster
from autoauto.records.interval import RunEnds
from autoauto.records.layers import LayerGraph, Source
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.plans.timeline import Run, Timeline
from autoauto.records.schedule import Schedule
from autoauto.records.target import Origin
from autoauto.records.units import Array, relative_error
from autoauto.targets.host.devices import ALIKE, HostDevices
from autoauto.targets.host.machine import CLOCK_HZ, cores, cores_of
from autoauto.targets.host.measure.examples import examples
from autoauto.targets.host.memory_budget import machine_bytes
from autoauto.targets.host.remote.cluster import DaskMachines
from autoauto.targets.host.run.pace import SteadyPace
from autoauto.targets.host.run.pipelines import Batch, Pipelines
from autoauto.targets.host.run.stage import StageReady, StageResources, StageSpans
from autoauto.targets.host.runtimes.registry import SESSIONS, installed_for
from autoauto.targets.host.samples import InputSamples

N_ATTEMPTS, MAX_REPEATED_S = 2, 10.0
"""Attempts at an undisturbed run, and their time until the last begins: over a longer run disturbances even out."""


def repeat_until_undisturbed(
    attempt: Callable[[float], Run],
    n_attempts: int = N_ATTEMPTS,
    best: RunEnds | None = None,
    batch_size: int = 1,
) -> Run:
    """Repeat a run until it is undisturbed; returns the run that had most of its cores.

    One that lies below the best so far is not repeated. One that ended early and does not, since it had less of its
    cores than the best, is repeated to its end, and does not count.

    Args:
        attempt: runs; it may end early once it gives fewer micro-batches/s than it is given, 0 for never.
        n_attempts: at most.
        best: the interval of the best so far; None without one.
        batch_size: samples of a micro-batch.
    """

    def is_beaten(run: Run) -> bool:
        ends = run.ends(batch_size, CLOCK_HZ)
        return best is not None and ends is not None and ends.is_below(best)

    start_ns = monotonic_ns()
    runs = [attempt(0.0 if best is None else best.low_per_s / batch_size)]
    if is_beaten(runs[0]):
        return runs[0]
    if runs[0].ended_early:
        runs = [attempt(0.0)]
    while not runs[-1].undisturbed and len(runs) < n_attempts and monotonic_ns() - start_ns <= MAX_REPEATED_S * 1e9:
        runs.append(attempt(0.0))
    return max(runs, key=lambda run: run.core_fraction)


class OpenPlan(AbstractContextManager["OpenPlan"]):
    """A plan in pipelines side by side, loaded and warm within the context; it may be measured several times.

    Args:
        source, graph: the model.
        plan: the stages of a pipeline, and its devices; without a placement pipelines are packed.
        cluster: the devices; a stage may use its device's memory.
        options: batch size, and the session, whose cores of a device are its threads.
        replicas: number of pipelines.
        machines: those of the cluster; by default this machine has all its devices.
        devices: what they are.
        samples: the inputs; by default they are made up.

    Raises:
        WorkerLost: a process, or another machine, has ended.
        OutOfMemory: a stage exceeds its budget.
    """

    def __init__(
        self,
        source: Source,
        graph: LayerGraph,
        plan: Plan,
        cluster: Cluster,
        options: CompileOptions,
        replicas: int = 1,
        machines: DaskMachines | None = None,
        devices: HostDevices = ALIKE,
        samples: InputSamples | None = None,
    ) -> None:
        n_devices = plan.n_devices

        def resources_of(number: int) -> StageResources:
            machine, device = cluster.machine_device(number)
            session = devices.session(device, options)
            among = machines.machines[machine].facts.cores if machines else ()
            budget_bytes = int(cluster.devices[number].memory_bytes)
            return StageResources(devices.cores(device, session.n_threads, among), session, budget_bytes)

        packed = (range(first, first + n_devices) for first in range(0, n_devices * replicas, n_devices))
        placement = [list(map(cluster.index, replica)) for replica in plan.placement] or list(map(list, packed))
        self._machines = machines
        self._where = [[cluster.machine_device(number).machine for number in replica] for replica in placement]
        self._resources = [list(map(resources_of, replica)) for replica in placement]
        self._inputs = inputs_of(source, graph, options.batch_size, samples)
        self._given = self._inputs if samples else None
        self._n_replicas = [stage.n_replicas for stage in plan.stages]
        self._parts = graph, source, [stage.layers for stage in plan.stages], options.batch_size

    def __enter__(self) -> OpenPlan:
        with ExitStack() as stack:
            machines = self._machines
            opened = stack.enter_context(machines.open(set(chain(*self._where)))) if machines else None
            hosts = None if opened is None else [[opened[machine] for machine in replica] for replica in self._where]
            self._pipelines = stack.enter_context(
                Pipelines(*self._parts, self._resources, self._n_replicas, hosts, given=self._given)
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def private_bytes(self) -> int:
        """Memory of this machine that all processes hold; what lies on a GPU is none of it."""
        pairs = zip(chain(*self._pipelines.ready), chain(*self._resources), strict=True)
        return sum(
            process.overhead_bytes + (0 if resources.session.gpu else sum(process.memory_bytes.values()))
            for process, resources in pairs
        )

    def measure(self, plan: Plan, keep: Callable[[Batch], None] = lambda _: None, worth_per_s: float = 0.0) -> Run:
        """Run the plan with the same inputs again and again until its pace is steady.

        Args:
            plan: that of this object, or an equal one with other costs.
            keep: called with the outputs of the first micro-batch; the arrays are valid until it returns.
            worth_per_s: as in `SteadyPace`.

        Raises:
            OutOfMemory: an allocation of a stage failed.
            WorkerLost: a process was killed.
        """
        pace = SteadyPace(len(self._resources), plan.n_devices, worth_per_s)

        def batches() -> Iterator[Batch]:
            while not pace.is_steady:
                pace.record_input()
                yield self._inputs

        def take(pipeline: int, number: int, outputs: Batch) -> None:
            pace.record_output(pipeline)
            if number == 0:
                keep(outputs)

        streams = self._pipelines.stream(batches(), take)
        ready, budgets = self._pipelines.ready[0], self._resources[0]
        ends = pairwise(accumulate(self._n_replicas, initial=0))
        measured = (
            _measured(stage, streams[0][first:last], ready[first:last], budgets[first].budget_bytes)
            for stage, (first, last) in zip(plan.stages, ends, strict=True)
        )
        core_fraction = min(spans.core_fraction for processes in streams for spans in processes)
        timelines = tuple(timeline_of(processes, self._n_replicas) for processes in streams)
        measured_plan = replace(plan, stages=tuple(measured))
        return Run(measured_plan, timelines, core_fraction, period_error=pace.error, ended_early=pace.is_beaten)


def inputs_of(source: Source, graph: LayerGraph, batch_size: int, samples: InputSamples | None = None) -> Batch:
    """The inputs of a micro-batch, the same every time; without samples they are made up."""
    ports = source.carried(graph, 0, batch_size)
    return samples.batch(ports) if samples else examples(ports)


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

    Receiving takes no time, because they read inputs in the rings; what comes from another machine counts as sent.
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


MAX_OPEN = 8
"""So those that are measured in turns at the end of a search are mostly still open."""


class OpenPlans:
    """The plans that were measured last, loaded; their processes wait, and end with this object or its process.

    What is loaded takes memory, so all are closed where the machine has less free than they hold.
    """

    def __init__(self) -> None:
        self._plans: dict[object, tuple[OpenPlan, ExitStack]] = {}
        finalize(self, _close, self._plans)  # also at the end of this process

    def get(self, key: object, make: Callable[[], OpenPlan], *, may_lack_memory: bool = False) -> OpenPlan:
        """The plan of a key, loaded now unless it is open; the one that was used longest ago is closed for it.

        Args:
            key, make: see above.
            may_lack_memory: whether the open ones can be why a stage exceeds its budget, as on a GPU, whose memory is
                the budget; then it is loaded once more, without them.

        Raises:
            OutOfMemory: a stage exceeds its budget.
            Exception: any other exception of a stage.
        """
        if key in self._plans:
            self._plans[key] = self._plans.pop(key)  # the last is the one that was used last
            return self._plans[key][0]
        if sum(plan.private_bytes for plan, _ in self._plans.values()) > machine_bytes():
            self.close()
        while len(self._plans) >= MAX_OPEN:
            self.drop(next(iter(self._plans)))
        stack = ExitStack()
        try:
            plan = stack.enter_context(make())
        except OutOfMemory:
            if not (may_lack_memory and self._plans):
                raise
            self.close()
            plan = stack.enter_context(make())
        self._plans[key] = plan, stack
        return plan

    def drop(self, key: object) -> None:
        """Close the plan of a key, if it is open."""
        if key in self._plans:
            self._plans.pop(key)[1].close()

    def close(self) -> None:
        """Close all."""
        _close(self._plans)


def _close(plans: dict[object, tuple[OpenPlan, ExitStack]]) -> None:
    while plans:
        plans.popitem()[1][1].close()


Outputs = Mapping[str, Array]


def reference_outputs(
    source: Source, graph: LayerGraph, plan: Plan, batch_size: int, samples: InputSamples | None = None
) -> Outputs:
    """The outputs of the inputs of a run, in fp32 by the first runtime that is installed and runs the model.

    It computes one stage after the other, each on all cores, so that memory suffices where `plan` does on cores.

    Raises:
        Unsupported: none runs it.
    """
    *others, last = installed_for(gpus=False)
    for runtime in others:
        with suppress(Unsupported):
            return _outputs_by(runtime, source, graph, plan, batch_size, samples)
    return _outputs_by(last, source, graph, plan, batch_size, samples)


def _outputs_by(
    runtime: str,
    source: Source,
    graph: LayerGraph,
    plan: Plan,
    batch_size: int,
    samples: InputSamples | None,
) -> Outputs:
    n_cores = len(cores())
    session = SessionOptions(n_cores, SESSIONS[runtime](cores_per_device=n_cores))  # type: ignore[call-arg]
    resources = [StageResources(cores_of(0, n_cores), session, machine_bytes()) for _ in plan.stages]
    inputs, outputs = inputs_of(source, graph, batch_size, samples), dict[str, Array]()
    stages, given = [stage.layers for stage in plan.stages], inputs if samples else None
    with Pipelines(graph, source, stages, batch_size, [resources], given=given) as pipelines:
        pipelines.stream(iter([inputs]), lambda _pipeline, _number, batch: outputs.update(copy_of(batch)))
    return outputs


def copy_of(batch: Batch) -> dict[str, Array]:
    """Arrays that stay when the slot of a ring is used again."""
    return {name: array.copy() for name, array in batch.items()}


def output_error(outputs: Outputs, expected: Outputs) -> float:
    """The largest `relative_error` of all outputs."""
    return max((relative_error(outputs[name], array) for name, array in expected.items()), default=0.0)
