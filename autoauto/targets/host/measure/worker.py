"""Time and memory of sub-models, measured in a worker that serves one request after another: `serve`.

A single layer behaves differently from the same layer in its model: without an arena every run gets fresh pages, and
their first touch costs more than many a layer. In a whole model the next layer uses most of those pages again. So the
worker measures with the runtime's arena, which keeps pages, as stages do. Before the next sub-model is measured, the
arena returns the memory of the previous one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import fmean, median
from time import perf_counter_ns, sleep
from typing import NamedTuple

from autoauto.processes.channel import Channel
from autoauto.records.costs.options import SessionOptions
from autoauto.records.costs.profile import NodeTime
from autoauto.records.layers import Port, SubModel
from autoauto.targets.host.machine import SpeedProbe
from autoauto.targets.host.measure.session import (
    BOOKKEEPING_BYTES,
    NONE_GIVEN,
    OpenModel,
    Refusal,
    set_limit,
)
from autoauto.targets.host.memory_budget import data_bytes
from autoauto.targets.host.runtimes.registry import runtime_named
from autoauto.targets.host.transport.shared_memory import SubModelFile, arrays_in

MIN_RUNS, MIN_LONG_RUNS = 5, 3
"""Minimum number of runs, and that of runs which together take `MAX_NS` or longer."""

MIN_NS, MAX_NS = 20_000_000, 1_000_000_000
"""Runs are repeated for at least the first time, and not beyond the second."""

PRECISION = 0.01
"""A median is precise when the spread divided by the root of the number of runs is at most this part of it."""

BUSY_RATIO = 1.2
"""Other processes had the cores when a run took more than so many times its CPU time on the clock."""

N_EMPTY = 8
"""Empty sessions whose memory is averaged: the heap grows in steps of 132 KiB, so some add nothing, others a step."""

N_ATTEMPTS, MAX_SLOW_BLOCKS = 3, 3
PAUSE_S = 0.2
_STACK_BYTES = 8 << 20


class RunTimes(NamedTuple):
    """Times of the runs of one session.

    Attributes:
        core_ns: median CPU time of the thread that computes most; the runtime's other threads compute at the same time.
        spread: median absolute deviation of the CPU time, relative to its median.
    """

    core_ns: float
    wall_ns: float
    spread: float
    n_runs: int

    @property
    def busy(self) -> bool:
        """True if other processes had the cores during the runs."""
        return self.wall_ns > BUSY_RATIO * self.core_ns


class SubModelPorts(NamedTuple):
    """A request to measure the sub-model that lies in the shared file.

    Attributes:
        one_session: whether one session is enough, as for many layers, among which chance evens out.
        given: the inputs that are not made up but lie in another shared file.
        times_nodes: whether the answer is only the times of its nodes by the runtime itself.
        limit_bytes: limit of the memory of the measurement with inputs and outputs; None without a limit.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    one_session: bool = False
    given: tuple[Port, ...] = ()
    times_nodes: bool = False
    limit_bytes: int | None = None


class Measurement(NamedTuple):
    """Time and memory of a sub-model.

    Attributes:
        times: times of its runs, less the time of a run of an empty session.
        session_bytes: memory of the first session of a process, for any model.
        parameter_bytes: memory of the sub-model's session beyond that of an empty one.
        peak_bytes: peak memory of a run beyond parameters, inputs and outputs.
    """

    times: RunTimes
    session_bytes: int
    parameter_bytes: int
    peak_bytes: int


class EmptySession(NamedTuple):
    """Costs of a session that computes nothing, which are subtracted from those of a sub-model.

    Attributes:
        first_bytes: memory of the first session of the process.
        other_bytes: mean memory of the sessions after it.
        tidy: returns the arena's free memory to the system.
    """

    first_bytes: int
    other_bytes: int
    core_ns: float
    tidy: Callable[[], None]


def serve(
    connection: Channel,
    file: SubModelFile,
    given: SubModelFile,
    cores: tuple[int, ...],
    options: SessionOptions,
    idle: SubModel,
) -> None:
    """In a worker: measure an empty session, then serve the requests of the parent until it closes the connection."""
    os.sched_setaffinity(0, cores)
    runtime = runtime_named(options.runtime)
    load = partial(OpenModel, file, idle.inputs, idle.outputs, options, arena=True)
    file.write(idle.content)
    with runtime.exclusively(options):
        first = load()
        others = [load() for _ in range(N_EMPTY)]
    probe = SpeedProbe()
    core_ns = _time(load, probe).core_ns
    other_bytes = round(fmean(other.parameter_bytes for other in others))
    tidy = partial(first.model.run, *first.example_arrays(), tidy=True)
    empty = EmptySession(first.parameter_bytes, other_bytes, core_ns, tidy)
    connection.send(None)
    while True:
        try:
            ports: SubModelPorts = connection.recv()
        except EOFError:  # the parent has ended
            return
        try:
            with runtime.exclusively(options):
                open_session = partial(
                    OpenModel,
                    file,
                    ports.inputs,
                    ports.outputs,
                    options,
                    arena=True,
                    limit_bytes=ports.limit_bytes,
                    given=arrays_in(given, ports.given) if ports.given else NONE_GIVEN,
                )
                empty.tidy()
                with _limited(ports, file, options):
                    if ports.times_nodes:
                        answer: object = _node_times(open_session(times_nodes=True), probe)
                    else:
                        answer = _measurement(open_session, empty, probe, one_session=ports.one_session)
        except Exception as error:  # noqa: BLE001 (runtimes have no common base class; the next request may succeed)
            connection.send(Refusal.of(error, runtime))
        else:
            connection.send(answer)


@contextmanager
def _limited(ports: SubModelPorts, file: SubModelFile, options: SessionOptions) -> Iterator[None]:
    """Limit the memory of this process inside the `with` block; does nothing without a limit.

    While a model is loaded its weights are in memory three times, so the limit is raised by twice the file.
    """
    if ports.limit_bytes is None or not runtime_named(options.runtime).limits_process:
        yield
        return
    left_bytes = ports.limit_bytes - sum(port.n_bytes for port in (*ports.inputs, *ports.outputs))
    if left_bytes < 0:
        raise MemoryError("the inputs and outputs exceed the limit")
    loading_bytes = 2 * os.stat(file.path).st_size + options.n_threads * _STACK_BYTES + BOOKKEEPING_BYTES
    set_limit(data_bytes() + left_bytes + loading_bytes)
    try:
        yield
    finally:
        set_limit(None)


def _node_times(session: OpenModel, probe: SpeedProbe) -> tuple[NodeTime, ...]:
    """The times of nodes in runs like those of a stage: inputs are in the caches, and weights as far as all fit."""
    time_runs(session.example_run(), probe, session.model.cpu_time_ns)
    return session.model.node_times()


def _measurement(
    load: Callable[[], OpenModel], empty: EmptySession, probe: SpeedProbe, *, one_session: bool
) -> Measurement:
    session = load()
    parameter_bytes, peak_bytes = session.parameter_bytes, session.peak_bytes()
    if one_session:
        times = time_runs(session.example_run(), probe, session.model.cpu_time_ns, is_warm=True)
    else:
        del session  # its memory would be in the way of the sessions that are timed
        times = _time(load, probe)
    return Measurement(
        times=times._replace(core_ns=max(times.core_ns - empty.core_ns, 0.0)),
        session_bytes=empty.first_bytes,
        parameter_bytes=max(parameter_bytes - empty.other_bytes, 0),
        peak_bytes=peak_bytes,
    )


def _time(load: Callable[[], OpenModel], probe: SpeedProbe) -> RunTimes:
    def attempt() -> RunTimes:
        session = load()
        return time_runs(session.example_run(), probe, session.model.cpu_time_ns)

    return shortest_attempt(attempt)


def shortest_attempt(attempt: Callable[[], RunTimes]) -> RunTimes:
    """The shortest of a few attempts, each with a new session and new arrays.

    Disturbances of a core, and an unlucky position of the arrays in memory, only make runs longer, sometimes all runs
    of a session. Long runs have one attempt, unless other processes had the cores.
    """
    attempts = [attempt()]
    total_ns = attempts[0].wall_ns * attempts[0].n_runs
    while len(attempts) < N_ATTEMPTS and (attempts[-1].busy or total_ns < MAX_NS):
        if attempts[-1].busy:
            sleep(PAUSE_S)
        attempts.append(attempt())
        total_ns += attempts[-1].wall_ns * attempts[-1].n_runs
    return min(attempts, key=lambda times: times.core_ns)


def time_runs(
    run: Callable[[], None], probe: SpeedProbe, cpu_time_ns: Callable[[], int], *, is_warm: bool = False
) -> RunTimes:
    """Run until the median is precise, after two runs in which the runtime lays out its memory, unless it `is_warm`.

    A block of runs after which the core is slow is discarded, `MAX_SLOW_BLOCKS` times at most.
    """
    for _ in range(0 if is_warm else 2):
        run()
    core: list[int] = []
    wall: list[int] = []
    n_slow = 0
    while not _is_precise(core, sum(wall)):
        if probe.wait():
            run()
        block_core, block_wall = _block_of_runs(run, cpu_time_ns)
        if probe.factor() > 1.0 and n_slow < MAX_SLOW_BLOCKS:
            n_slow += 1
            continue
        core += block_core
        wall += block_wall
    return RunTimes(median(core), median(wall), spread(core), len(core))


def _is_precise(core: list[int], total_ns: int) -> bool:
    n_runs = len(core)
    if n_runs < MIN_LONG_RUNS or total_ns >= MAX_NS:
        return n_runs >= MIN_LONG_RUNS
    return n_runs >= MIN_RUNS and total_ns >= MIN_NS and spread(core) <= PRECISION * n_runs**0.5


def _block_of_runs(run: Callable[[], None], cpu_time_ns: Callable[[], int]) -> tuple[list[int], list[int]]:
    """CPU time and time on the clock, in ns, of as many runs as take `MIN_NS` together."""
    core: list[int] = []
    wall: list[int] = []
    while sum(wall) < MIN_NS:
        start, start_core = perf_counter_ns(), cpu_time_ns()
        run()
        core.append(cpu_time_ns() - start_core)
        wall.append(perf_counter_ns() - start)
    return core, wall


def spread(values: list[int]) -> float:
    """The median absolute deviation, relative to the median.

    >>> spread([10, 11, 10, 9, 50])
    0.1
    """
    middle = median(values)
    return median(abs(value - middle) for value in values) / max(middle, 1)


def spread_line(measurements: Sequence[Measurement]) -> str:
    """A line about the spread of the repeats of some measurements."""
    spreads = sorted(measurement.times.spread for measurement in measurements)
    n_busy = sum(measurement.times.busy for measurement in measurements)
    line = (
        f"{len(measurements)} measurements; half of their repeats lie within {100 * median(spreads):.1f} % of the "
        f"median, {100 * spreads[-1]:.1f} % in the worst"
    )
    if n_busy:
        line += f"; other processes had the core during {n_busy}, try again on an idle machine"
    return line
