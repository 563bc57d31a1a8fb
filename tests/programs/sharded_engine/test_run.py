"""An engine on real processes: outputs, order, failures, and what is left after a run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from fractions import Fraction
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoauto.programs.sharded_engine.peers import SharedEvent
from autoauto.programs.sharded_engine.run import ShardedRun, run_sharded
from autoauto.records.errors import BadInput, WorkerLost
from autoauto.records.target import Origin
from autoauto.records.units import Array
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.times import stage_times
from autoauto.targets.host.processes import WorkerTraceback
from tests.programs.sharded_engine.engines import (
    Collectives,
    EndingEarly,
    Failing,
    Imported,
    Killed,
    Line,
    NotReceiving,
    Overlapping,
)
from tests.running import is_running, n_descriptors, wait_until

LARGE: Array = np.random.default_rng(0).normal(size=(700, 500))
"""2.7 MiB, five times as large as a ring."""


def numbers(n: int) -> list[Array]:
    return [np.array(i) for i in range(n)]


def resources_of_this_process() -> tuple[object, ...]:
    """Descriptors, processes, threads, and shared memory with or without a name."""
    return n_descriptors(), children(), threading.active_count(), named_memory(), n_mappings()


def named_memory() -> list[str]:
    return [name for name in os.listdir("/dev/shm") if "autoauto" in name]


def n_mappings() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:autoauto")


def children() -> set[int]:
    """Processes that this one has started."""
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Check that the test leaves no process, thread, descriptor or shared memory."""
    resource_tracker.ensure_running()  # multiprocessing's own, which stays
    before = resources_of_this_process()
    yield
    assert resources_of_this_process() == before


def check_case(run: ShardedRun, case: dict[str, Any]) -> None:
    """Compare a run with the vectors: its outputs, its messages, and its times if all forwards took one cycle."""
    p, m = case["devices"], case["requests"]
    assert [int(y) for y in run.outputs] == [i + int("1" * p) for i in range(m)]
    assert [list(run.sends), list(run.receives)] == [case["sends_per_device"], case["receives_per_device"]]
    cycles = ([Fraction(c)] * p for c in (1, 0, 0, 0))
    schedule = run.timeline().schedule
    lockstep = simulate(schedule, stage_times(schedule.devices, *cycles, split_backward=False))
    assert lockstep.makespan_cycles == case["cycles_lockstep"]
    assert lockstep.latency_cycles == case["latency_cycles_per_request"]


def check_timeline(run: ShardedRun) -> None:
    """Every device computes the requests in order, each after the previous device has computed it."""
    timeline = run.timeline()
    assert timeline.origin is Origin.MEASURED
    for device, starts in enumerate(timeline.starts):
        assert (starts[1:] >= timeline.stops[device][:-1]).all()
        if device:
            assert (starts >= timeline.stops[device - 1]).all()
    busy = np.add(timeline.busy_cycles, timeline.exchange_cycles)
    assert (busy <= timeline.makespan_cycles).all()
    assert run.seconds * 1e9 >= timeline.busy_cycles[0]


def expected(p: int, m: int) -> dict[str, Any]:
    """The case of p devices and m requests: a request waits for the earlier ones, then passes all devices."""
    return {
        "devices": p,
        "requests": m,
        "cycles_lockstep": p + m - 1,
        "sends_per_device": [m] * (p - 1) + [0],
        "receives_per_device": [0] + [m] * (p - 1),
        "latency_cycles_per_request": p,
    }


def test_the_expected_cases_are_those_of_the_vectors(vectors: Callable[[str], Any]) -> None:
    for case in vectors("fake_api")["vectors_computed"]:
        assert expected(case["devices"], case["requests"]) | {"output_order": "same as input"} == case


@pytest.mark.parametrize(("devices", "requests"), [(1, 3), (2, 16)])
def test_two_devices_return_all_outputs_in_order(nothing_left: None, devices: int, requests: int) -> None:
    run = run_sharded(Line, devices, {}, numbers(requests))
    check_case(run, expected(devices, requests))
    check_timeline(run)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("requests", [1, 4, 16, 32])
def test_up_to_eight_devices_return_all_outputs_in_order(nothing_left: None, devices: int, requests: int) -> None:
    run = run_sharded(Line, devices, {}, numbers(requests))
    check_case(run, expected(devices, requests))
    check_timeline(run)


def test_devices_compute_at_the_same_time() -> None:
    """The second forward of device 0 and the first of device 1 both end after the other has started."""
    with closing(SharedEvent()) as first_started, closing(SharedEvent()) as second_started:
        run = run_sharded(Overlapping, 2, {}, numbers(2), first_started, second_started)
    starts, stops = run.timeline().starts, run.timeline().stops
    assert starts[0][1] < stops[1][0]
    assert starts[1][0] < stops[0][1]
    check_timeline(run)


def test_inputs_and_messages_may_be_larger_than_a_ring(nothing_left: None) -> None:
    inputs: list[Array] = [LARGE, LARGE[::-1, ::-1], np.zeros(())]
    run = run_sharded(Line, 2, {"term": LARGE}, inputs)
    for x, y in zip(inputs, run.outputs, strict=True):
        np.testing.assert_array_equal(y, x + LARGE + 10 * LARGE)


def test_collectives_between_processes_are_not_counted_as_messages(nothing_left: None) -> None:
    inputs = [LARGE[:8], LARGE[:90].astype(np.float32)]
    run = run_sharded(Collectives, 2, {}, inputs)
    assert run.sends == run.receives == (0, 0)
    for written in run.written:
        for x, y in zip(inputs, written, strict=True):
            np.testing.assert_array_equal(y, 2 * x + 1, strict=True)
    assert len(run.outputs) == 2


def test_no_inputs_give_no_outputs_and_no_timeline() -> None:
    run = run_sharded(Line, 1, {}, [])
    assert (run.outputs, run.sends, run.receives) == ((), (0,), (0,))
    with pytest.raises(BadInput, match=r"a timeline needs one forward of every device for each input, got \[0\]"):
        run.timeline()


def test_the_first_failure_is_raised_with_the_traceback_of_its_device(nothing_left: None) -> None:
    with pytest.raises(KeyError, match="deep inside") as failure:
        run_sharded(Failing, 2, {}, numbers(50))
    assert isinstance(failure.value.__cause__, WorkerTraceback)
    assert "in fail\n" in str(failure.value.__cause__)
    assert failure.value.__notes__ == ["on device 1"]


def test_a_killed_device_is_reported_with_its_exit_code(nothing_left: None) -> None:
    with pytest.raises(WorkerLost, match="device 1 ended without a message, exit code -9"):
        run_sharded(Killed, 2, {}, numbers(50))


def test_inputs_that_fail_end_the_run(nothing_left: None) -> None:
    with pytest.raises(ZeroDivisionError):
        run_sharded(Line, 1, {}, (np.array(1 // (3 - i)) for i in range(9)))


def test_a_message_to_a_device_that_has_ended_is_an_error(nothing_left: None) -> None:
    with pytest.raises(BadInput, match="device 1 has ended and device 0 has a message for it"):
        run_sharded(EndingEarly, 2, {}, [LARGE, LARGE])


def test_a_message_that_is_not_received_is_an_error() -> None:
    with pytest.raises(BadInput, match="device 1 ended with 1 of 1 messages of device 0 left"):
        run_sharded(NotReceiving, 2, {}, [])


def test_an_engine_without_devices_is_refused() -> None:
    with pytest.raises(BadInput, match="at least 1 device, got 0"):
        run_sharded(Line, 0, {}, [])


def test_devices_import_nothing_heavy() -> None:
    assert run_sharded(Imported, 1, {}, [0]).outputs[0].tolist() == []


@pytest.mark.slow
def test_many_runs_and_killed_devices_leave_nothing(nothing_left: None) -> None:
    for _ in range(10):
        assert len(run_sharded(Line, 2, {}, numbers(3)).outputs) == 3
    for _ in range(4):
        with pytest.raises(WorkerLost):
            run_sharded(Killed, 2, {}, numbers(9))


PARENT = """
import numpy as np
from autoauto.programs.sharded_engine.run import run_sharded
from tests.programs.sharded_engine.engines import Printing
if __name__ == "__main__":
    run_sharded(Printing, 2, {}, [np.array(1)] * 1000)
"""


def test_devices_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        pids = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        assert str(pid) in pids
        parent.kill()
    wait_until(lambda: not any(is_running(int(pid)) for pid in pids), "all devices have ended")
    assert named_memory() == []
