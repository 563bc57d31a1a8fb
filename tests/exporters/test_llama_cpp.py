"""Scripts of llama.cpp's server: what they say."""

import json
from pathlib import Path

import pytest

from autoauto.engines.llama_cpp import LlamaServerOptions
from autoauto.exporters.llama_cpp import LlamaServer, compose, read_script, router, script

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
