from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoauto.records.errors import BadInput, WorkerLost
from autoauto.runtimes.sharded_engine.run import Sharded, run_sharded
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.times import stage_times
from autoauto.targets.host.processes import WorkerTraceback
from autoauto.targets.host.transport.array_file import Array
from tests.running import is_running, n_descriptors, wait_until
from tests.targets.host.engines import Collectives, Deaf, Failing, Impatient, Imported, Killed, Line

LARGE: Array = np.random.default_rng(0).normal(size=(700, 500))
"""2.7 MiB: five times a ring."""


def numbers(n: int) -> list[Array]:
    return [np.array(i) for i in range(n)]


def held() -> tuple[object, ...]:
    """Descriptors, processes, threads, and shared memory with a name or without."""
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
    """Whatever a test does, no process, thread, descriptor or shared memory is left."""
    resource_tracker.ensure_running()  # multiprocessing's; it stays, once started
    before = held()
    yield
    assert held() == before


def check_case(ran: Sharded, case: dict[str, Any]) -> None:
    """What the vectors say of a run, and of its order if all forwards took one cycle."""
    p, m = case["devices"], case["requests"]
    assert [int(y) for y in ran.outputs] == [i + int("1" * p) for i in range(m)]
    assert [list(ran.sends), list(ran.receives)] == [case["sends_per_device"], case["receives_per_device"]]
    cycles = ([Fraction(c)] * p for c in (1, 0, 0, 0))
    schedule = ran.timeline().schedule
    lockstep = simulate(schedule, stage_times(schedule.devices, *cycles, split_backward=False))
    assert lockstep.makespan_cycles == case["cycles_lockstep"]
    assert lockstep.latency_cycles == case["latency_cycles_per_request"]


def check_timeline(ran: Sharded) -> None:
    """Devices take requests in order, each after the device before has made it."""
    timeline = ran.timeline()
    assert timeline.source == "measured"
    for device, starts in enumerate(timeline.starts):
        assert (starts[1:] >= timeline.stops[device][:-1]).all()
        if device:
            assert (starts >= timeline.stops[device - 1]).all()
    busy = np.add(timeline.busy_cycles, timeline.exchange_cycles)
    assert (busy <= timeline.makespan_cycles).all()
    assert ran.seconds * 1e9 >= timeline.busy_cycles[0]


def expected(p: int, m: int) -> dict[str, Any]:
    """The vectors' rule: a request waits for those before it, then passes all devices."""
    return {
        "devices": p,
        "requests": m,
        "cycles_lockstep": p + m - 1,
        "sends_per_device": [m] * (p - 1) + [0],
        "receives_per_device": [0] + [m] * (p - 1),
        "latency_cycles_per_request": p,
    }


def test_the_rule_of_the_vectors(vectors: Callable[[str], Any]) -> None:
    for case in vectors("fake_api")["vectors_computed"]:
        assert expected(case["devices"], case["requests"]) | {"output_order": "same as input"} == case


@pytest.mark.parametrize(("devices", "requests"), [(1, 3), (2, 16)])
def test_a_line_of_devices_ends_in_order(nothing_left: None, devices: int, requests: int) -> None:
    ran = run_sharded(Line, devices, {}, numbers(requests))
    check_case(ran, expected(devices, requests))
    check_timeline(ran)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("requests", [1, 4, 16, 32])
def test_a_long_line_of_devices_ends_in_order(nothing_left: None, devices: int, requests: int) -> None:
    ran = run_sharded(Line, devices, {}, numbers(requests))
    check_case(ran, expected(devices, requests))
    check_timeline(ran)


def test_devices_work_at_the_same_time() -> None:
    ran = run_sharded(Line, 2, {}, numbers(6), 0.05)
    timeline = ran.timeline()
    assert timeline.makespan_cycles < 0.8 * sum(timeline.busy_cycles)  # 7 of 12 sleeps one after the other
    check_timeline(ran)


def test_inputs_and_messages_larger_than_a_ring(nothing_left: None) -> None:
    inputs: list[Array] = [LARGE, LARGE[::-1, ::-1], np.zeros(())]
    ran = run_sharded(Line, 2, {"term": LARGE}, inputs)
    for x, y in zip(inputs, ran.outputs, strict=True):
        np.testing.assert_array_equal(y, x + LARGE + 10 * LARGE)


def test_collectives_between_processes(nothing_left: None) -> None:
    inputs = [LARGE[:8], LARGE[:90].astype(np.float32)]
    ran = run_sharded(Collectives, 2, {}, inputs)
    assert ran.sends == ran.receives == (0, 0)
    for written in ran.written:
        for x, y in zip(inputs, written, strict=True):
            np.testing.assert_array_equal(y, 2 * x + 1, strict=True)
    assert len(ran.outputs) == 2


def test_no_inputs_no_outputs() -> None:
    ran = run_sharded(Line, 1, {}, [])
    assert (ran.outputs, ran.sends, ran.receives) == ((), (0,), (0,))
    with pytest.raises(BadInput, match=r"a timeline needs one forward of every device for each input, got \[0\]"):
        ran.timeline()


def test_the_first_failure_is_raised_with_its_own_traceback(nothing_left: None) -> None:
    with pytest.raises(KeyError, match="deep inside") as failure:
        run_sharded(Failing, 2, {}, numbers(50))
    assert isinstance(failure.value.__cause__, WorkerTraceback)
    assert "in fail\n" in str(failure.value.__cause__)
    assert failure.value.__notes__ == ["on device 1"]


def test_a_killed_device_is_told(nothing_left: None) -> None:
    with pytest.raises(WorkerLost, match="device 1 ended without a word, exit code -9"):
        run_sharded(Killed, 2, {}, numbers(50))


def test_inputs_that_fail_end_the_run(nothing_left: None) -> None:
    with pytest.raises(ZeroDivisionError):
        run_sharded(Line, 1, {}, (np.array(1 // (3 - i)) for i in range(9)))


def test_what_is_sent_to_a_device_that_has_ended_is_told(nothing_left: None) -> None:
    with pytest.raises(BadInput, match="device 1 has ended and device 0 has a message for it"):
        run_sharded(Impatient, 2, {}, [LARGE, LARGE])


def test_messages_that_nobody_received_are_told() -> None:
    with pytest.raises(BadInput, match="device 1 ended with 1 of 1 messages of device 0 left"):
        run_sharded(Deaf, 2, {}, [])


def test_there_must_be_a_device() -> None:
    with pytest.raises(BadInput, match="at least 1 device, got 0"):
        run_sharded(Line, 0, {}, [])


def test_devices_import_nothing_heavy() -> None:
    assert run_sharded(Imported, 1, {}, [0]).outputs[0].tolist() == []


@pytest.mark.slow
def test_starts_stops_and_kills_leave_nothing(nothing_left: None) -> None:
    for _ in range(10):
        assert len(run_sharded(Line, 2, {}, numbers(3)).outputs) == 3
    for _ in range(4):
        with pytest.raises(WorkerLost):
            run_sharded(Killed, 2, {}, numbers(9))


PARENT = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from engines import Telling
from autoauto.targets.host.sharded import run_sharded
if __name__ == "__main__":
    run_sharded(Telling, 2, {}, [np.array(1)] * 1000)
"""


def test_devices_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    command = [sys.executable, str(script), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        pids = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        assert str(pid) in pids
        parent.kill()
    wait_until(lambda: not any(is_running(int(pid)) for pid in pids), "no device")
    assert named_memory() == []
