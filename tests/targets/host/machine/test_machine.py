import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autoauto.targets.host.machine import machine
from autoauto.targets.host.machine import machine as kept
from autoauto.targets.host.machine.machine import Kept, cores, cores_of, identity, siblings


def test_every_hardware_thread_that_may_be_used_is_in_one_core() -> None:
    threads = [number for core in cores() for number in core]
    assert sorted(threads) == sorted(os.sched_getaffinity(0))
    assert list(cores()) == sorted(cores())


@pytest.mark.parametrize(("text", "expected"), [("0,4\n", {0, 4}), ("0-1\n", {0, 1}), ("0-1,8-9\n", {0, 1, 8, 9})])
def test_hardware_threads_of_a_core_are_read_as_the_kernel_writes_them(
    text: str, expected: set[int], tmp_path: Path
) -> None:
    folder = tmp_path / "cpu0" / "topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text(text)
    assert siblings(0, tmp_path) == expected


def test_a_core_is_its_own_where_the_kernel_does_not_tell(tmp_path: Path) -> None:
    assert siblings(3, tmp_path) == {3}


def test_devices_share_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(machine, "siblings", lambda number: {number % 4, number % 4 + 4})
    assert cores() == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert [cores_of(device, 1) for device in range(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert [cores_of(device, 2) for device in range(2)] == [(0, 4, 1, 5), (2, 6, 3, 7)]


def test_a_hardware_thread_that_is_not_allowed_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 5})
    monkeypatch.setattr(machine, "siblings", lambda number: {number % 4, number % 4 + 4})
    assert cores() == ((1, 5), (2,))


def test_the_machine_has_a_name() -> None:
    assert f"{len(cores())} cores" in identity()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def speed(numbers: Mapping[str, Any]) -> int:
    return int(numbers["speed"])


def test_what_was_written_last_is_read(cache: Path) -> None:
    assert Kept("speed").read(speed) is None
    for number in (7, 8):
        Kept("speed").write({"speed": number})
        assert Kept("speed").read(speed) == number
    assert len(list(cache.iterdir())) == 1


def test_another_machine_or_subject_has_a_file_of_its_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Kept("speed", 1).write({"speed": 7})
    assert Kept("speed", 2).read(speed) is None
    monkeypatch.setattr(kept, "identity", lambda: "another machine")
    assert Kept("speed", 1).read(speed) is None


@pytest.mark.parametrize("broken", ["", "{", "{}", "[]", '{"speed": "fast"}', "\xff"])
def test_a_broken_file_is_none_with_a_line(broken: str, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Kept("speed").write({"speed": 7})
    (path,) = cache.iterdir()
    path.write_text(broken, encoding="latin-1")
    assert Kept("speed").read(speed) is None
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "measured again" in line


def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "file"))
    Kept("speed").write({"speed": 7})
    assert Kept("speed").read(speed) is None
