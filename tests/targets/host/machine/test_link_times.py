import json
from pathlib import Path

import pytest

from autoauto.records.hardware import Link
from autoauto.targets.host.machine import link_times as links
from autoauto.targets.host.machine import machine as kept
from autoauto.targets.host.machine.link_times import LinkTimes, measured_links
from autoauto.targets.host.machine.machine import cores

TIMES = LinkTimes(send_s=2e-6, latency_s=8e-6, write_bytes_per_s=4e9, read_bytes_per_s=1e10)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is measured, which takes no time here; the cache folder is empty."""
    asked: list[object] = []

    def measure(*pair: object) -> LinkTimes:
        asked.append(pair)
        return TIMES

    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(links, "measure", measure)
    return asked


def test_a_cycle_of_a_link_is_a_nanosecond() -> None:
    assert TIMES.send_link == Link(4e9, 2000)
    assert TIMES.receive_link == Link(1e10, 8000)
    assert TIMES.send_link.cycles(4000, clock_hz=1e9) == 3000


def test_links_are_measured_once(measured: list[object]) -> None:
    assert [measured_links((0,), (1,)) for _ in range(2)] == [TIMES, TIMES]
    assert measured == [((0,), (1,))]


def test_other_cores_and_another_machine_are_measured_again(
    measured: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_links((0,), (1,))
    measured_links((0,), (0,))
    monkeypatch.setattr(kept, "identity", lambda: "another machine")
    measured_links((0,), (1,))
    assert len(measured) == 3


@pytest.mark.parametrize("latency_s", [-4.0, "a second"])
def test_impossible_times_are_measured_again_with_a_line(
    latency_s: object, measured: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured_links((0,), (1,))
    (path,) = (tmp_path / "cache").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), "latency_s": latency_s}))
    assert measured_links((0,), (1,)) == TIMES
    assert len(measured) == 2
    assert capsys.readouterr().err.count("measured again") == 1
    assert json.loads(path.read_text())["latency_s"] == 8e-6


@pytest.mark.slow
def test_real_processes_exchange_real_messages() -> None:
    threads = [number for core in cores() for number in core]
    times = links.measure((threads[0],), (threads[-1],))
    assert 0 < times.send_s < 1
    assert 0 <= times.latency_s < 1
    assert 1e6 < times.write_bytes_per_s < 1e13
    assert 1e6 < times.read_bytes_per_s < 1e13
