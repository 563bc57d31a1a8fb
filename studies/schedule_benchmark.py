"""The simulator of schedules: does its time grow with the number of actions and with nothing else?

    python studies/schedule_benchmark.py [--quick]

CPU seconds of every order and size, the minimum of three runs, and seconds per million actions; growth relates these to
the smallest size and is 1 where time is linear. Stages and links are unequal. The baseline, in seconds per million
actions, is a textbook event-driven simulator with a heap of events; it runs the smallest size and must return the same
makespan.
"""

from __future__ import annotations

import argparse
import resource
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from platform import python_version
from random import Random
from time import process_time
from typing import NamedTuple

import numpy as np

from autoauto.records.schedule import Action, ActionKind, Order, Schedule, StageTimes, Transfers
from autoauto.records.units import IntArray
from autoauto.schedule.orders.gpipe import gpipe
from autoauto.schedule.orders.inference import inference
from autoauto.schedule.orders.interleaved import interleaved
from autoauto.schedule.orders.one_f_one_b import one_f_one_b
from autoauto.schedule.simulate.simulate import simulate

SIZES = ((64, 1024), (128, 2048), (256, 4096), (4, 262_144))  # stages, micro-batches
QUICK_SIZES = ((8, 64), (16, 128), (32, 256), (4, 2048))
ORDERS: dict[Order, Callable[[int, int], Schedule]] = {
    Order.ONE_F_ONE_B: one_f_one_b,
    Order.GPIPE: gpipe,
    Order.INTERLEAVED: lambda n_stages, m: interleaved(n_stages // 2, m, n_chunks=2),
    Order.INFERENCE: inference,
}
RUNS = 3
HOST = -1
COLUMNS = (
    "order", "transfers", "stages", "micro-batches", "actions", "seconds", "s/million", "growth",
    "baseline", "speed-up",
)  # fmt: skip


class Run(NamedTuple):
    """The time of a simulator."""

    n_actions: int
    seconds: float

    @property
    def per_million(self) -> float:
        """Seconds per million actions."""
        return 1e6 * self.seconds / self.n_actions


def unequal_times(n_stages: int) -> StageTimes:
    """Forwards of 80 to 120 ticks, backwards twice as long, messages and exchanges of 1 to 20."""
    random = Random(0)

    def row(low: int, high: int, length: int = n_stages) -> IntArray:
        return np.array([random.randint(low, high) for _ in range(length)])

    forward, exchange = row(80, 120), row(1, 20)
    return StageTimes(forward, 2 * forward, 0 * forward, row(1, 20, n_stages + 1), row(1, 20), exchange, exchange)


def event_driven(schedule: Schedule, times: StageTimes) -> int:
    """The makespan in ticks when transfers overlap, for programs of forwards and backwards: one event at a time."""
    programs = [list(schedule.actions(device)) for device in range(schedule.n_devices)]
    done, busy_until = [0] * len(programs), [0] * len(programs)
    link_free: dict[tuple[int, int], int] = defaultdict(int)
    arrived: set[Action] = set()
    events: list[tuple[int, int, int, Action | None]] = []  # tick, number, device, message that arrives
    number = count()
    now = 0
    for turn, action in enumerate(a for a in programs[0] if (a.stage, a.kind) == (0, ActionKind.FORWARD)):
        heappush(events, ((turn + 1) * int(times.forward_links[0]), next(number), 0, action))
    while events:
        now, _, device, message = heappop(events)
        if device == HOST:
            continue
        if message:
            arrived.add(message)
        if busy_until[device] > now or done[device] == len(programs[device]):
            continue
        action = programs[device][done[device]]
        if action not in arrived:
            continue
        done[device] += 1
        busy_until[device] = stop = now + ticks(times, action)
        heappush(events, (stop, next(number), device, None))
        for receiver, user, link_ticks in messages(schedule, times, action):
            link = device, receiver
            link_free[link] = max(link_free[link], stop) + link_ticks
            heappush(events, (link_free[link], next(number), receiver, user))
    assert sum(done) == schedule.n_actions
    return now


def ticks(times: StageTimes, action: Action) -> int:
    """The duration of an action."""
    column = times.forward if action.kind is ActionKind.FORWARD else times.backward
    return int(column[action.stage])


def messages(schedule: Schedule, times: StageTimes, action: Action) -> Iterator[tuple[int, Action | None, int]]:
    """(receiving device, action that needs the result, ticks on the link) of every result of an action."""
    stage, kind, m = action
    last = schedule.n_stages - 1
    if kind is ActionKind.FORWARD and stage < last:
        yield schedule.devices[stage + 1], Action(stage + 1, kind, m), int(times.forward_links[stage + 1])
    if kind is ActionKind.FORWARD and stage == last:
        yield schedule.devices[last], Action(last, ActionKind.BACKWARD, m), 0
        yield HOST, None, int(times.forward_links[-1])
    if kind is ActionKind.BACKWARD and stage > 0:
        yield schedule.devices[stage - 1], Action(stage - 1, kind, m), int(times.backward_links[stage])


def measure(schedule: Schedule, times: StageTimes, transfers: Transfers) -> Run:
    """The minimum time of a few runs, because disturbances only add to it."""
    seconds = []
    for _ in range(RUNS):
        start_s = process_time()
        simulate(schedule, times, transfers)
        seconds.append(process_time() - start_s)
    return Run(schedule.n_actions, min(seconds))


def measure_baseline(schedule: Schedule, times: StageTimes) -> Run:
    """One run of the event-driven simulator, which must agree."""
    start_s = process_time()
    stop_tick = event_driven(schedule, times)
    seconds = process_time() - start_s
    assert stop_tick == simulate(schedule, times).stop_tick
    return Run(schedule.n_actions, seconds)


def print_row(cells: Iterable[object]) -> None:
    """One line of the table."""
    widths = (13, 10, 7, 14, 10, 9, 10, 8, 12, 9)
    print("".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip(), flush=True)


def print_rows(order: Order, transfers: Transfers, sizes: Sequence[tuple[int, int]]) -> None:
    """One order at all sizes."""
    smallest: Run | None = None
    for n_stages, m in sizes:
        schedule, times = ORDERS[order](n_stages, m), unequal_times(n_stages)
        run = measure(schedule, times, transfers)
        baseline = None
        if smallest is None and transfers is Transfers.OVERLAP:
            baseline = measure_baseline(schedule, times)
        smallest = smallest or run
        compared = (
            (f"{baseline.per_million:.2f}", f"{baseline.per_million / run.per_million:.1f}x") if baseline else ("", "")
        )
        numbers = (f"{run.n_actions:,}", f"{run.seconds:.4f}", f"{run.per_million:.3f}")
        print_row(
            (order, transfers, n_stages, f"{m:,}", *numbers, f"{run.per_million / smallest.per_million:.2f}", *compared)
        )


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes: a few seconds")
    args = parser.parse_args(argv)
    print_row(COLUMNS)
    for order in ORDERS:
        for transfers in Transfers:
            print_rows(order, transfers, QUICK_SIZES if args.quick else SIZES)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"At most {peak_mib:,.0f} MiB of memory. Python {python_version()}, NumPy {np.__version__}.")


if __name__ == "__main__":
    main()
