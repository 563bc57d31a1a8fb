"""Is there a shorter period? OR-Tools CP-SAT on orders in which every group of micro-batches repeats the one before.

    python studies/steady_states.py [--quick] [--stages 8,16] [--links 0.5,2] [--groups 1,2] [--order v-min]
                                    [--seconds S]

All actions take as long as a forward, links so many times that. `bound` is the period of a micro-batch that the work of
a device, the messages of a link and the memory for activations allow, in any order; `ours` is that of the package's
search (autoauto/schedule/zero_bubble/steady_state.py), whatever its group. Both are in forwards, and so is
`shortest`: the period of a group over its micro-batches, the first multiple of half a forward a group of which CP-SAT
finds an order. Of all smaller multiples it proves that none exists; "-" if it cannot tell of a smaller one in S
seconds. Needs OR-Tools (pip install ortools).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import count, pairwise
from random import Random
from typing import Any

from autoauto.records.schedule import BACKWARD, WEIGHT, Order
from autoauto.schedule.orders.registry import spec_of, stage_devices_of
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, memory_taken
from autoauto.schedule.zero_bubble.steady_state import steady_state

COARSE, FINE = 2, 100
"""Ticks of a forward for CP-SAT, which is slow where there are many, and for our own schedule."""


def problem(order: Order, n_stages: int, link: float, forward: int) -> ZeroBubbleProblem:
    """Equal stages, with the order's own limit of activations."""
    n_devices = n_stages if spec_of(order).stage_devices(2, 1) == (0, 1) else n_stages // 2
    limit = spec_of(order).default_max_in_flight
    assert limit is not None
    links, n_micro_batches = int(link * forward), 4 * n_devices
    return ZeroBubbleProblem(
        stage_devices_of(order, n_devices),
        (forward,) * (3 * n_stages),
        (0, *(links,) * n_stages),
        (links,) * n_stages,
        n_micro_batches,
        limit(n_devices),
    )


def period_bound(pipeline: ZeroBubbleProblem, group: int = 1) -> int:
    """Ticks that no period of a group goes below, in any order: by work, by messages and by memory."""
    n, devices = pipeline.n_stages, pipeline.devices
    wires: dict[tuple[int, int], int] = defaultdict(int)
    for job, to in pairwise(pipeline.path):
        wires[devices[job % n], devices[to % n]] += pipeline.link(job, to)
    by_memory = [-(-group * each // pipeline.limit) for each in memory_taken(pipeline)]
    return max(*(group * each for each in (*pipeline.work, *wires.values())), *by_memory)


def _held(pipeline: ZeroBubbleProblem) -> list[int]:
    """For every device how long it holds the activations of a micro-batch that never waits."""
    held = [0] * pipeline.n_devices
    for stage, device in enumerate(pipeline.devices):
        held[device] += _lifetime(pipeline, stage)
    return held


def _lifetime(pipeline: ZeroBubbleProblem, stage: int) -> int:
    """How long a micro-batch that never waits holds an activation of a stage."""
    path, backward = pipeline.path, BACKWARD * pipeline.n_stages + stage
    steps = pairwise(path[path.index(stage) : path.index(backward) + 1])
    travel = sum(pipeline.ticks[job] + pipeline.link(job, to) for job, to in steps)
    return travel + pipeline.ticks[backward] + pipeline.ticks[WEIGHT * pipeline.n_stages + stage]


class _Repeating:
    """The CP-SAT model of a group of micro-batches that is repeated.

    The first stage holds an activation for the whole journey of a micro-batch. So a group waits, in all, no longer than
    the memory of its device admits, and for weight gradients no longer than that of theirs.

    Attributes:
        model: the model.
        busy: for every device, and for every link by its ends, what occupies it.
        held: for every device the activations in it, those of several periods.
        spans: for every device how long it holds each activation of a group.
        spare: for every device for how long it can hold what waits.
        longest: no activation is held for longer.
        end: no action of a group starts later.
    """

    def __init__(self, pipeline: ZeroBubbleProblem, period: int, group: int) -> None:
        from ortools.sat.python import cp_model

        self.pipeline, self.period, self.model = pipeline, period, cp_model.CpModel()
        self.spare = [max(0, pipeline.limit * period - group * held) for held in _held(pipeline)]
        self.longest = _lifetime(pipeline, 0) + max(self.spare)
        self.end = period + self.longest + max(self.spare)
        self.busy: dict[object, list[Any]] = defaultdict(list)
        self.held: list[list[Any]] = [[] for _ in self.spare]
        self.spans: list[list[Any]] = [[] for _ in self.spare]
        departures: list[Any] = [self.model.new_int_var(0, period - 1, "") for _ in range(group)]
        self.model.add(departures[0] == 0)
        for departure in departures:
            self.add_micro_batch(departure)
        for departure, after in pairwise([*departures, period]):  # the longest gap comes first
            self.model.add(departure <= after)
            if group > 1:
                self.model.add(after - departure <= departures[1])
        for users in self.busy.values():
            self.model.add_no_overlap(users)
        for held, spans in zip(self.held, self.spans, strict=True):
            self.model.add_cumulative(held, [1] * len(held), pipeline.limit)
            self.model.add(sum(spans) <= pipeline.limit * period)

    def add_micro_batch(self, departure: Any) -> None:
        """Add all its actions, messages and activations."""
        n, ticks, devices = self.pipeline.n_stages, self.pipeline.ticks, self.pipeline.devices
        starts, phases = {0: departure}, {0: self.occupied(devices[0], departure, ticks[0])}
        for job, to, link in self.pipeline.edges():
            ready, wait = starts[job] + ticks[job], self.spare[devices[to % n] if to >= WEIGHT * n else devices[0]]
            if link:
                sent = self.no_earlier(ready, wait)
                self.occupied((devices[job % n], devices[to % n]), sent, link)
                ready = sent + link
            starts[to] = self.no_earlier(ready, wait)
            phases[to] = self.occupied(devices[to % n], starts[to], ticks[to])
        for stage, device in enumerate(devices):
            span = self.model.new_int_var(_lifetime(self.pipeline, stage), self.longest, "")
            weight = WEIGHT * n + stage
            self.model.add(span == starts[weight] + ticks[weight] - starts[stage])
            self.spans[device].append(span)
            for turn in range(self.longest // self.period + 2):  # in the last of these periods all of them are there
                start, stop = phases[stage] + turn * self.period, self.model.new_int_var(0, 3 * self.end, "")
                self.held[device].append(self.model.new_interval_var(start, span, stop, ""))

    def no_earlier(self, than: Any, wait: int) -> Any:
        """A time after at most this wait."""
        time = self.model.new_int_var(0, self.end, "")
        self.model.add(time >= than)
        self.model.add(time <= than + wait)
        return time

    def occupied(self, user: object, start: Any, duration: int) -> Any:
        """The start modulo the period; the user is busy in the next period as well, as actions reach into it."""
        phase, periods = self.model.new_int_var(0, self.period - 1, ""), self.model.new_int_var(0, self.end, "")
        self.model.add(start == periods * self.period + phase)
        for first in (phase, phase + self.period):
            self.busy[user].append(self.model.new_fixed_size_interval_var(first, duration, ""))
        return phase


def repeats(pipeline: ZeroBubbleProblem, period: int, seconds: float, group: int = 1) -> bool | None:
    """Whether some order repeats every group after `period` ticks; None if CP-SAT cannot tell in time."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = seconds, 2
    status = solver.solve(_Repeating(pipeline, period, group).model)
    return None if status == cp_model.UNKNOWN else status != cp_model.INFEASIBLE


def shortest_period(pipeline: ZeroBubbleProblem, seconds: float, group: int = 1) -> int | None:
    """The shortest period of a group in whole ticks; None if CP-SAT cannot tell of a shorter one."""
    for period in count(period_bound(pipeline, group)):
        answer = repeats(pipeline, period, seconds, group)
        if answer is not False:
            return period if answer else None
    raise AssertionError


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for every number of stages, links and micro-batches in a group."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="4 stages, links of half a forward")
    parser.add_argument("--stages", default="8,16", help="numbers of stages (default: %(default)s)")
    parser.add_argument("--links", default="0.5,2", help="links, in forwards (default: %(default)s)")
    parser.add_argument("--groups", default="1,2", help="micro-batches that repeat together (default: %(default)s)")
    parser.add_argument("--order", type=Order, default=Order.V_MIN, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=120, help="for every period (default: %(default)s)")
    args = parser.parse_args(argv)
    stages, links, groups = ("4", "0.5", "1") if args.quick else (args.stages, args.links, args.groups)
    if find_spec("ortools") is None:
        raise SystemExit("the study needs OR-Tools: pip install ortools")
    print("order   stages  link    bound     ours  group  shortest")
    for n_stages in map(int, stages.split(",")):
        for link in map(float, links.split(",")):
            coarse, fine = (problem(args.order, n_stages, link, ticks) for ticks in (COARSE, FINE))
            ours = steady_state(fine, Random(0))
            cells = period_bound(fine) / FINE, (float("nan") if ours is None else ours.pace) / FINE
            numbers = "".join(f"{cell:9.2f}" for cell in cells)
            for group in map(int, groups.split(",")):
                shortest = shortest_period(coarse, args.seconds, group)
                proved = "-" if shortest is None else f"{shortest / group / COARSE:.2f}"
                print(f"{args.order:7}{n_stages:7}{link:6}{numbers}{group:7}{proved:>10}", flush=True)


if __name__ == "__main__":
    main()
