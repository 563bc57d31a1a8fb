"""Is there a shorter period? OR-Tools CP-SAT on orders in which every micro-batch repeats the one before.

    python studies/steady_states.py [--quick] [--stages 8,16] [--links 0.5,2] [--order v-min] [--seconds S]

All actions take as long as a forward, links so many times that. `bound` is the period that the work of a device, the
messages of a link and the memory for activations allow; `ours` is that of the package's modulo schedule
(autoauto/schedule/zero_bubble/modulo.py). Both are in forwards, and so is `shortest`: the first multiple of half a
forward for which CP-SAT finds an order that repeats every micro-batch after so long. Of all smaller multiples it proves
that none exists; "-" if it cannot tell of a smaller one in S seconds. Needs OR-Tools (pip install ortools).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import combinations, count, pairwise
from random import Random
from typing import Any, NamedTuple

from autoauto.records.schedule import BACKWARD, WEIGHT, Order
from autoauto.schedule.orders.registry import spec_of, stage_devices_of
from autoauto.schedule.zero_bubble.modulo import modulo_schedule
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem

COARSE, FINE = 2, 100
"""Ticks of a forward for CP-SAT, which is slow where there are many, and for our own schedule."""
MAX_PERIODS = 40
"""A micro-batch is done after so many periods."""


class _Time(NamedTuple):
    """A time as CP-SAT sees it: `start = periods * period + phase`."""

    start: Any
    periods: Any
    phase: Any


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


def period_bound(pipeline: ZeroBubbleProblem) -> int:
    """Ticks that no period goes below, by work, by messages and by memory."""
    n, ticks, path = pipeline.n_stages, pipeline.ticks, pipeline.path
    starts = {path[0]: 0}
    wires: dict[tuple[int, int], int] = defaultdict(int)
    for job, to in pairwise(path):
        starts[to] = starts[job] + ticks[job] + pipeline.link(job, to)
        wires[pipeline.devices[job % n], pipeline.devices[to % n]] += pipeline.link(job, to)
    held = [0] * pipeline.n_devices
    for stage, device in enumerate(pipeline.devices):
        backward = BACKWARD * n + stage
        held[device] += starts[backward] - starts[stage] + ticks[backward] + ticks[WEIGHT * n + stage]
    return max(*pipeline.work, *wires.values(), *(-(-each // pipeline.limit) for each in held))


def repeats(pipeline: ZeroBubbleProblem, period: int, seconds: float) -> bool | None:
    """Whether some order repeats every micro-batch after `period` ticks; None if CP-SAT cannot tell in time."""
    from ortools.sat.python import cp_model

    n, ticks, devices, model = pipeline.n_stages, pipeline.ticks, pipeline.devices, cp_model.CpModel()

    def time() -> _Time:
        start = model.new_int_var(0, MAX_PERIODS * period, "")
        periods, phase = model.new_int_var(0, MAX_PERIODS, ""), model.new_int_var(0, period - 1, "")
        model.add(start == periods * period + phase)
        return _Time(start, periods, phase)

    def is_no_later(first: _Time, second: _Time) -> Any:
        holds = model.new_bool_var("")
        model.add(first.phase <= second.phase).only_enforce_if(holds)
        model.add(first.phase > second.phase).only_enforce_if(~holds)
        return holds

    times = [time() for _ in ticks]
    model.add(times[0].start == 0)
    busy: dict[object, list[tuple[_Time, int]]] = defaultdict(list)  # devices, and links by their two ends
    for job, each in enumerate(times):
        busy[devices[job % n]].append((each, ticks[job]))
    for job, to, link in pipeline.edges():
        ready = times[job].start + ticks[job]
        if link:
            sent = time()
            model.add(sent.start >= ready)
            busy[devices[job % n], devices[to % n]].append((sent, link))
            ready = sent.start + link
        model.add(times[to].start >= ready)
    for users in busy.values():
        for (a, a_ticks), (b, b_ticks) in combinations(users, 2):
            is_first = model.new_bool_var("")
            for gap, before, after, holds in (
                (b.phase - a.phase, a_ticks, b_ticks, is_first),
                (a.phase - b.phase, b_ticks, a_ticks, ~is_first),
            ):
                model.add(gap >= before).only_enforce_if(holds)
                model.add(gap <= period - after).only_enforce_if(holds)
    for device in range(pipeline.n_devices):
        spans = []
        for stage in (stage for stage in range(n) if devices[stage] == device):
            stop = time()
            model.add(stop.start == times[WEIGHT * n + stage].start + ticks[WEIGHT * n + stage])
            spans.append((times[stage], stop))
        for moment, _ in spans:  # a device holds most activations when a forward starts
            held = [
                stop.periods - start.periods + is_no_later(start, moment) - is_no_later(stop, moment)
                for start, stop in spans
            ]
            model.add(sum(held) <= pipeline.limit)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = seconds, 2
    status = solver.solve(model)
    return None if status == cp_model.UNKNOWN else status != cp_model.INFEASIBLE


def shortest_period(pipeline: ZeroBubbleProblem, seconds: float) -> int | None:
    """The shortest period in whole ticks; None if CP-SAT cannot tell of a shorter one."""
    for period in count(period_bound(pipeline)):
        answer = repeats(pipeline, period, seconds)
        if answer is not False:
            return period if answer else None
    raise AssertionError


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for every number of stages and links."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="4 stages, links of half a forward")
    parser.add_argument("--stages", default="8,16", help="numbers of stages (default: %(default)s)")
    parser.add_argument("--links", default="0.5,2", help="links, in forwards (default: %(default)s)")
    parser.add_argument("--order", type=Order, default=Order.V_MIN, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=120, help="for every period (default: %(default)s)")
    args = parser.parse_args(argv)
    stages, links = ("4", "0.5") if args.quick else (args.stages, args.links)
    if find_spec("ortools") is None:
        raise SystemExit("the study needs OR-Tools: pip install ortools")
    print("order   stages  link    bound     ours  shortest")
    for n_stages in map(int, stages.split(",")):
        for link in map(float, links.split(",")):
            coarse, fine = (problem(args.order, n_stages, link, ticks) for ticks in (COARSE, FINE))
            ours, shortest = modulo_schedule(fine, Random(0)), shortest_period(coarse, args.seconds)
            cells = period_bound(fine) / FINE, ours.period / FINE if ours else float("nan")
            numbers = "".join(f"{cell:9.2f}" for cell in cells)
            proved = "-" if shortest is None else f"{shortest / COARSE:.2f}"
            print(f"{args.order:7}{n_stages:7}{link:6}{numbers}{proved:>10}", flush=True)


if __name__ == "__main__":
    main()
