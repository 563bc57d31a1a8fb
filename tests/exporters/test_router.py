"""One address for all replicas: what nginx does with the configuration of an export, with real requests."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from autoauto.evaluate.export import deployment
from autoauto.evaluate.open import load_flow
from autoauto.exporters.registry import exporter_named, write_artifact
from autoauto.exporters.serving.router import nginx_configuration
from autoauto.space.knobs import Knobs
from tests.decoders import decoder_folder
from tests.running import wait_until


@contextmanager
def replica(counts: Counter[int]) -> Iterator[int]:
    """A server that counts its requests; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            counts[int(self.connection.getsockname()[1])] += 1
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content[::-1])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def answer(port: int, content: bytes) -> bytes:
    with urlopen(Request(f"http://127.0.0.1:{port}/v1/completions", content)) as response:
        return bytes(response.read())


@pytest.mark.slow
def test_nginx_spreads_requests_and_leaves_out_a_replica_that_does_not_run(tmp_path: Path) -> None:
    program = shutil.which("nginx") or pytest.skip("nginx is not installed")
    counts = Counter[int]()
    with ExitStack() as ends:
        ports = [ends.enter_context(replica(counts)) for _ in range(3)]
        port = free_port()
        path = tmp_path / "nginx.conf"
        path.write_text(nginx_configuration([*ports, free_port()], port))
        nginx = subprocess.Popen([program, "-c", str(path)], stderr=subprocess.DEVNULL)
        ends.callback(nginx.wait)
        ends.callback(nginx.terminate)

        def answers() -> bool:
            try:
                return answer(port, b"abc") == b"cba"
            except (URLError, ConnectionError):
                return False

        wait_until(answers, "nginx answers")
        for number in range(30):
            assert answer(port, b"request %d" % number) == (b"request %d" % number)[::-1]
        assert answer(port, bytes(3 << 20)) == bytes(3 << 20)  # longer than nginx takes by default
    assert set(counts) == set(ports)
    assert min(counts.values()) > 5


@pytest.mark.slow
def test_an_export_of_several_replicas_has_a_router(tmp_path: Path) -> None:
    pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
    yaml: Any = pytest.importorskip("yaml", reason="YAML is read by a package of extra gpu")
    folder = decoder_folder(tmp_path / "small")
    flow = load_flow(folder, "h100_sxm-8", "gpu")

    def written(replicas: int) -> tuple[Path, Any]:
        options: dict[str, Any] = {"engine": "vllm", "tensor_parallel": 2, "input_tokens": 512, "output_tokens": 128}
        knobs = Knobs(1, batch_size=10, replicas=replicas, **options)
        made, target = deployment(flow, str(folder), flow.expect(knobs)), tmp_path / f"export-{replicas}"
        checks = write_artifact(made, "vllm", target, check=True)
        assert [each for each in checks if each.passed is False] == []
        return target, made

    several, made = written(3)
    text = (several / "nginx.conf").read_text()
    assert [f"server 127.0.0.1:{port};" in text for port in (8000, 8001, 8002, 8003)] == [True] * 3 + [False]
    services = yaml.safe_load((several / "compose.yaml").read_text())["services"]
    assert services["router"]["depends_on"] == ["replica-0", "replica-1", "replica-2"]
    assert "port 8080, by nginx" in (several / "README.md").read_text()
    (several / "nginx.conf").write_text(text.replace("server 127.0.0.1:8002;", ""))
    failed = [each.what for each in exporter_named("vllm").check(made, several) if each.passed is False]
    assert failed == ["nginx.conf has every replica"]
    single, _ = written(1)
    assert not (single / "nginx.conf").exists()
    assert "nginx" not in (single / "README.md").read_text()
