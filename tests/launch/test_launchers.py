"""Ways to start engines: here, over `ssh`, in containers. The last two are stand-ins that run commands here."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from autoauto.engines.command import ALL_ADDRESSES, Command
from autoauto.launch.docker import DockerLauncher
from autoauto.launch.faults import EngineFault, FaultKind
from autoauto.launch.guarded import HERE, GuardedEngines, task_of
from autoauto.launch.launcher import ReplicaStart, answers, launcher_of, launchers, wait_until_ready
from autoauto.records.errors import BadInput, MeasurementsFailed
from tests.launch.conftest import READY
from tests.running import started_script, wait_until


def test_ways_are_files() -> None:
    assert sorted(launchers()) == ["docker", "endpoint", "local", "ssh"]
    with pytest.raises(BadInput, match=r"engines are started by .*, got 'shs:a'; did you mean 'ssh'"):
        launcher_of("shs:a")


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("local:node1", "try ssh:node1"),
        ("ssh:", "names a host"),
        ("ssh:node1,", "names a host"),
        ("ssh:-oProxyCommand=x", "names a host"),
        ("endpoint:http://me:secret@node1", "takes no user or password"),
        ("endpoint:http://node1,http://me:secret@node2", "takes no user or password"),
        ("endpoint:node1", "must be that of a server"),
    ],
)
def test_what_names_nothing_is_refused(way: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as raised:
        launcher_of(way)
    assert "secret" not in str(raised.value)


def test_replicas_on_this_machine_have_ports_of_their_own(replica: ReplicaStart) -> None:
    with launcher_of("local").start([replica, replica], READY, 60.0) as engines:
        assert len(set(engines.urls)) == 2
        assert all(answers(url + READY) for url in engines.urls)
        assert engines.fault() is None
    assert not any(answers(url + READY) for url in engines.urls)


def test_an_engine_that_is_not_up_in_time_is_a_fault(replica: ReplicaStart) -> None:
    with pytest.raises(EngineFault, match=r"did not answer /never within 0\.2 s") as raised:
        launcher_of("local").start([replica], "/never", 0.2).__enter__()
    assert raised.value.kind is FaultKind.TIME


def test_engines_over_ssh_are_reached_through_it(ssh: Path, replica: ReplicaStart) -> None:
    second = replica._replace(machine=1)
    with launcher_of("ssh:node1,node2").start([replica, second], READY, 60.0) as engines:
        assert all(answers(url + READY) for url in engines.urls)
    assert not any(answers(url + READY) for url in engines.urls)
    calls = ssh.read_text().splitlines()
    assert sorted(calls) == ["ssh node1 command", "ssh node1 tunnel", "ssh node2 command", "ssh node2 tunnel"]


def test_a_host_that_is_not_reached_ends_the_measuring(ssh: Path, replica: ReplicaStart) -> None:
    with pytest.raises(MeasurementsFailed, match="Could not resolve hostname nowhere"):
        launcher_of("ssh:nowhere").start([replica], READY, 60.0).__enter__()


def test_a_container_sees_its_gpus_alone(replica: ReplicaStart) -> None:
    [words] = [DockerLauncher("")._task(replica).words]
    shown = " ".join(words)
    assert "docker run --rm --name autoauto-" in shown
    assert '--gpus "device=0,1"' in shown
    assert "--env CUDA_VISIBLE_DEVICES=1,0" in shown
    assert "--env HF_TOKEN --env A_VARIABLE=a value" in shown
    assert f"--volume {replica.folder}:{replica.folder}:ro" in shown
    assert DockerLauncher("my/own:2")._task(replica).words.count("my/own:2") == 1


def test_a_container_writes_the_files_of_its_command_and_then_is_it(replica: ReplicaStart, tmp_path: Path) -> None:
    """The shell of the container is run here: `cat` shows what it wrote."""
    files = {"a.yaml": 'it\'s 100 % "$1"\n', "b.yaml": "\\n\nlast"}
    plain = DockerLauncher("")._task(replica).words
    start = plain.index("--entrypoint")
    assert plain[start:] == ("--entrypoint", replica.command.words[0], "an/image:1", *replica.command.words[1:])
    assert "--workdir" not in plain
    command = Command(("cat", "b.yaml", "a.yaml"), {}, files)
    task = DockerLauncher("")._task(replica._replace(command=command))
    start = task.words.index("--workdir")
    assert task.words[start : start + 5] == ("--workdir", "/tmp", "--entrypoint", "sh", "an/image:1")
    shown = subprocess.run(["sh", *task.words[start + 5 :]], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout == files["b.yaml"] + files["a.yaml"]
    assert task.at_end == ("docker", "rm", "--force", task.words[task.words.index("--name") + 1])


@pytest.mark.slow  # what ends a container looks a second later whether it is gone
def test_a_container_is_removed_at_the_end(docker: Path, replica: ReplicaStart) -> None:
    with launcher_of("docker").start([replica], READY, 60.0) as engines:
        assert answers(engines.urls[0] + READY)
    assert not answers(engines.urls[0] + READY)
    assert list(docker.iterdir()) == []


@pytest.mark.slow  # what ends a container looks a second later whether it is gone
@pytest.mark.parametrize("way", ["local", "ssh:node1", "docker"])
def test_no_engine_is_left_of_a_search_that_was_killed(
    way: str, ssh: Path, docker: Path, replica: ReplicaStart, tmp_path: Path
) -> None:
    lines = [
        "import time",
        "from autoauto.engines.command import Command",
        "from autoauto.launch.launcher import ReplicaStart, launcher_of",
        f"replica = ReplicaStart(Command({replica.command.words!r}, {{}}), 0, (0,), 'an/image', '')",
        f"with launcher_of({way!r}).start([replica], {READY!r}, 60.0) as engines:",
        "    print(engines.urls[0], flush=True)",
        "    time.sleep(1000)",
    ]
    search = started_script("\n".join(lines), tmp_path)
    assert search.stdout is not None
    url = search.stdout.readline().strip() + READY
    assert answers(url)
    os.kill(search.pid, signal.SIGKILL)
    search.communicate()
    wait_until(lambda: not answers(url), "the engine is gone")
    wait_until(lambda: not list(docker.iterdir()), "the container is gone")


@pytest.mark.parametrize(
    ("way", "where", "n_machines"),
    [
        ("local", "local", 1),
        ("docker", "docker", 1),
        ("docker:my/own:2", "docker:my/own:2", 1),
        ("ssh:node1", "ssh:node1", 1),
        ("ssh:node1,node2,node1", "ssh:node1,node2,node1", 3),
        ("endpoint:http://a:1/v1,http://b:2", "endpoint:http://a:1,http://b:2", None),
    ],
)
def test_a_way_says_where_engines_are_and_on_how_many_machines(way: str, where: str, n_machines: int | None) -> None:
    launcher = launcher_of(way)
    assert (launcher.where, launcher.n_machines) == (where, n_machines)


def test_an_image_is_no_option() -> None:
    with pytest.raises(BadInput, match="--launch docker:IMAGE names an image, got '--privileged'; try docker"):
        launcher_of("docker:--privileged")


def test_containers_are_started_on_this_machine_one_a_replica(
    replica: ReplicaStart, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[object, ...]] = []
    monkeypatch.setattr("autoauto.launch.docker.guarded_engines", lambda *words: given.append(words))
    launcher_of("docker").start([replica, replica._replace(gpus=(3,))], READY, 60.0)
    [(tasks, programs, ready, limit_s)] = given
    assert isinstance(tasks, list)
    assert [task.words[task.words.index("--gpus") + 1] for task in tasks] == ['"device=0,1"', '"device=3"']
    assert len({task.at_end[-1] for task in tasks}) == 2
    assert (programs, ready, limit_s) == ([HERE, HERE], READY, 60.0)


def test_a_container_without_a_folder_has_what_was_fetched(
    replica: ReplicaStart, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = replica._replace(folder="")
    for home, folder in (("/fetched", "/fetched"), ("", os.path.expanduser("~/.cache/huggingface"))):
        monkeypatch.setenv("HF_HOME", home)
        [words] = [DockerLauncher("")._task(fetched).words]
        assert words[words.index("--volume") + 1] == f"{folder}:/huggingface"
        assert "HF_HOME=/huggingface" in words


def test_an_engine_behind_a_guard_listens_here_alone(replica: ReplicaStart) -> None:
    command = Command(("serve", "--host", ALL_ADDRESSES, "--port", "{port}"), {"A": "b"}, {"f": "text"})
    task = task_of(replica._replace(command=command))
    assert task.words == ("serve", "--host", "127.0.0.1", "--port", "{port}")
    assert (task.environment, task.files, task.at_end) == (
        *({"CUDA_VISIBLE_DEVICES": "1,0", "A": "b"}, {"f": "text"}),
        (),
    )


class Ended:
    """An engine whose end is seen when it is asked for the n-th time, counted from 1; never with 0."""

    def __init__(self, n: int) -> None:
        self.n_asked, self._n, self.fails = 0, n, EngineFault(FaultKind.ENDED, f"at {n}")

    def fault(self) -> EngineFault | None:
        self.n_asked += 1
        return self.fails if self._n and self.n_asked >= self._n else None

    def log(self) -> tuple[str, ...]:
        return (f"log {self._n}",)


@pytest.mark.parametrize(
    ("seen", "timeout_s", "reason", "n_asked"),
    [
        ((0, 1), 0.0, "at 1", 1),
        ((0, 2), 0.0, None, 1),  # without a time it is asked once
        ((0, 3), 60.0, "at 3", 3),
        ((2, 2), 60.0, "at 2", 2),
        ((0, 0), 0.0, None, 1),
    ],
)
def test_the_end_of_any_engine_is_waited_for(
    seen: tuple[int, int], timeout_s: float, reason: str | None, n_asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("autoauto.launch.guarded.sleep", pauses.append)
    engines: Any = [Ended(n) for n in seen]
    together = GuardedEngines(engines, ("http://a",))
    fault = together.fault(timeout_s)
    assert (None if fault is None else fault.reason, [each.n_asked for each in engines]) == (reason, [n_asked] * 2)
    assert pauses == [0.1] * (n_asked - 1)
    assert together.log() == tuple(f"log {n}" for n in seen)


def test_engines_are_asked_until_all_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answers when it is asked the third time; then the second is asked."""
    asked: list[str] = []
    monkeypatch.setattr("autoauto.launch.launcher.sleep", lambda _: None)

    def answers_late(url: str) -> bool:
        asked.append(url)
        return len(asked) >= 3

    monkeypatch.setattr("autoauto.launch.launcher.answers", answers_late)
    engines: Any = [Ended(0)]
    wait_until_ready(GuardedEngines(engines, ("http://a", "http://b")), "/health", 60.0)
    assert asked == ["http://a/health"] * 3 + ["http://b/health"]
    failing: Any = [Ended(2)]
    monkeypatch.setattr("autoauto.launch.launcher.answers", lambda url: False)
    with pytest.raises(EngineFault, match="at 2"):
        wait_until_ready(GuardedEngines(failing, ("http://a",)), "/health", 60.0)


def test_a_fault_has_the_log_of_all_where_it_has_none(replica: ReplicaStart, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each engine writes a line of its own, which is there once."""

    def fail(engines: GuardedEngines, path: str, limit_s: float) -> None:
        wait_until(lambda: {*engines.log()} == {"up 1", "up 2"}, "both have written")
        raise EngineFault(FaultKind.TIME, "late", option="--a")

    monkeypatch.setattr("autoauto.launch.guarded.wait_until_ready", fail)
    says = [
        replica._replace(command=Command(("sh", "-c", f"echo up {number} >&2; exec sleep 1000"), {}))
        for number in (1, 2)
    ]
    with pytest.raises(EngineFault, match="late") as raised:
        launcher_of("local").start(says, READY, 60.0).__enter__()
    fault = raised.value
    assert (fault.log, fault.kind, fault.option) == (("up 1", "up 2"), FaultKind.TIME, "--a")
