"""List scheduling of forwards, input gradients (B) and weight gradients (W) on devices with little memory.

Three ideas:

- *Wishes.* The scheduler is told when every action would like to start and never uses those times: it only takes, of
  the actions that compete for a device, the one whose wish is earliest. Any wishes make a legal order.
- *Active schedules* (Giffler and Thompson). The device decides whose next action could stop first, and everything that
  could start before that stop competes: so a device waits for a gradient that is about to arrive rather than begin
  a W, and never waits longer than an action takes.
- *Windows.* A forward that starts just because its device is free holds memory that others miss. So an action competes
  only if its wish is at most `window` later than the device's earliest.

Time may also run backwards: last W first, first F last. Memory is then taken by W and given back by F, everything else
is the same, so one scheduler serves both directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autoauto.records.schedule import BACKWARD, FORWARD, WEIGHT, StageTimes

NEVER = 1 << 62


class Rule(NamedTuple):
    """How a device chooses.

    Attributes:
        window: by how many ticks the wish of an action may be later than the device's earliest.
        fair: whether it may wait for an earlier wish only as long as it keeps the slack of the device with the least.
            Slack is the time in which a device could idle, were all to stop together.
    """

    window: float = NEVER
    fair: bool = False


class Sketch(NamedTuple):
    """What the scheduler found.

    A *job* is all that one stage does of one kind; jobs are numbered as `Codes` numbers them, `kind * n_stages + stage`.

    Attributes:
        makespan: ticks until everything stops.
        starts: for every job the starts of its actions.
        arrivals: for every job when the inputs of its actions have arrived; empty where there are none.
        programs: for every device the jobs of its actions, in order.
    """

    makespan: int
    starts: list[list[int]]
    arrivals: list[list[int]]
    programs: list[list[int]]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What is to be scheduled.

    Attributes:
        devices: the device of every stage, one or two stages a device; of two, the first is passed through first.
        ticks: for every job what one of its actions takes.
        forward_links, backward_links: as in `StageTimes`.
        n_micro_batches: how many micro-batches there are.
        limit: the most activations a device may hold, from the start of an F to the stop of its W.
    """

    devices: tuple[int, ...]
    ticks: tuple[int, ...]
    forward_links: tuple[int, ...]
    backward_links: tuple[int, ...]
    n_micro_batches: int
    limit: int

    @staticmethod
    def of(times: StageTimes, devices: Sequence[int], n_micro_batches: int, limit: int | None) -> Pipeline:
        """The stages of `times` on their devices; without a limit all micro-batches may be in flight."""
        most = n_micro_batches * (len(devices) // (max(devices) + 1))
        return Pipeline(
            tuple(devices),
            tuple(times.forward.tolist() + times.backward.tolist() + times.weight.tolist()),
            tuple(times.forward_links.tolist()),
            tuple(times.backward_links.tolist()),
            n_micro_batches,
            most if limit is None else min(limit, most),
        )

    @property
    def n_stages(self) -> int:
        """How many stages there are."""
        return len(self.devices)

    @property
    def n_devices(self) -> int:
        """How many devices there are."""
        return max(self.devices) + 1

    @property
    def work(self) -> list[int]:
        """For every device what it computes for one micro-batch."""
        total = [0] * self.n_devices
        for job, ticks in enumerate(self.ticks):
            total[self.devices[job % self.n_stages]] += ticks
        return total

    def link(self, stage: int, to: int) -> int:
        """Ticks of a message between neighbouring stages."""
        if self.devices[stage] == self.devices[to]:
            return 0
        return self.forward_links[to] if to > stage else self.backward_links[stage]

    def edges(self) -> list[tuple[int, int, int]]:
        """(from job, to job, ticks of the message): who waits for whom, micro-batch by micro-batch."""
        n, last = self.n_stages, self.n_stages - 1
        forward = [(s, s + 1, self.link(s, s + 1)) for s in range(last)]
        backward = [(BACKWARD * n + s + 1, BACKWARD * n + s, self.link(s + 1, s)) for s in range(last)]
        weight = [(BACKWARD * n + s, WEIGHT * n + s, 0) for s in range(n)]
        return [*forward, (last, BACKWARD * n + last, 0), *backward, *weight]


class Direction:
    """A pipeline with time running forwards or backwards, laid out for the scheduler."""

    def __init__(self, pipeline: Pipeline, *, backwards: bool) -> None:
        n = pipeline.n_stages
        self.pipeline = pipeline
        self.backwards = backwards
        self.device = pipeline.devices * 3
        self.jobs = [[j for j in range(3 * n) if self.device[j] == d] for d in range(pipeline.n_devices)]
        self.takes = [j // n == (WEIGHT if backwards else FORWARD) for j in range(3 * n)]
        self.gives = [j // n == (FORWARD if backwards else WEIGHT) for j in range(3 * n)]
        self.mate = [self._mate(j) for j in range(3 * n)]
        self.inputs = [0] * (3 * n)
        self.outputs: list[list[tuple[int, int, int, int]]] = [[] for _ in range(3 * n)]
        self.sources = [-1] * (3 * n)
        self.n_links = 0
        self.n_scheduled = 0
        self._connect()

    def _mate(self, job: int) -> int:
        """The same kind of job of the device's other stage; itself if there is none."""
        n = self.pipeline.n_stages
        stages = [s for s in range(n) if self.device[s] == self.device[job]]
        return job - job % n + stages[-1 if job % n == stages[0] else 0]

    def _connect(self) -> None:
        """Outputs are (job, its input, ticks, wire); a wire is a directed link between devices, or -1."""
        wires: dict[tuple[int, int], int] = {}
        for edge in self.pipeline.edges():
            job, to = edge[1::-1] if self.backwards else edge[:2]
            ends = self.device[job], self.device[to]
            wire = wires.setdefault(ends, len(wires)) if ends[0] != ends[1] else -1
            self.outputs[job].append((to, self.inputs[to], edge[2], wire))
            self.inputs[to] += 1
            self.sources[to] = job
        self.n_links = len(wires)

    def schedule(self, wishes: list[list[float]], rule: Rule, cutoff: int = NEVER) -> Sketch | None:
        """Schedule every action once; None as soon as a device cannot finish by `cutoff`."""
        run = _Run(self, wishes, rule, cutoff)
        sketch = run.run()
        self.n_scheduled += max(sum(run.done), run.n * len(run.done) // 4)  # wishes cost something, too
        return sketch


class _Run:
    """One run of the scheduler."""

    def __init__(self, direction: Direction, wishes: list[list[float]], rule: Rule, cutoff: int) -> None:
        pipeline, n_jobs = direction.pipeline, len(direction.device)
        self.of, self.wishes, self.window, self.fair = direction, wishes, rule.window, rule.fair
        self.n, self.limit, self.ticks = pipeline.n_micro_batches, pipeline.limit, pipeline.ticks
        self.done = [0] * n_jobs
        self.starts: list[list[int]] = [[] for _ in range(n_jobs)]
        self.arrivals: list[list[list[int]]] = [[[] for _ in range(n)] for n in direction.inputs]
        if not direction.backwards and pipeline.forward_links[0]:  # the host sends one input after the other
            self.arrivals[FORWARD].append([turn * pipeline.forward_links[0] for turn in range(1, self.n + 1)])
        self.programs: list[list[int]] = [[] for _ in range(pipeline.n_devices)]
        self.free = [0] * pipeline.n_devices
        self.slack = [cutoff - self.n * work for work in pipeline.work]
        self.held = [0] * pipeline.n_devices
        self.held_inner = [0] * pipeline.n_devices
        self.wire_free = [0] * direction.n_links
        self.choices: list[list[tuple[float, int, int]]] = [[] for _ in range(pipeline.n_devices)]
        self.first_stop = [0] * pipeline.n_devices

    def run(self) -> Sketch | None:
        """Let the device whose next action could stop first decide, until all is done."""
        for device in range(len(self.free)):
            self.compete(device, self.window)
        for _ in range(self.n * len(self.done)):
            stop = min(self.first_stop)
            if stop == NEVER:  # everyone waits for a wish outside a window
                for device in range(len(self.free)):
                    self.compete(device, NEVER)
                stop = min(self.first_stop)
            device = self.first_stop.index(stop)
            if not self.take(device, *self.choose(device, stop)):
                return None
        arrivals = [inputs[0] if inputs else [] for inputs in self.arrivals]
        return Sketch(max(self.free), self.starts, arrivals, self.programs)

    def choose(self, device: int, first_stop: int) -> tuple[int, int]:
        """(job, start) of the earliest wish among the actions that can start before `first_stop`."""
        choices = self.choices[device]
        earliest = min([choice[2] for choice in choices])
        before = first_stop
        if self.fair:
            before = min(before, earliest + 1 + self.slack[device] - min(self.slack))
        before = max(before, earliest + 1)  # what takes no time stops when it starts
        return min([choice for choice in choices if choice[2] < before])[1:]

    def compete(self, device: int, window: float) -> None:
        """Find which actions compete for a device, and when the first of them could stop."""
        done, wishes, arrivals, ticks, n = self.done, self.wishes, self.arrivals, self.ticks, self.n
        takes, heads = self.of.takes, []
        for job in self.of.jobs[device]:
            i = done[job]
            if i < n and (not takes[job] or self.has_room(device, job)):
                heads.append((wishes[job][i], job, i))
        latest = min(heads)[0] + window if heads else 0
        choices, first_stop = [], NEVER
        for wish, job, i in heads:
            if wish > latest:
                continue
            start = self.free[device]
            for times in arrivals[job]:
                if i >= len(times):
                    break
                start = max(start, times[i])
            else:
                choices.append((wish, job, start))
                first_stop = min(first_stop, start + ticks[job])
        self.choices[device], self.first_stop[device] = choices, first_stop

    def has_room(self, device: int, job: int) -> bool:
        """Whether an activation more can be held, and the oldest micro-batch still get through.

        With two stages a device, a micro-batch holds an activation of the outer one while it needs one of the inner.
        The last free one is for the inner stage, unless that holds one already, which will come back by itself.
        """
        held, mate = self.held[device], self.of.mate[job]
        if held >= self.limit:
            return False
        if job < mate:
            return held < self.limit - 1 or self.held_inner[device] > 0 or self.done[mate] == self.n
        return not self.of.backwards or job == mate or self.done[mate] > self.done[job]

    def take(self, device: int, job: int, start: int) -> bool:
        """Let an action start; False if its device cannot finish in time any more."""
        of = self.of
        self.slack[device] -= start - self.free[device]
        if self.slack[device] < 0:
            return False
        self.done[job] += 1
        self.starts[job].append(start)
        self.programs[device].append(job)
        self.free[device] = stop = start + self.ticks[job]
        change = 1 if of.takes[job] else -1 if of.gives[job] else 0
        self.held[device] += change
        if job > of.mate[job]:
            self.held_inner[device] += change
        for to, which, ticks, wire in of.outputs[job]:
            arrival = stop + ticks
            if wire >= 0:
                arrival = self.wire_free[wire] = max(arrival, self.wire_free[wire] + ticks)
            arrivals = self.arrivals[to][which]
            arrivals.append(arrival)
            if of.device[to] != device and len(arrivals) == self.done[to] + 1:  # what it waits for
                self.compete(of.device[to], self.window)
        self.compete(device, self.window)
        return True
