"""The script that sends the load of a forecast: what it says, and that `autoauto bench` runs it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autoauto.cli.main import build_parser
from autoauto.engines.registry import ENGINES
from autoauto.evaluate.export import deployment
from autoauto.evaluate.open import load_flow
from autoauto.exporters.registry import write_artifact
from autoauto.space.knobs import Knobs
from tests.decoders import decoder_folder
from tests.load.conftest import StandIn, answers

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
pytest.importorskip("yaml", reason="YAML is written by a package of extra gpu")
pytest.importorskip("aiohttp", reason="requests are sent with a package of extra serve")

SERVED = {engine.launcher.to: engine.name for engine in ENGINES.values()}
Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Write the artifact of a small decoder; returns the folder."""

    def write(to: str, replicas: int, batch_size: int = 2, cluster: str = "h100_sxm-8") -> Path:
        model, folder = decoder_folder(tmp_path / "small"), tmp_path / "artifact"
        flow = load_flow(model, cluster, "gpu")
        chosen: dict[str, Any] = {"engine": SERVED[to], "tensor_parallel": 2, "input_tokens": 16, "output_tokens": 4}
        plan = flow.expect(Knobs(1, replicas=replicas, batch_size=batch_size, **chosen))
        write_artifact(deployment(flow, str(model), plan), to, folder)
        return folder

    return write


@pytest.fixture
def server() -> Iterator[StandIn]:
    started = StandIn(answers)
    yield started
    started.stop()


def command_of(folder: Path) -> list[str]:
    words = shlex.split((folder / "check.sh").read_text().replace("\\\n", " "), comments=True)
    return words[words.index("exec") + 2 :]


@pytest.mark.parametrize("to", SERVED)
def test_the_load_is_that_of_the_forecast(to: str, written: Write) -> None:
    folder = written(to, 3)
    args = build_parser("bench").parse_args(command_of(folder))
    assert (args.protocol, args.input_tokens, args.output_tokens) == ("openai", 16, 4)
    assert (args.concurrency, args.requests, args.max_requests, args.warmup) == (6, 60, 60, 0)
    assert "127.0.0.1:8080" in (folder / "check.sh").read_text()  # the router's port
    [expected] = [line for line in (folder / "check.sh").read_text().splitlines() if "# expected" in line]
    assert expected.removeprefix("# expected: ") in (folder / "README.md").read_text()
    assert "check.sh" in (folder / "README.md").read_text()


def test_one_replica_is_asked_itself(written: Write) -> None:
    assert "127.0.0.1:8000" in (written("vllm", 1) / "check.sh").read_text()


def test_replicas_on_several_machines_need_the_address_of_their_router(written: Write) -> None:
    script = written("vllm", 8, cluster="h100_sxm-16") / "check.sh"
    asked = subprocess.run(["sh", script], capture_output=True, text=True, check=False)
    assert asked.returncode != 0
    assert "URL of a router" in asked.stderr


def test_more_clients_than_bench_takes_have_no_script(written: Write) -> None:
    folder = written("vllm", 4, batch_size=4000)
    assert not (folder / "check.sh").exists()
    assert "check.sh" not in (folder / "README.md").read_text()


def test_the_script_measures_a_server(written: Write, server: StandIn) -> None:
    folder = written("vllm", 2)
    variables = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    measured = subprocess.run(
        ["sh", folder / "check.sh", server.url], capture_output=True, text=True, env=variables, check=False
    )
    assert measured.returncode == 0, measured.stderr
    assert len(server.bodies) == 40
    assert server.most_in_flight <= 4
    assert all(body["max_tokens"] == 4 and len(body["prompt"]) == 16 for body in server.bodies)
