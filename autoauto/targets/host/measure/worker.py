"""What a sub-model takes and holds, measured in a worker that serves one request after another: `serve`.

A layer alone differs from the same layer in its model: memory that the runtime takes for one run comes as fresh pages,
whose first touch costs more than many a layer. In a whole model most of it is used again by the next layer. So all is
measured with the runtime's arena, which keeps pages, as a stage has it; what one sub-model has left is given back
before the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from statistics import fmean, median
from time import perf_counter_ns, sleep, thread_time_ns
from typing import NamedTuple

from autoauto.records.layers import Port, SubModel
from autoauto.targets.host.machine.speed_probe import Yardstick
from autoauto.targets.host.measure.session import Content, Session, onnxruntime

N_LEAST, N_FEWEST = 5, 3
"""Runs, and runs of a sub-model that alone takes longer than `MOST_NS`."""

LEAST_NS, MOST_NS = 20_000_000, 1_000_000_000
KNOWN = 0.01
"""A median is known when the spread divided by the root of the number of runs is at most this part of it."""

BUSY = 1.2
"""Another process had the cores when a run took so many times longer on the clock than on its core."""

N_EMPTY = 8
"""Empty sessions: the heap grows by 132 KiB at a time, so every other one takes nothing, and the next all of it."""

N_ATTEMPTS, MOST_SLOW = 3, 3
PAUSE_S = 0.2


class Times(NamedTuple):
    """Runs of one session.

    Attributes:
        core_ns: the median time of the calling thread on its core; the runtime's other threads work meanwhile.
        wall_ns: the median on the clock.
        spread: the median deviation from the median, a part of it.
        n_runs: how many.
    """

    core_ns: float
    wall_ns: float
    spread: float
    n_runs: int

    @property
    def total_ns(self) -> float:
        """What all runs took on the clock, about."""
        return self.wall_ns * self.n_runs

    @property
    def busy(self) -> bool:
        """Whether other processes had the cores meanwhile."""
        return self.wall_ns > BUSY * self.core_ns


class Part(NamedTuple):
    """What there is to measure; the content lies in memory that both processes have."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


class Reading(NamedTuple):
    """What a sub-model takes and holds.

    Attributes:
        times: of its runs, without what a run of an empty session takes.
        session_bytes: what the first session of a process holds whatever it computes.
        parameter_bytes: what its own session holds besides.
        peak_bytes: the most that a run holds besides, inputs and outputs not counted.
    """

    times: Times
    session_bytes: int
    parameter_bytes: int
    peak_bytes: int


class Refused(NamedTuple):
    """Why the runtime does not run a sub-model, in its own words."""

    reason: str


class Empty(NamedTuple):
    """An empty session: what the first one of the process holds, what another holds on average, and what a run takes.

    Attributes:
        tidy: gives back what other sessions have left.
    """

    first_bytes: int
    bytes: int
    core_ns: float
    tidy: Callable[[], None]


def serve(connection: Connection, content: Content, cores: tuple[int, ...], n_threads: int, idle: SubModel) -> None:
    """In a worker: measure an empty session, then whatever the parent asks for, until it is gone."""
    os.sched_setaffinity(0, cores)
    onnxruntime()
    nothing = Part(idle.inputs, idle.outputs)
    content.write(idle.content)
    first, *others = (Session(content, *nothing, n_threads, arena=True) for _ in range(1 + N_EMPTY))
    yardstick = Yardstick()
    core_ns = _time(content, nothing, n_threads, yardstick).core_ns
    other_bytes = round(fmean(other.parameter_bytes for other in others))
    empty = Empty(first.parameter_bytes, other_bytes, core_ns, partial(first.run, *first.made_up(), tidy=True))
    connection.send(None)
    while True:
        try:
            part = connection.recv()
        except EOFError:  # the parent has ended
            return
        try:
            connection.send(_reading(content, part, n_threads, empty, yardstick))
        except Exception as error:  # noqa: BLE001 (ONNX Runtime has no class of its own; the next request may work)
            connection.send(Refused(f"{type(error).__name__}: {error}"))


def _reading(content: Content, part: Part, n_threads: int, empty: Empty, yardstick: Yardstick) -> Reading:
    empty.tidy()
    session = Session(content, *part, n_threads, arena=True)
    parameter_bytes, peak_bytes = session.parameter_bytes, session.peak_bytes()
    del session
    times = _time(content, part, n_threads, yardstick)
    return Reading(
        times=times._replace(core_ns=max(times.core_ns - empty.core_ns, 0.0)),
        session_bytes=empty.first_bytes,
        parameter_bytes=max(parameter_bytes - empty.bytes, 0),
        peak_bytes=peak_bytes,
    )


def _time(content: Content, part: Part, n_threads: int, yardstick: Yardstick) -> Times:
    return quietest(lambda: _time_session(content, part, n_threads, yardstick))


def _time_session(content: Content, part: Part, n_threads: int, yardstick: Yardstick) -> Times:
    session = Session(content, *part, n_threads, arena=True)
    return time_runs(partial(session.run, *session.made_up()), yardstick)


def quietest(attempt: Callable[[], Times]) -> Times:
    """The shortest of a few attempts, each with a session and arrays of its own.

    What disturbs a core, and where in memory the arrays come to lie, only adds to what a run takes, sometimes for all
    runs of a session. Long runs have one attempt, unless other processes had the cores.
    """
    attempts = [attempt()]
    while len(attempts) < N_ATTEMPTS and (attempts[-1].busy or sum(times.total_ns for times in attempts) < MOST_NS):
        if attempts[-1].busy:
            sleep(PAUSE_S)
        attempts.append(attempt())
    return min(attempts, key=lambda times: times.core_ns)


def time_runs(run: Callable[[], None], yardstick: Yardstick) -> Times:
    """Run until the median is known, after two runs in which memory is laid out.

    Runs between which the core has become slow count only when that has happened `MOST_SLOW` times.
    """
    run()
    run()
    core: list[int] = []
    wall: list[int] = []
    n_slow = 0
    while not _known(core, sum(wall)):
        if yardstick.wait():
            run()
        some_core, some_wall = _some_runs(run)
        if yardstick.factor() > 1.0 and n_slow < MOST_SLOW:
            n_slow += 1
            continue
        core += some_core
        wall += some_wall
    return Times(median(core), median(wall), spread(core), len(core))


def _some_runs(run: Callable[[], None]) -> tuple[list[int], list[int]]:
    """Nanoseconds on the core and on the clock of runs that together take `LEAST_NS`, or of one."""
    core: list[int] = []
    wall: list[int] = []
    while sum(wall) < LEAST_NS:
        begin, begin_core = perf_counter_ns(), thread_time_ns()
        run()
        core.append(thread_time_ns() - begin_core)
        wall.append(perf_counter_ns() - begin)
    return core, wall


def spread(values: list[int]) -> float:
    """The median deviation from the median, a part of it.

    >>> spread([10, 11, 10, 9, 50])
    0.1
    """
    middle = median(values)
    return median(abs(value - middle) for value in values) / max(middle, 1)


def spread_line(readings: Sequence[Reading]) -> str:
    """How far apart the repeats of some measurements lie, on one line."""
    spreads = sorted(reading.times.spread for reading in readings)
    n_busy = sum(reading.times.busy for reading in readings)
    line = (
        f"{len(readings)} measurements; half of their repeats lie within {100 * median(spreads):.1f} % of the median, "
        f"{100 * spreads[-1]:.1f} % in the worst"
    )
    return f"{line}; other processes had the core during {n_busy}, try again on a quiet machine" if n_busy else line


def _known(core: list[int], total_ns: int) -> bool:
    n_runs = len(core)
    if n_runs < N_FEWEST or total_ns >= MOST_NS:
        return n_runs >= N_FEWEST
    return n_runs >= N_LEAST and total_ns >= LEAST_NS and spread(core) <= KNOWN * n_runs**0.5
