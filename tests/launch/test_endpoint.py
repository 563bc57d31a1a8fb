"""Servers that somebody else starts, and what is printed for them."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, TextIO

import pytest

from autoauto.engines.command import Command
from autoauto.launch.endpoint import _is_said
from autoauto.launch.faults import EngineFault
from autoauto.launch.guarded import GuardedEngines
from autoauto.launch.launcher import ReplicaStart, answers, launcher_of
from autoauto.records.errors import BadInput
from tests.running import wait_until


class Models(BaseHTTPRequestHandler):
    """Answers every path with a status; notes the keys of requests."""

    status: ClassVar[int] = 200
    keys: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.keys.append(self.headers.get("Authorization"))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def server(port: int = 0) -> Iterator[int]:
    """A server that runs until the end of the context."""
    with ThreadingHTTPServer(("127.0.0.1", port), Models) as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield running.server_address[1]
        running.shutdown()


def is_asked_again(before: int) -> bool:
    return len(Models.keys) > before + 2


def test_the_first_configuration_waits_for_a_server(
    replica: ReplicaStart, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with server() as port:
        launcher = launcher_of(f"endpoint:http://127.0.0.1:{port}/v1")
        with launcher.start([replica, replica], "/health", 60.0) as engines:
            assert engines.urls == (f"http://127.0.0.1:{port}",)
            assert engines.fault() is None
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("CUDA_VISIBLE_DEVICES=1,0") == 2
    assert f"waiting for http://127.0.0.1:{port}\n" in said.err
    assert "a-key" not in said.err
    assert Models.keys[-1] == "Bearer a-key"


def test_the_next_ones_wait_until_a_server_was_down(replica: ReplicaStart, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replica._replace(gpus=(0,))
    with server() as port, ThreadPoolExecutor(1) as pool:
        launcher = launcher_of(f"endpoint:http://127.0.0.1:{port}")
        with launcher.start([replica], "/health", 60.0):
            pass
        again = pool.submit(launcher.start([other], "/health", 60.0).__enter__)
        for status in (200, 503):
            monkeypatch.setattr(Models, "status", status)
            before = len(Models.keys)
            wait_until(partial(is_asked_again, before), "the server is asked several times")
            assert not again.done()
        monkeypatch.setattr(Models, "status", 200)
        assert again.result(60.0).urls


def test_a_file_says_that_a_server_was_restarted(replica: ReplicaStart, capsys: pytest.CaptureFixture[str]) -> None:
    other = replica._replace(gpus=(0,))
    with server() as port, ThreadPoolExecutor(1) as pool:
        launcher = launcher_of(f"endpoint:http://127.0.0.1:{port}")
        with launcher.start([replica], "/health", 60.0):
            pass
        capsys.readouterr()
        before = len(Models.keys)
        again = pool.submit(launcher.start([other], "/health", 60.0).__enter__)
        wait_until(lambda: len(Models.keys) > before, "the server is asked")
        file = Path(capsys.readouterr().err.partition("touch ")[2].split(",")[0])
        file.touch()
        assert again.result(60.0).urls
        assert not file.exists()
        with launcher.start([other], "/health", 60.0):  # the same one again needs no restart
            pass


def test_a_server_that_does_not_come_is_a_fault(replica: ReplicaStart) -> None:
    with server() as port:
        pass
    with pytest.raises(EngineFault, match=r"no restarted server answered /v1/models in 0\.2 s"):
        launcher_of(f"endpoint:http://127.0.0.1:{port}").start([replica], "/health", 0.2).__enter__()


def test_urls_are_of_all_replicas_or_one(replica: ReplicaStart) -> None:
    with pytest.raises(BadInput, match="a URL for each of 3 replicas, or one for all, got 2"):
        launcher_of("endpoint:http://a,http://b").start([replica] * 3, "/health", 1.0).__enter__()


def test_nobody_says_how_a_server_of_somebody_else_is(replica: ReplicaStart) -> None:
    engines = GuardedEngines((), ("http://a",))
    assert (engines.fault(), engines.fault(60.0), engines.log()) == (None, None, ())


def test_as_many_servers_are_waited_for_as_there_are_replicas(
    replica: ReplicaStart, capsys: pytest.CaptureFixture[str]
) -> None:
    with server() as port, server() as other:
        first, second = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{other}"
        with launcher_of(f"endpoint:{first},{second}").start([replica], "/health", 60.0) as engines:
            assert engines.urls == (first,)
        with launcher_of(f"endpoint:{first},{second}").start([replica] * 2, "/health", 60.0) as engines:
            assert engines.urls == (first, second)
    assert "touch" not in capsys.readouterr().err  # of the first configuration nothing must be restarted


def test_a_server_that_went_between_two_measurements_of_one_configuration_is_waited_for(
    replica: ReplicaStart, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with server() as port:
        launcher = launcher_of(f"endpoint:http://127.0.0.1:{port}")
        with launcher.start([replica], "/health", 60.0):
            pass
        capsys.readouterr()
        monkeypatch.setattr(Models, "status", 503)
        with pytest.raises(EngineFault, match="answered /v1/models in 0 s"):
            launcher.start([replica], "/health", 0.0).__enter__()
        said = capsys.readouterr().err
        assert said == f"autoauto: waiting for http://127.0.0.1:{port}\n"  # it is told once what to start


@pytest.mark.parametrize(
    ("is_terminal", "text", "is_said"), [(True, "\n", True), (True, "", False), (False, "\n", False)]
)
def test_enter_says_that_a_server_was_restarted(
    is_terminal: bool, text: str, is_said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of its input, or of a pipe, nobody has pressed Enter."""
    (tmp_path / "typed").write_text(text)
    with (tmp_path / "typed").open() as typed:
        monkeypatch.setattr("sys.stdin", Typed(typed, is_terminal))
        assert _is_said(tmp_path / "signal") == is_said
    (tmp_path / "signal").touch()
    assert _is_said(tmp_path / "signal")


class Typed:
    """A file that says whether it is a terminal."""

    def __init__(self, file: TextIO, is_terminal: bool) -> None:
        self.fileno, self.readline, self._is_terminal = file.fileno, file.readline, is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def test_what_is_printed_can_be_pasted_into_a_shell(replica: ReplicaStart, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(("serve", "a b", "--port", "{port}"), {"A": "c"}, {"f.yaml": "x: 1\n\n"})
    with server() as port:
        launcher = launcher_of(f"endpoint:http://127.0.0.1:{port}")
        with launcher.start([replica._replace(command=command)], "/health", 60.0):
            pass
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:4] == ["# f.yaml:", "x: 1", "CUDA_VISIBLE_DEVICES=1,0 A=c serve 'a b' --port 8000"]


def test_only_200_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with server() as port:
        for status in (200, 201, 404, 503):
            monkeypatch.setattr(Models, "status", status)
            assert answers(f"http://127.0.0.1:{port}") == (status == 200)
        assert Models.keys[-1] is None
        assert not answers(f"https://127.0.0.1:{port}/")  # which is no server of TLS
    assert not answers(f"http://127.0.0.1:{port}/health")
