"""Zero bubble orders: how far above the bound, in how many CPU seconds, and what is possible?

    python studies/zero_bubble_gaps.py [--quick] [--stages 16,64 | --long] [--before CHECKOUT] [--exact SECONDS]

A row is an order with its own limit of activations, 4 micro-batches a device (512 with --long) and links that take so
many times a forward. Stages are unequal (70 to 130 ticks) where a seed is given. `gap` is the makespan over the lower
bound. With --before the same rows are run by the package in another checkout of this repository: `ratio` is our
makespan over its, `CPU` our seconds over its. With --exact OR-Tools CP-SAT (pip install ortools) searches for a shorter
order and a better bound on 4 devices for so many seconds an instance: `optimum` is where it ends, `proved` up to where.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from random import Random
from time import process_time
from typing import Any, NamedTuple

from autoauto.records.schedule import Order
from autoauto.schedule.orders.registry import spec_of, stage_devices_of
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, lower_bound
from autoauto.schedule.zero_bubble.search import search

ORDERS = (Order.ZB1P, Order.ZB2P, Order.ZBV, Order.V_HALF, Order.V_MIN)
LINKS = (0, 0.5, 2)


class Instance(NamedTuple):
    """One row of the table."""

    order: str
    n_stages: int
    n_micro_batches: int
    link: float
    seed: int | None


def instances(stages: Sequence[int], n_micro_batches: int | None, seeds: Sequence[int | None]) -> Iterator[Instance]:
    """All orders, links and seeds; by default 4 micro-batches a device."""
    for n_stages in stages:
        for order in ORDERS:
            n_devices = n_stages if order in (Order.ZB1P, Order.ZB2P) else n_stages // 2
            for link in LINKS:
                for seed in seeds:
                    yield Instance(order, n_stages, n_micro_batches or 4 * n_devices, link, seed)


def problem(row: Instance) -> ZeroBubbleProblem:
    """The problem of a row."""
    spec, n = spec_of(Order(row.order)), row.n_stages
    n_devices = n if row.order in (Order.ZB1P, Order.ZB2P) else n // 2
    devices = stage_devices_of(spec.order, n_devices)
    assert spec.default_max_in_flight is not None
    random = Random(row.seed)

    def ticks(low: int, high: int, scale: float = 1) -> list[int]:
        return [int(scale * (100 if row.seed is None else random.randint(low, high))) for _ in range(n)]

    compute = (*ticks(80, 120), *ticks(90, 130), *ticks(70, 110))
    links = (0, *ticks(80, 120, row.link)), tuple(ticks(80, 120, row.link))
    m = row.n_micro_batches
    limit = min(spec.default_max_in_flight(n_devices), m * n // n_devices)
    return ZeroBubbleProblem(devices, compute, *links, m, limit)


def run(row: Instance) -> tuple[int, float]:
    """The makespan in ticks and the CPU seconds."""
    start_s = process_time()
    makespan = search(problem(row)).makespan
    return makespan, process_time() - start_s


def exact(pipeline: ZeroBubbleProblem, horizon: int, seconds: float) -> tuple[int, int]:
    """The makespan and the bound that CP-SAT ends with."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise SystemExit("--exact needs OR-Tools: pip install ortools, or leave the option out") from None
    n, m, model = pipeline.n_stages, pipeline.n_micro_batches, cp_model.CpModel()
    start = [[model.new_int_var(0, horizon, "") for _ in range(m)] for _ in pipeline.ticks]
    end = model.new_int_var(0, horizon, "")
    busy: dict[int, list[Any]] = defaultdict(list)
    held: dict[int, list[Any]] = defaultdict(list)
    wires: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for job, ticks in enumerate(pipeline.ticks):
        device = pipeline.devices[job % n]
        busy[device] += [model.new_fixed_size_interval_var(time, ticks, "") for time in start[job]]
        for before, after in zip(start[job], start[job][1:], strict=False):
            model.add(before + ticks <= after)
        model.add(start[job][-1] + ticks <= end)
    for job, to, link in pipeline.edges():
        ends = pipeline.devices[job % n], pipeline.devices[to % n]
        for source, target in zip(start[job], start[to], strict=True):
            if link == 0 or ends[0] == ends[1]:
                model.add(source + pipeline.ticks[job] <= target)
                continue
            sent = model.new_int_var(0, horizon, "")
            model.add(source + pipeline.ticks[job] <= sent)
            model.add(sent + link <= target)
            wires[ends].append(model.new_fixed_size_interval_var(sent, link, ""))
    for stage in range(n):
        for first, last in zip(start[stage], start[2 * n + stage], strict=True):
            span, stop = model.new_int_var(0, horizon, ""), last + pipeline.ticks[2 * n + stage]
            held[pipeline.devices[stage]].append(model.new_interval_var(first, span, stop, ""))
    for intervals in (*busy.values(), *wires.values()):
        model.add_no_overlap(intervals)
    for intervals in held.values():
        model.add_cumulative(intervals, [1] * len(intervals), pipeline.limit)
    model.add(end >= lower_bound(pipeline))
    model.minimize(end)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = seconds, 2
    status = solver.solve(model)
    best = int(solver.objective_value) if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else horizon
    return best, int(solver.best_objective_bound)


def run_before(checkout: str, rows: Sequence[Instance]) -> list[tuple[int, float]]:
    """What the package in another checkout gives."""
    command = [sys.executable, __file__, "--json", json.dumps(rows)]
    output = subprocess.run(command, env={**os.environ, "PYTHONPATH": checkout}, check=True, stdout=subprocess.PIPE)
    return [tuple(pair) for pair in json.loads(output.stdout)]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="8 stages, equal")
    parser.add_argument("--stages", default="8,16", help="numbers of stages (default: 8,16)")
    parser.add_argument("--long", action="store_true", help="64 stages x 512 micro-batches, unequal")
    parser.add_argument("--before", metavar="CHECKOUT", help="compare with this checkout's package")
    parser.add_argument("--exact", type=float, metavar="SECONDS", help="CP-SAT on 4 devices, 8 micro-batches")
    parser.add_argument("--json", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.json:
        print(json.dumps([run(Instance(*row)) for row in json.loads(args.json)]))
        return
    if args.exact:
        print_exact(args.exact)
        return
    stages = [8] if args.quick else [int(number) for number in args.stages.split(",")]
    rows = list(
        instances([64], 512, [1]) if args.long else instances(stages, None, [None] if args.quick else [None, 1])
    )
    before = run_before(args.before, rows) if args.before else [(0, 0.0)] * len(rows)
    print("order   stages  batches  link    seed    gap  CPU s   ratio   CPU")
    for row, (old, old_s) in zip(rows, before, strict=True):
        makespan, seconds = run(row)
        compared = f"  {makespan / old:.4f}  {seconds / old_s:4.2f}" if old else ""
        gap = makespan / lower_bound(problem(row))
        name = f"{row.order:7}{row.n_stages:7}{row.n_micro_batches:9}{row.link:6}{row.seed or '-':>8}"
        print(f"{name}  {gap:.3f}{seconds:7.2f}{compared}", flush=True)


def print_exact(seconds: float) -> None:
    """CP-SAT beside the search on 4 devices."""
    print("order   link    search    optimum     proved  our bound")
    for order in ORDERS:
        for link in LINKS:
            row = Instance(order, 4 if order in (Order.ZB1P, Order.ZB2P) else 8, 8, link, None)
            makespan, _ = run(row)
            optimum, proved = exact(problem(row), makespan, seconds)
            print(f"{order:7}{link:5}{makespan:10}{optimum:11}{proved:11}{lower_bound(problem(row)):11}", flush=True)


if __name__ == "__main__":
    main()
