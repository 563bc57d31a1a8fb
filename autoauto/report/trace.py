"""`chrome_trace`: a timeline for Perfetto and chrome://tracing, a track per device, a slice per action.

In the format [trace-events] complete events have `ph` "X", a start `ts` and a length `dur` in microseconds, and belong
to a process `pid` and a thread `tid`; events with `ph` "M" name those. Both numbers count from 1: Perfetto takes 0 for
the kernel's idle process and mixes such a thread with another (google/perfetto issue 394, thoren-d/tracing-chrome
issue 32).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autoauto.records.errors import BadInput
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import KINDS
from autoauto.report.style import ACTIVITIES, spans_besides_actions
from autoauto.report.wording import timeline_title

_PID = 1


def chrome_trace(timeline: Timeline, clock_hz: float | None = None) -> dict[str, Any]:
    """The trace as plain values: the pipeline is a process, device d its thread d + 1.

    Without a clock, a cycle is shown as a microsecond; with it, times are rounded to nanoseconds.
    """
    return _head(timeline, clock_hz) | {"traceEvents": list(_events(timeline, clock_hz))}


def write_chrome_trace(timeline: Timeline, path: Path, clock_hz: float | None = None) -> None:
    """Write what `chrome_trace` returns as JSON, an event per line, without holding all of it in memory.

    Raises BadInput if it cannot.
    """
    encode = json.JSONEncoder(separators=(",", ":")).encode
    head = encode(_head(timeline, clock_hz) | {"traceEvents": []})
    try:
        with path.open("w", encoding="utf-8") as file:
            file.write(head.removesuffix("]}"))
            for index, event in enumerate(_events(timeline, clock_hz)):
                file.write(f"{',' if index else ''}\n{encode(event)}")
            file.write("\n]}\n")
    except OSError as error:
        raise BadInput(f"the trace needs a file that can be written, got {path} ({error.strerror})") from error


def _head(timeline: Timeline, clock_hz: float | None) -> dict[str, Any]:
    other = {
        "source": timeline.origin,
        "microsecond": f"{clock_hz / 1e6:,g} cycles" if clock_hz else "1 cycle",
        "makespan_cycles": timeline.makespan_cycles,
        "bubble_fraction": timeline.bubble_fraction,
    }
    return {"displayTimeUnit": "ns", "otherData": other}


def _events(timeline: Timeline, clock_hz: float | None) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": _PID, "args": {"name": timeline_title(timeline)}}
    for device in range(timeline.schedule.n_devices):
        thread = {"ph": "M", "pid": _PID, "tid": device + 1}
        yield thread | {"name": "thread_name", "args": {"name": f"device {device}"}}
        yield thread | {"name": "thread_sort_index", "args": {"sort_index": device}}
    ticks_per_us = timeline.ticks_per_cycle * (clock_hz / 1e6 if clock_hz else 1)
    for device in range(timeline.schedule.n_devices):
        for start, stop, name, args in _slices(timeline, device):
            # Both ends are rounded, not the length, so that a slice never reaches into the next.
            ts, end = round(start / ticks_per_us, 3), round(stop / ticks_per_us, 3)
            slice_ = {"ph": "X", "name": name, "cat": args["kind"], "pid": _PID, "tid": device + 1}
            cycles = {"cycles": timeline.cycles(stop - start)}
            yield slice_ | {"ts": ts, "dur": round(end - ts, 3), "args": args | cycles}


def _slices(timeline: Timeline, device: int) -> Iterator[tuple[int, int, str, dict[str, Any]]]:
    """Start and stop tick, name and arguments of every action and exchange of a device, and of its end of a step."""
    times = zip(timeline.starts[device].tolist(), timeline.stops[device].tolist(), strict=True)
    for (start, stop), action in zip(times, timeline.schedule.actions(device), strict=True):
        kind = ACTIVITIES[KINDS.index(action.kind)].name
        yield start, stop, str(action), {"kind": kind, "stage": action.stage, "micro_batch": action.micro_batch}
    for activity, start, stop in spans_besides_actions(timeline, device).tolist():
        yield start, stop, ACTIVITIES[activity].name, {"kind": ACTIVITIES[activity].name}
