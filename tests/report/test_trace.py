"""Timelines in the Trace Event Format."""

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.records.errors import BadInput
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Order
from autoauto.records.target import Origin
from autoauto.report.trace import chrome_trace, write_chrome_trace
from autoauto.schedule.times import with_step_end

Simulated = Callable[..., Timeline]

GPIPE = """\
1: forward 0F0 0.0 + 1.0
1: backward 0B0 7.0 + 2.0
1: exchange exchange 1.0 + 1.0
1: exchange exchange 9.0 + 1.0
2: forward 1F0 2.0 + 1.0
2: backward 1B0 4.0 + 2.0
2: exchange exchange 3.0 + 1.0
2: exchange exchange 6.0 + 1.0
"""

CASES = st.tuples(
    st.sampled_from([Order.INFERENCE, Order.GPIPE, Order.ONE_F_ONE_B, Order.INTERLEAVED]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([4, 8]),
    *[st.sampled_from(["0", "1", "2/7", "1003", "123456789"])] * 3,
    st.booleans(),
)


def slices(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_every_action_and_exchange_is_a_slice(simulated: Simulated) -> None:
    trace = chrome_trace(simulated(Order.GPIPE, 2, 1, comm="1", barrier=True))
    lines = (f"{s['tid']}: {s['cat']} {s['name']} {s['ts']} + {s['dur']}\n" for s in slices(trace))
    assert "".join(lines) == GPIPE


def test_the_end_of_a_step_is_a_slice_of_every_device(simulated: Simulated) -> None:
    ended = with_step_end(simulated(Order.GPIPE, 2, 2), (2, 3), (1, 1), barrier=False)
    ends = [
        (s["tid"], s["cat"], s["ts"], s["dur"])
        for s in slices(chrome_trace(ended))
        if s["cat"] in ("all-reduce", "update")
    ]
    assert ends == [(1, "all-reduce", 9, 2), (1, "update", 11, 1), (2, "all-reduce", 7, 3), (2, "update", 10, 1)]


def test_process_and_devices_have_names_and_slices_have_arguments(simulated: Simulated) -> None:
    trace = chrome_trace(replace(simulated(Order.GPIPE, 2, 2), origin=Origin.MEASURED))
    names = [(event.get("tid"), event["args"]) for event in trace["traceEvents"] if event["ph"] == "M"]
    assert names[0] == (None, {"name": "gpipe, 2 micro-batches, measured"})
    assert names[1::2] == [(1, {"name": "device 0"}), (2, {"name": "device 1"})]
    assert names[2::2] == [(1, {"sort_index": 0}), (2, {"sort_index": 1})]
    assert {event["pid"] for event in trace["traceEvents"]} == {1}
    assert slices(trace)[3]["args"] == {"kind": "backward", "stage": 0, "micro_batch": 0, "cycles": 2}
    assert trace["otherData"] == {
        "source": "measured",
        "microsecond": "1 cycle",
        "makespan_cycles": 9,
        "bubble_fraction": pytest.approx(1 / 3),
    }


def test_a_clock_turns_cycles_into_time(simulated: Simulated) -> None:
    """At 1.85 GHz 3,700 cycles are two microseconds."""
    trace = chrome_trace(simulated(Order.GPIPE, 1, 1, "3700", "1850"), clock_hz=1.85e9)
    assert [(event["ts"], event["dur"]) for event in slices(trace)] == [(0, 2), (2, 1)]
    assert [event["args"]["cycles"] for event in slices(trace)] == [3700, 1850]
    assert trace["otherData"]["microsecond"] == "1,850 cycles"


@settings(deadline=None)
@given(CASES, st.sampled_from([None, 1e6, 1.85e9]))
def test_slices_of_a_device_follow_each_other(simulated: Simulated, case: tuple[Any, ...], clock_hz: float) -> None:
    for events in by_device(chrome_trace(simulated(*case), clock_hz)).values():
        times = [(Fraction(str(event["ts"])), Fraction(str(event["dur"]))) for event in events]
        assert all(dur >= 0 for _, dur in times)
        assert all(ts + dur <= after for (ts, dur), (after, _) in pairwise(sorted(times)))


@settings(deadline=None)
@given(CASES)
def test_slices_add_up_to_the_cycles_of_every_device(simulated: Simulated, case: tuple[Any, ...]) -> None:
    timeline = simulated(*case)
    for tid, events in by_device(chrome_trace(timeline)).items():
        exchanges = [event["args"]["cycles"] for event in events if event["cat"] == "exchange"]
        actions = [event["args"]["cycles"] for event in events if event["cat"] != "exchange"]
        assert len(actions) == len(timeline.schedule.programs[tid - 1])
        assert sum(actions) == pytest.approx(timeline.busy_cycles[tid - 1])
        assert sum(exchanges) == pytest.approx(timeline.exchange_cycles[tid - 1])


def by_device(trace: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    devices: dict[int, list[dict[str, Any]]] = {}
    for event in slices(trace):
        devices.setdefault(event["tid"], []).append(event)
    return devices


def test_the_file_equals_the_trace_with_an_event_per_line(simulated: Simulated, tmp_path: Path) -> None:
    timeline = simulated(Order.POPART, 2, 5, "1/3", comm="1/7", barrier=True)
    write_chrome_trace(timeline, tmp_path / "trace.json", clock_hz=1.85e9)
    text = (tmp_path / "trace.json").read_text(encoding="utf-8")
    assert json.loads(text) == chrome_trace(timeline, clock_hz=1.85e9)
    assert text.count("\n") == 2 + len(chrome_trace(timeline)["traceEvents"])


def test_writing_a_file_needs_a_tenth_of_the_memory_of_the_whole_trace(simulated: Simulated, tmp_path: Path) -> None:
    timeline = simulated(Order.ONE_F_ONE_B, 16, 256)
    written = peak_bytes(lambda: write_chrome_trace(timeline, tmp_path / "trace.json"))
    assert written < peak_bytes(lambda: chrome_trace(timeline)) / 10


def peak_bytes(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_file_that_cannot_be_written_is_bad_input(simulated: Simulated, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a file that can be written"):
        write_chrome_trace(simulated(Order.GPIPE, 1, 1), tmp_path / "missing" / "trace.json")
