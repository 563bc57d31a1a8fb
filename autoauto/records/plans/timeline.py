"""When actions start and stop, simulated or measured: `Timeline`; and plans that ran: `Run`, `Runner`, `FileRunner`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, lcm
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from autoauto.records.costs.options import CompileOptions, DeviceSession
from autoauto.records.display import Displayed
from autoauto.records.hardware import Cluster
from autoauto.records.interval import RunEnds
from autoauto.records.layers import LayerGraph, Port
from autoauto.records.plans.plan import Plan
from autoauto.records.schedule import CHECK, Action, Schedule
from autoauto.records.target import Origin
from autoauto.records.units import Array, FloatArray, IntArray, Precision, samples_per_s

STEP_PARTS = ("fill", "main", "flush", "all-reduce", "update")
UNDISTURBED_FRACTION = 0.95
"""A stage that had its cores to itself, at full speed, for less of its computing time was disturbed."""


class StepEnd(NamedTuple):
    """The end of a training step, after its last backward passes, in ticks.

    Attributes:
        flushed_tick: when the last action has stopped and the last message has arrived.
        all_reduce: (n_devices, 2) start and stop ticks in which every device sums its gradients over the replicas.
        update: (n_devices, 2) start and stop ticks in which it updates its weights.
    """

    flushed_tick: int
    all_reduce: IntArray
    update: IntArray


class Span(NamedTuple):
    """An action with its start and stop, in cycles."""

    action: Action
    start_cycle: float
    stop_cycle: float


@dataclass(frozen=True, slots=True, eq=False)
class Timeline(Displayed):
    """A schedule with the start and stop of all its actions. Ticks are whole parts of a cycle.

    Attributes:
        schedule: the actions in order.
        starts, stops: for every device the ticks of its actions, in the schedule's order.
        exchanges: for every device (n, 2) start and stop ticks of transfers in which it cannot compute; none where
            transfers overlap.
        stop_tick: when the last action has stopped, the last message has arrived, and the step has ended.
        ticks_per_cycle: as in `StageTimes`.
        step_end: of a step of training; None where only its actions are known.
    """

    schedule: Schedule
    starts: tuple[IntArray, ...]
    stops: tuple[IntArray, ...]
    exchanges: tuple[IntArray, ...]
    stop_tick: int
    ticks_per_cycle: int = 1
    origin: Origin = Origin.SIMULATED  # simulated, or measured where devices ran it
    step_end: StepEnd | None = None

    def cycles(self, ticks: int) -> float:
        """Ticks as cycles; an integer where they are whole."""
        if ticks % self.ticks_per_cycle == 0:
            return ticks // self.ticks_per_cycle
        return ticks / self.ticks_per_cycle

    def spans(self, device: int) -> Iterator[Span]:
        """The actions of a device with their times."""
        times = zip(self.starts[device].tolist(), self.stops[device].tolist(), strict=True)
        for action, (start, stop) in zip(self.schedule.actions(device), times, strict=True):
            yield Span(action, self.cycles(start), self.cycles(stop))

    @property
    def makespan_cycles(self) -> float:
        """Cycles from the first start to the end of the last action and message, and of a step of training."""
        return self.cycles(self.stop_tick)

    @property
    def step_parts(self) -> dict[str, float]:
        """The cycles of a step, part by part; they add up to the makespan.

        The pipeline fills until its last device has started, and flushes from when the first has done its last action.
        All-reduce and update count from the end of the flush: what overlaps with the flush of other devices is a part
        of the flush.
        """
        filled = max(int(starts[0]) for starts in self.starts if len(starts))
        main = max(filled, min(int(stops[-1]) for stops in self.stops if len(stops)))
        flushed = reduced = self.stop_tick
        if self.step_end is not None:
            flushed = self.step_end.flushed_tick
            reduced = max(flushed, int(self.step_end.all_reduce[:, 1].max()))
        ends = (0, filled, main, flushed, reduced, self.stop_tick)
        lengths = [self.cycles(stop - start) for start, stop in pairwise(ends)]
        return dict(zip(STEP_PARTS, lengths, strict=True))

    @property
    def busy_cycles(self) -> tuple[float, ...]:
        """Compute of each device, the update of weights included, checks aside."""
        return tuple(map(self.cycles, self._busy_ticks))

    @property
    def ideal_cycles(self) -> float:
        """A lower bound for all orders: compute of the busiest device, m (tf + tb) when balanced [pipeline-notes]."""
        return self.cycles(max(self._busy_ticks))

    @property
    def exchange_cycles(self) -> tuple[float, ...]:
        """Transfers of each device in which it cannot compute, and its part of the all-reduce."""
        return tuple(map(self.cycles, self._exchange_ticks))

    @property
    def bubble_cycles(self) -> tuple[float, ...]:
        """Cycles in which each device neither computes nor exchanges; checks count as idle."""
        used = zip(self._busy_ticks, self._exchange_ticks, strict=True)
        return tuple(self.cycles(self.stop_tick - busy - exchanged) for busy, exchanged in used)

    @property
    def bubble_fraction(self) -> float:
        """Bubble as a share of all devices' time: (p - 1) / (m + p - 1) for equal stages in 1F1B [pipeline-notes]."""
        if not self.stop_tick:
            return 0.0
        return sum(self.bubble_cycles) / (self.makespan_cycles * self.schedule.n_devices)

    @property
    def period_cycles(self) -> float:
        """Cycles between two finished micro-batches in the steady state: the middle half of all micro-batches.

        A micro-batch is finished when the last action on it stops, the backward where there is one. Devices that run a
        stage in turn may finish one each at once: then whole turns of all stages count, if there are any.
        """
        done, turns = np.sort(self._finished()), lcm(*self.schedule.n_replicas)
        first, last = len(done) // 4, len(done) - 1 - len(done) // 4
        if first == last:
            return self.makespan_cycles
        if last - first > turns:
            last -= (last - first) % turns
        return float(done[last] - done[first]) / (last - first) / self.ticks_per_cycle

    @property
    def latency_cycles(self) -> float:
        """Cycles from the first action of the first micro-batch to its last."""
        return self.cycles(int(self._finished()[0]) - min(int(starts[0]) for starts in self.starts if len(starts)))

    @property
    def latencies(self) -> FloatArray:
        """(m,) cycles from the start of the first action on each micro-batch to the end of the last."""
        codes = self.schedule.codes
        first_ticks = np.full(self.schedule.n_micro_batches, self.stop_tick)
        for program, starts in zip(self.schedule.programs, self.starts, strict=True):
            work = codes.kinds(program) != CHECK
            np.minimum.at(first_ticks, codes.micro_batches(program[work]), starts[work])
        cycles: FloatArray = (self._finished() - first_ticks) / self.ticks_per_cycle
        return cycles

    def gaps(self, device: int) -> IntArray:
        """(n, 2) start and stop ticks of the spans in which a device is idle or runs checks."""
        work = self.schedule.codes.kinds(self.schedule.programs[device]) != CHECK
        actions = np.stack((self.starts[device][work], self.stops[device][work]), axis=1)
        spans = [actions, self.exchanges[device]]
        if self.step_end is not None:
            spans += [self.step_end.all_reduce[device : device + 1], self.step_end.update[device : device + 1]]
        used = np.concatenate(spans)
        used = used[np.argsort(used[:, 0], kind="stable")]
        # A gap lies between the latest stop so far and the next start; there may be none.
        starts = np.concatenate(([0], np.maximum.accumulate(used[:, 1])))
        stops = np.concatenate((used[:, 0], [self.stop_tick]))
        idle = stops > starts
        return np.stack((starts[idle], stops[idle]), axis=1)

    @property
    def _busy_ticks(self) -> list[int]:
        codes = self.schedule.codes
        ticks = []
        for program, starts, stops in zip(self.schedule.programs, self.starts, self.stops, strict=True):
            work = codes.kinds(program) != CHECK
            ticks.append(int((stops - starts)[work].sum()))
        if self.step_end is not None:
            ticks = _with_lengths(ticks, self.step_end.update)
        return ticks

    @property
    def _exchange_ticks(self) -> list[int]:
        ticks = [int((spans[:, 1] - spans[:, 0]).sum()) for spans in self.exchanges]
        if self.step_end is not None:
            ticks = _with_lengths(ticks, self.step_end.all_reduce)
        return ticks

    def _finished(self) -> IntArray:
        """(m,) ticks at which the last action on each micro-batch stops."""
        codes = self.schedule.codes
        done = np.zeros(self.schedule.n_micro_batches, dtype=np.int64)
        for program, stops in zip(self.schedule.programs, self.stops, strict=True):
            work = codes.kinds(program) != CHECK
            np.maximum.at(done, codes.micro_batches(program[work]), stops[work])
        return done


def _with_lengths(ticks: Sequence[int], spans: IntArray) -> list[int]:
    """Ticks by device plus the length of a span of every device, (n_devices, 2)."""
    lengths = (spans[:, 1] - spans[:, 0]).tolist()
    return [own + length for own, length in zip(ticks, lengths, strict=True)]


@dataclass(frozen=True, slots=True)
class Run:
    """A plan that ran, in one or more pipelines side by side.

    Attributes:
        plan: the stages with their measured costs, those of the first pipeline.
        timelines: one for every pipeline.
        core_fraction: the part of its computing time in which the most disturbed stage had its cores to itself.
        output_error: as in `Trial`.
        period_error: half the width of the confidence interval of its period, as a share of it; None without one.
        ended_early: whether it ended since it is slower than what it was compared with, so that its numbers are those
            so far.
    """

    plan: Plan
    timelines: tuple[Timeline, ...]
    core_fraction: float = 1.0
    output_error: float | None = None
    period_error: float | None = None
    ended_early: bool = False

    @property
    def origin(self) -> Origin:
        """The origin of its timelines: measured, or simulated from stages that were compiled whole."""
        return self.timelines[0].origin

    @property
    def undisturbed(self) -> bool:
        """True if no other process took much of the stages' cores, so that the times show the plan alone."""
        return self.core_fraction >= UNDISTURBED_FRACTION

    @property
    def latency_cycles(self) -> float:
        """Cycles from the start of the first stage to the end of the last.

        The median of all micro-batches when they were measured, else that of the first.
        """
        if self.origin is Origin.SIMULATED:
            return self.timelines[0].latency_cycles
        return float(np.median(np.concatenate([timeline.latencies for timeline in self.timelines])))

    @property
    def period_cycles(self) -> float:
        """Cycles between two finished micro-batches in the steady state, over all pipelines."""
        return 1 / sum(1 / timeline.period_cycles for timeline in self.timelines)

    def ends(self, batch_size: int, clock_hz: float) -> RunEnds | None:
        """The ends of the interval of its throughput, in samples/s; None without one."""
        if self.period_error is None:
            return None
        middle = samples_per_s(batch_size, self.period_cycles, clock_hz)
        error = self.period_error
        high = middle / (1.0 - error) if error < 1.0 else inf
        return RunEnds(middle / (1.0 + error), high, min(self.core_fraction, 1.0))


@runtime_checkable
class Runner(Protocol):
    """A target with real devices that run plans."""

    def run(self, graph: LayerGraph, plan: Plan, cluster: Cluster, options: CompileOptions, replicas: int) -> Run:
        """Run `plan` on the first devices of `cluster`, `replicas` times side by side, until it is steady.

        Raises OutOfMemory if a stage needs more than its device may use.
        """


@runtime_checkable
class Races(Runner, Protocol):
    """A runner whose runs end early where another plan is faster."""

    def race(
        self,
        graph: LayerGraph,
        plan: Plan,
        cluster: Cluster,
        options: CompileOptions,
        replicas: int,
        best: RunEnds | None,
    ) -> Run:
        """As `run`, but once the interval of its throughput lies wholly below that of the best so far it may end.

        Raises as `run`.
        """


@runtime_checkable
class FileRunner(Runner, Protocol):
    """A runner that runs the model's file, in several formats, on inputs that a user gave or on made-up ones."""

    @property
    def given_inputs(self) -> Callable[[Sequence[Port]], Mapping[str, Array]] | None:
        """The user's inputs of a micro-batch, with the shapes of such ports; None where they are made up."""

    def precisions(self) -> tuple[Precision, ...]:
        """The formats in which its devices compute."""

    def device_sessions(self, options: CompileOptions) -> tuple[DeviceSession, ...]:
        """Its devices, where they are GPUs or unlike; nothing where all are cores and alike."""
