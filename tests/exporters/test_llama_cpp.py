"""Scripts of llama.cpp's server: what they say."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.error import URLError

import pytest

from autoauto.engines.llama_cpp import LlamaServerOptions
from autoauto.exporters import llama_cpp
from autoauto.exporters.exporter import DecoderModel
from autoauto.exporters.llama_cpp import (
    EXPORTER,
    LlamaServer,
    _describe,
    answered_tokens,
    check,
    compose,
    processes,
    read_script,
    router,
    script,
)
from autoauto.records.costs.decoder import Decoder
from autoauto.records.errors import BadInput
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.targets.gpu.session import GpuSession
from autoauto.targets.host.runtimes.llamacpp.session import LlamaCppSession

ALONE = LlamaServer("server-0", (), LlamaServerOptions("/m/a b.gguf", 8, 2, 2, 2048, 512, 2048, port=8080))
BESIDE = [ALONE._replace(name=f"server-{i}", cores=(i,), options=ALONE.options._replace(port=8080 + i)) for i in (0, 1)]


@pytest.mark.parametrize("process", [ALONE, *BESIDE])
def test_a_script_is_read_back(process: LlamaServer, tmp_path: Path) -> None:
    path = tmp_path / f"{process.name}.sh"
    path.write_text(script(process), encoding="utf-8")
    assert read_script(path) == process


def test_compose_starts_every_server_on_its_cores_and_shares_requests_out() -> None:
    lines = compose(BESIDE).splitlines()
    assert [line.strip() for line in lines if "cpuset" in line] == ['cpuset: "0"', 'cpuset: "1"']
    commands = [json.loads(line.partition(": ")[2]) for line in lines if "command" in line]
    assert [command[-2:] for command in commands] == [["--port", "8080"], ["--port", "8081"]]
    assert "nginx" in compose(BESIDE)
    assert "nginx" not in compose([ALONE])
    assert "server 127.0.0.1:8080;\n    server 127.0.0.1:8081;" in router(BESIDE)


@pytest.mark.usefixtures("_cores")
def test_compose_has_the_files_to_which_parts_of_a_model_are_links(tmp_path: Path) -> None:
    blob, part = tmp_path / "blobs" / "digest", tmp_path / "snapshot" / "m-00001-of-00002.gguf"
    for path in (blob, part):
        path.parent.mkdir()
    blob.touch()
    part.symlink_to(blob)
    [first, _] = processes(deployment(source=DecoderModel(str(part), DECODER)))
    assert first.options.model == str(part)
    [volumes] = {line.strip() for line in compose([first]).splitlines() if "volumes" in line}
    folders = [f"{path.parent}:{path.parent}:ro" for path in (part, blob)]
    assert volumes == f"volumes: {json.dumps(folders)}"


DECODER = Decoder("m", "LlamaForCausalLM", 64, 4, 8, 2, 8, 96, 100, is_tied=False)


def deployment(replicas: int = 2, session: object = None, source: object = None) -> Any:
    """8 slots a server of two cores, for requests of 512 + 128 tokens."""
    knobs = Knobs(1, 8, replicas, mode=Generation(512, 128), session=cast("Any", session or LlamaCppSession(2, 3)))
    return SimpleNamespace(knobs=knobs, source=source or DecoderModel("folder/m.gguf", DECODER))


@pytest.fixture
def _cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core is two hardware threads."""
    monkeypatch.setattr(llama_cpp, "cores_of", lambda device, n: tuple(range(2 * n * device, 2 * n * (device + 1))))


@pytest.mark.usefixtures("_cores")
def test_every_replica_is_a_server_on_cores_and_a_port_of_its_own() -> None:
    """641 tokens of a request have room in 768, three steps of 256, in each of 8 slots."""
    first, second = processes(deployment())
    assert (first.name, first.cores, second.name, second.cores) == ("server-0", (0, 1, 2, 3), "server-1", (4, 5, 6, 7))
    assert first.options == LlamaServerOptions(
        str(Path("folder/m.gguf").resolve()), 8, 2, 3, 2048, 512, 8 * 768, port=first.options.port
    )
    assert second.options.port == (first.options.port or 0) + 1
    assert first.words[:3] == ("taskset", "-c", "0,1,2,3")
    [alone] = processes(deployment(1))
    assert (alone.cores, alone.words[0]) == ((), "llama-server")
    for other in (deployment(session=GpuSession()), deployment(source=SimpleNamespace())):
        with pytest.raises(
            BadInput, match=r"starts llama\.cpp with a GGUF file, got a configuration of another engine"
        ):
            processes(other)


@pytest.mark.usefixtures("_cores")
def test_what_is_written_is_checked_and_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LlamaCppSession, "package", SimpleNamespace(is_installed=False))
    EXPORTER.write(deployment(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("compose.yaml", "nginx.conf", "server-0.sh", "server-1.sh")
    ]
    assert (tmp_path / "server-1.sh").stat().st_mode & 0o777 == 0o755
    said, answers = check(deployment(), tmp_path)
    assert (said.passed, said.detail) == (True, "8 slots on --threads 2, 8 slots on --threads 2")
    assert (answers.passed, answers.detail) == (None, "the extra llamacpp is not installed")
    other, _ = check(deployment(session=LlamaCppSession(1)), tmp_path)
    assert other.passed is False
    text = _describe(deployment())
    assert text.startswith("For prompts of 512 tokens and answers of 128. ")
    ports = [each.options.port for each in processes(deployment())]
    assert f"| server-1 | {ports[1]} | 4, 5, 6, 7 | 8 |" in text
    assert "nginx of Compose on port 8000" in text
    alone = _describe(deployment(1))
    assert f"| server-0 | {ports[0]} | any | 8 |" in alone
    assert "nginx" not in alone
    folder = tmp_path / "one"
    folder.mkdir()
    EXPORTER.write(deployment(1), folder)
    assert sorted(path.name for path in folder.iterdir()) == ["compose.yaml", "server-0.sh"]


@pytest.mark.usefixtures("_cores")
@pytest.mark.parametrize(
    ("answers", "passed", "detail"),
    [
        ([128, 128], True, "128 tokens to a prompt of 512"),
        ([127, 128], False, "127 and 128 tokens to a prompt of 512"),
        ([128, 127], False, "128 and 127 tokens to a prompt of 512"),
        ([128, OSError("it is gone")], False, "it is gone"),
    ],
)
def test_every_server_answers_a_request_as_long_as_was_measured(
    answers: list[Any], passed: bool, detail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[tuple[str, ...], tuple[int, ...]]] = []

    @contextmanager
    def running(command: tuple[str, ...], cores: tuple[int, ...]) -> Iterator[SimpleNamespace]:
        started.append((command, cores))
        yield SimpleNamespace(address=f"http://s{len(started)}")

    def answered(url: str, input_tokens: int, output_tokens: int) -> int:
        assert (url, input_tokens, output_tokens) == (f"http://s{len(started)}", 512, 128)
        answer = answers[len(started) - 1]
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    monkeypatch.setattr(LlamaCppSession, "package", SimpleNamespace(is_installed=True))
    monkeypatch.setattr(llama_cpp, "RunningServer", running)
    monkeypatch.setattr(llama_cpp, "answered_tokens", answered)
    EXPORTER.write(deployment(), tmp_path)
    _, served, *rest = check(deployment(), tmp_path)
    assert (served.passed, served.detail) == (passed, detail)
    assert [cores for _, cores in started] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [each.passed for each in rest] == [None] * all(isinstance(answer, int) for answer in answers)


def test_the_tokens_of_an_answer_are_those_that_the_server_counts() -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    class Completions(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, json.loads(content)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"usage": {"completion_tokens": 7, "prompt_tokens": 3}}')

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Completions) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        assert answered_tokens(f"http://127.0.0.1:{server.server_address[1]}", 3, 7) == 7
        server.shutdown()
    assert asked == [("/v1/completions", {"prompt": [1, 1, 1], "max_tokens": 7, "ignore_eos": True})]
    with pytest.raises(URLError, match="must be one of this machine, got http://elsewhere"):
        answered_tokens("http://elsewhere", 1, 1)


def test_two_servers_share_requests_by_what_they_have() -> None:
    text = router(BESIDE)
    assert "least_conn;" in text
    assert "listen 8000;" in text
    assert "proxy_buffering off;" in text
    assert compose([ALONE]).count("network_mode: host") == 1
    assert compose(BESIDE).count("network_mode: host") == 3
    assert 'volumes: ["/m:/m:ro"]' in compose([ALONE])
