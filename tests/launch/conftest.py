"""Servers that come up at once, and stand-ins for `ssh` and `docker` that run here what they are given."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoauto.engines.command import Command
from autoauto.launch.launcher import PORT_WORD, ReplicaStart

READY = "/health"

_SSH = """#!{python}
import os, socket, sys, threading
words, forward, host = sys.argv[1:], "", ""
while words:
    word = words.pop(0)
    if word in ("-o", "-L"):
        value = words.pop(0)
        forward = value if word == "-L" else forward
    elif not word.startswith("-"):
        host = word
        break
with open({log!r}, "a") as log:
    log.write(f"ssh {{host}} {{'tunnel' if forward else 'command'}}\\n")
if host == "nowhere":
    sys.exit("ssh: Could not resolve hostname nowhere")
if not forward:
    os.execvp("sh", ["sh", "-c", " ".join(words)])
here, port, there, other = forward.split(":")

def copy(source, sink):
    while data := source.recv(65536):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)

def serve(near):
    with near, socket.create_connection((there, int(other))) as far:
        thread = threading.Thread(target=copy, args=(near, far), daemon=True)
        thread.start()
        copy(far, near)
        thread.join()

listening = socket.create_server((here, int(port)))
while True:
    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
"""
"""Runs the command on this machine, and forwards a port."""

_DOCKER = """#!{python}
import json, os, sys, time
words, state = sys.argv[1:], {state!r}
with open({log!r}, "a") as log:
    log.write(" ".join(["docker", *words]) + "\\n")

def ask(name, content):
    with open(os.path.join(state, "." + name), "w") as file:
        json.dump(content, file)
    os.rename(os.path.join(state, "." + name), os.path.join(state, name))
    while os.path.exists(os.path.join(state, name)):
        time.sleep(0.01)

if words[0] == "rm":
    ask(words[-1] + ".rm", [])
    sys.exit()
options, words = {{}}, words[1:]
while words[0].startswith("--"):
    option = words.pop(0)
    options[option] = "" if option == "--rm" else words.pop(0)
ask(options["--name"] + ".run", [options["--entrypoint"], *words[1:]])
while os.path.exists(os.path.join(state, options["--name"])):
    time.sleep(0.01)
"""
"""A client of `Daemon`: it waits for the end of its container, which does not end with it."""


class Daemon(threading.Thread):
    """Starts and ends containers, which are files of a folder: processes here."""

    def __init__(self, state: Path) -> None:
        super().__init__(daemon=True)
        self._state, self._ended = state, threading.Event()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> None:
        while not self._ended.wait(0.01):
            for file in self._state.glob("[!.]*.run"):
                self._running[file.stem] = subprocess.Popen(json.loads(file.read_text()))
                (self._state / file.stem).touch()
                file.unlink()
            for file in self._state.glob("[!.]*.rm"):
                if (process := self._running.pop(file.stem, None)) is not None:
                    process.kill()
                    process.wait()
                    (self._state / file.stem).unlink()
                file.unlink()

    def close(self) -> None:
        """End all."""
        self._ended.set()
        self.join()
        for process in self._running.values():
            process.kill()
            process.wait()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """A function that makes a program on PATH of its name and text."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def made(name: str, text: str) -> Path:
        path = folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    return made


@pytest.fixture
def ssh(program: Callable[[str, str], Path], tmp_path: Path) -> Path:
    """A stand-in for `ssh`; returns the file with its calls."""
    program("ssh", _SSH.format(python=sys.executable, log=str(tmp_path / "ssh.log")))
    return tmp_path / "ssh.log"


@pytest.fixture
def docker(program: Callable[[str, str], Path], tmp_path: Path) -> Iterator[Path]:
    """A stand-in for `docker` with its daemon; yields the folder of its containers."""
    state = tmp_path / "containers"
    state.mkdir()
    program("docker", _DOCKER.format(python=sys.executable, log=str(tmp_path / "docker.log"), state=str(state)))
    daemon = Daemon(state)
    daemon.start()
    yield state
    daemon.close()


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaStart:
    """A server of files, among which one is called "health"."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "health").touch()
    words = (sys.executable, "-u", "-m", "http.server", PORT_WORD, "--directory", str(folder))
    return ReplicaStart(Command(words, {"A_VARIABLE": "a value"}), 0, (1, 0), "an/image:1", str(folder))
