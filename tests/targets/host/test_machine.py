"""Cores and hardware threads of this machine, and its cached numbers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autoauto.targets.host import machine
from autoauto.targets.host.machine import (
    MachineCache,
    core_beside_gpu,
    cores,
    cores_of,
    cpu_clock_hz,
    excess_load,
    identity,
    siblings,
)


def test_every_usable_hardware_thread_belongs_to_exactly_one_core() -> None:
    threads = [number for core in cores() for number in core]
    assert sorted(threads) == sorted(os.sched_getaffinity(0))
    assert list(cores()) == sorted(cores())


@pytest.mark.parametrize(("text", "expected"), [("0,4\n", {0, 4}), ("0-1\n", {0, 1}), ("0-1,8-9\n", {0, 1, 8, 9})])
def test_the_hardware_threads_of_a_core_are_read_from_the_kernels_lists(
    text: str, expected: set[int], tmp_path: Path
) -> None:
    folder = tmp_path / "cpu0" / "topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text(text)
    assert siblings(0, tmp_path) == expected


def test_without_a_topology_every_hardware_thread_is_a_core(tmp_path: Path) -> None:
    assert siblings(3, tmp_path) == {3}


def test_devices_share_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(machine, "siblings", lambda number: {number % 4, number % 4 + 4})
    assert cores() == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert [cores_of(device, 1) for device in range(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert [cores_of(device, 2) for device in range(2)] == [(0, 4, 1, 5), (2, 6, 3, 7)]


def test_hardware_threads_outside_the_affinity_mask_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 5})
    monkeypatch.setattr(machine, "siblings", lambda number: {number % 4, number % 4 + 4})
    assert cores() == ((1, 5), (2,))


def test_the_name_of_the_machine_contains_its_number_of_cores() -> None:
    assert f"{len(cores())} cores" in identity()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def speed(numbers: Mapping[str, Any]) -> int:
    return int(numbers["speed"])


def test_the_cache_returns_the_numbers_written_last(cache: Path) -> None:
    assert MachineCache("speed").read(speed) is None
    for number in (7, 8):
        MachineCache("speed").write({"speed": number})
        assert MachineCache("speed").read(speed) == number
    assert len(list(cache.iterdir())) == 1


def test_another_machine_or_another_key_has_a_separate_file(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MachineCache("speed", 1).write({"speed": 7})
    assert MachineCache("speed", 2).read(speed) is None
    monkeypatch.setattr(machine, "identity", lambda: "another machine")
    assert MachineCache("speed", 1).read(speed) is None


@pytest.mark.parametrize("broken", ["", "{", "{}", "[]", '{"speed": "fast"}', "\xff"])
def test_a_broken_file_counts_as_missing_with_a_line_on_stderr(
    broken: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    MachineCache("speed").write({"speed": 7})
    (path,) = cache.iterdir()
    path.write_text(broken, encoding="latin-1")
    assert MachineCache("speed").read(speed) is None
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "measured again" in line


def test_nothing_is_stored_in_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "file"))
    MachineCache("speed").write({"speed": 7})
    assert MachineCache("speed").read(speed) is None


def test_processes_beside_gpus_share_cores_where_there_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: ((0, 2), (1, 3)))
    assert [core_beside_gpu(device) for device in range(4)] == [(0, 2), (1, 3), (0, 2), (1, 3)]


def test_the_clock_is_the_highest_that_the_kernel_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_TOPOLOGY", tmp_path)
    now_hz = cpu_clock_hz()
    assert now_hz is None or now_hz > 1e8
    (tmp_path / "cpu0" / "cpufreq").mkdir(parents=True)
    (tmp_path / "cpu0" / "cpufreq" / "cpuinfo_max_freq").write_text("3800000\n", encoding="ascii")
    assert cpu_clock_hz() == 3.8e9


@pytest.mark.parametrize(("load", "expected"), [(7.46, "a load of 7.5 on 2 cores"), (2.0, "None"), (0.1, "None")])
def test_a_load_that_exceeds_the_cores_is_said(load: float, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert excess_load() is None, "with a patience of 0, as in tests, speed does not count"
    monkeypatch.setenv("AUTOAUTO_PATIENCE_S", "10")
    assert str(excess_load()) == expected
