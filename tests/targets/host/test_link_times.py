"""Times of links: measured once a machine and pair of cores, and cached."""

import json
from math import isfinite
from pathlib import Path

import pytest

from autoauto.records.hardware import Link
from autoauto.targets.host import detect, machine
from autoauto.targets.host.detect import MESSAGE_BYTES, LinkTimes, measured_links
from autoauto.targets.host.machine import cores

TIMES = LinkTimes(send_s=2e-6, latency_s=8e-6, write_bytes_per_s=4e9, read_bytes_per_s=1e10, memory_bytes_per_s=2e10)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The devices that were measured; a measurement takes no time here, and the cache folder is empty."""
    measured: list[object] = []

    def measure(devices: object) -> LinkTimes:
        measured.append(devices)
        return TIMES

    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(detect, "measure", measure)
    return measured


def test_a_cycle_of_a_link_is_a_nanosecond() -> None:
    assert TIMES.send_link == Link(4e9, 2000)
    assert TIMES.receive_link == Link(1e10, 8000)
    assert TIMES.send_link.cycles(4000, clock_hz=1e9) == 3000


def test_links_are_measured_once(measured: list[object]) -> None:
    assert [measured_links([(0,), (1,)]) for _ in range(2)] == [TIMES, TIMES]
    assert measured == [[(0,), (1,)]]


def test_other_cores_and_another_machine_are_measured_again(
    measured: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_links([(0,), (1,)])
    measured_links([(0,)])
    measured_links([(0,), (1,), (2,)])
    monkeypatch.setattr(machine, "identity", lambda: "another machine")
    measured_links([(0,), (1,)])
    assert len(measured) == 4


@pytest.mark.parametrize("latency_s", [-4.0, "a second"])
def test_impossible_times_in_the_cache_are_measured_again_with_a_line_on_stderr(
    latency_s: object, measured: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured_links([(0,), (1,)])
    (path,) = (tmp_path / "cache").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), "latency_s": latency_s}))
    assert measured_links([(0,), (1,)]) == TIMES
    assert len(measured) == 2
    assert capsys.readouterr().err.count("measured again") == 1
    assert json.loads(path.read_text())["latency_s"] == 8e-6


@pytest.mark.slow
def test_a_long_message_takes_longer_than_an_empty_one_between_real_processes() -> None:
    threads = [number for core in cores() for number in core]
    times = detect.measure([(threads[0],), (threads[-1],)])
    assert times.send_s > 0
    assert isfinite(times.latency_s)
    assert MESSAGE_BYTES / times.write_bytes_per_s > times.send_s
    assert MESSAGE_BYTES / times.read_bytes_per_s > times.send_s
    assert isfinite(times.memory_bytes_per_s)
    assert times.memory_bytes_per_s > 0
