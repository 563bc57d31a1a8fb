"""Plans measured on real processes: `OpenPlan` runs one until its pace is steady, or slower than another plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
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
from autoauto.records.units import Array
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
"""Attempts at an undisturbed run, and the time after which no other begins: over a longer run disturbances even out."""


def repeat_until_undisturbed(
    attempt: Callable[[float], Run],
    n_attempts: int = N_ATTEMPTS,
    best: RunEnds | None = None,
    batch_size: int = 1,
) -> Run:
    """Repeat a run until it is undisturbed; returns the run that had most of its cores.

    A run whose throughput lies below the best so far is not repeated. A run that ended early, but had less of its cores
    than the best and so does not lie below it, is replaced by a run to the end.

    Args:
        attempt: runs once. Its argument is the micro-batches/s below which the run may end early; 0 for never.
    """
    start_ns = monotonic_ns()
    worth_per_s = 0.0 if best is None else best.low_per_s / batch_size
    first = attempt(worth_per_s)
    ends = first.ends(batch_size, CLOCK_HZ)
    if best is not None and ends is not None and ends.is_below(best):
        return first
    # A run that ended early and is not below the best is no measurement: it runs again, to its end.
    runs = [attempt(0.0) if first.ended_early else first]
    while not runs[-1].undisturbed and len(runs) < n_attempts and monotonic_ns() - start_ns <= MAX_REPEATED_S * 1e9:
        runs.append(attempt(0.0))
    return max(runs, key=lambda run: run.core_fraction)


class OpenPlan(AbstractContextManager["OpenPlan"]):
    """A plan in pipelines side by side, loaded and warm within the context; it may be measured several times.

    Args:
        plan: the stages of a pipeline, and its devices; without a placement pipelines are packed.
        cluster: the devices; a stage may use its device's memory.
        options: batch size, and the session, whose cores of a device are its threads.

    Raises:
        OutOfMemory: a stage exceeds its budget.
        WorkerLost: a process, or another machine, has ended.
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
        def resources_of(number: int) -> StageResources:
            machine, device = cluster.machine_device(number)
            session = devices.session(device, options)
            among = machines.machines[machine].facts.cores if machines else ()
            budget_bytes = int(cluster.devices[number].memory_bytes)
            return StageResources(devices.cores(device, session.n_threads, among), session, budget_bytes)

        n_devices = plan.n_devices
        if plan.placement:
            placement = [list(map(cluster.index, replica)) for replica in plan.placement]
        else:
            placement = [list(range(n_devices * k, n_devices * (k + 1))) for k in range(replicas)]
        self._machines = machines
        self._machine_numbers = []
        for replica in placement:
            self._machine_numbers.append([cluster.machine_device(number).machine for number in replica])
        self._resources = [list(map(resources_of, replica)) for replica in placement]
        self._inputs = inputs_of(source, graph, options.batch_size, samples)
        self._n_replicas = [stage.n_replicas for stage in plan.stages]
        self._make_pipelines = partial(
            Pipelines,
            graph,
            source,
            [stage.layers for stage in plan.stages],
            options.batch_size,
            self._resources,
            self._n_replicas,
            given=self._inputs if samples else None,
        )

    def __enter__(self) -> OpenPlan:
        with ExitStack() as stack:
            hosts = None
            if self._machines is not None:
                opened = stack.enter_context(self._machines.open(set(chain(*self._machine_numbers))))
                hosts = [[opened[machine] for machine in replica] for replica in self._machine_numbers]
            self._pipelines = stack.enter_context(self._make_pipelines(hosts))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def private_bytes(self) -> int:
        """Memory of this machine that all processes hold; memory of a GPU does not count."""
        n_bytes = 0
        for process, resources in zip(chain(*self._pipelines.ready), chain(*self._resources), strict=True):
            n_bytes += process.overhead_bytes
            if not resources.session.gpu:
                n_bytes += sum(process.memory_bytes.values())
        return n_bytes

    def measure(self, plan: Plan, keep: Callable[[Batch], None] = lambda _: None, worth_per_s: float = 0.0) -> Run:
        """Run the plan with the same inputs again and again until its pace is steady.

        Args:
            keep: called with the outputs of the first micro-batch; the arrays are valid until it returns.

        Raises OutOfMemory if an allocation of a stage fails, and WorkerLost if a process was killed.
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
        # The stages are measured in the first pipeline alone, in which their processes lie one after the other.
        spans, ready, resources = streams[0], self._pipelines.ready[0], self._resources[0]
        measured, first = [], 0
        for stage in plan.stages:
            own = slice(first, first + stage.n_replicas)
            measured.append(_measured(stage, spans[own], ready[own], resources[first].budget_bytes))
            first += stage.n_replicas
        return Run(
            replace(plan, stages=tuple(measured)),
            tuple(timeline_of(processes, self._n_replicas) for processes in streams),
            core_fraction=min(each.core_fraction for each in chain(*streams)),
            period_error=pace.error,
            ended_early=pace.is_beaten,
        )


def inputs_of(source: Source, graph: LayerGraph, batch_size: int, samples: InputSamples | None = None) -> Batch:
    """The inputs of a micro-batch, the same every time; without samples they are made up."""
    ports = source.carried(graph, 0, batch_size)
    return samples.batch(ports) if samples else examples(ports)


def timeline_of(processes: Sequence[StageSpans], n_replicas: Sequence[int]) -> Timeline:
    """The timeline of one pipeline, from the first action on; 1 cycle = 1 ns."""
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

    Receiving takes no time, because a stage reads its inputs in the rings. A message of another machine is read into
    this process first, which counts as sending.
    """
    copied, computed, sent = np.diff(np.concatenate([spans.times for spans in streams]), axis=1).T
    memory_bytes: dict[str, int] = {}
    for category in ready[0].memory_bytes:
        memory_bytes[category] = max(process.memory_bytes[category] for process in ready)
    return replace(
        stage,
        forward_cycles=int(np.median(computed)),
        receive_cycles=0,
        send_cycles=int(np.median(copied + sent)),
        memory_bytes=memory_bytes,
        limit_bytes=budget_bytes,
    )


MAX_OPEN = 8
"""Enough that plans which are measured in turns at the end of a search are mostly still open."""


class OpenPlans:
    """The plans that were measured last, still loaded: a search soon measures them again.

    Their processes wait, and end with this object or its process. Loaded plans take memory, so all are closed where the
    machine has less free memory than they hold.
    """

    def __init__(self) -> None:
        self._plans: dict[object, tuple[OpenPlan, ExitStack]] = {}
        finalize(self, _close, self._plans)  # also at the end of this process

    def get(self, key: object, make: Callable[[], OpenPlan], *, may_lack_memory: bool = False) -> OpenPlan:
        """The plan of a key, which `make` makes unless it is open; the plan that was used longest ago makes room.

        Args:
            may_lack_memory: whether a stage may exceed its budget because of the open plans, as on a GPU, whose memory
                is the budget; then they are closed, and the plan is loaded once more.

        Raises what a stage raises, OutOfMemory if it exceeds its budget.
        """
        if key in self._plans:
            self._plans[key] = self._plans.pop(key)  # the dictionary is in the order of the last use
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
    """The outputs for the inputs of a run, in fp32 by the first runtime that is installed and runs the model.

    The stages compute one after the other, each on all cores, so memory suffices where it suffices for `plan` on cores.

    Raises:
        Unsupported: no runtime runs the model.
    """
    n_cores = len(cores())
    inputs = inputs_of(source, graph, batch_size, samples)
    stages = [stage.layers for stage in plan.stages]
    outputs: dict[str, Array] = {}
    runtimes = installed_for(gpus=False)
    last = runtimes[-1]
    for runtime in runtimes:
        session = SessionOptions(n_cores, SESSIONS[runtime](cores_per_device=n_cores))
        resources = [StageResources(cores_of(0, n_cores), session, machine_bytes())] * len(stages)
        try:
            with Pipelines(graph, source, stages, batch_size, [resources], given=inputs if samples else None) as opened:
                opened.stream(iter([inputs]), lambda _pipeline, _number, batch: outputs.update(copy_of(batch)))
            break
        except Unsupported:
            if runtime == last:
                raise  # its refusal is the answer
    return outputs


def copy_of(batch: Batch) -> dict[str, Array]:
    """Copies of arrays, which stay when the slot of the ring is used again."""
    return {name: array.copy() for name, array in batch.items()}
