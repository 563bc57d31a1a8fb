"""Ways to start engines: here, over `ssh`, in containers. The last two are stand-ins that run commands here."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from autoauto.engines.command import Command
from autoauto.launch.docker import DockerLauncher
from autoauto.launch.faults import EngineFault, FaultKind
from autoauto.launch.launcher import ReplicaStart, answers, launcher_of, launchers
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
