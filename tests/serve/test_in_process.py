"""The server in this process, with pipelines of this process: every path and every error that a client may see."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import struct
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, cast

import pytest

from autoauto.records.errors import WorkerLost
from autoauto.serve.artifact import Artifact
from autoauto.serve.server import ServerOptions, serve
from tests.serve.test_engine import DIES, NEGATIVE, Served

aiohttp = pytest.importorskip("aiohttp")
pytest.importorskip("prometheus_client")


class Answer(NamedTuple):
    """Of a request; the content is read where it is JSON."""

    status: int
    content: Any
    headers: Any


class Client:
    """Requests to a server; `lines` are those that it logged."""

    def __init__(self, session: Any, url: str, lines: list[str]) -> None:
        self._session, self._url, self.lines = session, url, lines

    async def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        async with self._session.request(method, f"{self._url}{path}", data=body, headers=headers) as response:
            content = await response.read()
            is_json = response.content_type == "application/json"
            return Answer(response.status, json.loads(content) if is_json else content.decode(), response.headers)

    async def infer(self, *values: float) -> Answer:
        tensor = {"name": "x", "shape": [len(values)], "datatype": "FP32", "data": list(values)}
        return await self.ask("POST", "/v2/models/m/infer", json.dumps({"inputs": [tensor]}).encode())


Scenario = Callable[[Client], Awaitable[None]]


@pytest.fixture(autouse=True)
def _thresholds() -> Iterator[None]:
    """A server collects garbage more often."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def play(scenario: Scenario, served: Served) -> list[str]:
    """Serve until the scenario is over and a signal has come; the lines that were logged."""
    lines: list[str] = []

    async def run() -> None:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        options = ServerOptions(port=0, max_delay_s=0.0)
        server = asyncio.create_task(serve(cast("Artifact", served), options, ready.set_result, lines.append))
        async with aiohttp.ClientSession() as session:
            url = await asyncio.wait_for(ready, 30)
            await asyncio.wait_for(scenario(Client(session, url, lines)), 30)
        if not server.done():
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(server, 30)

    asyncio.run(run())
    return lines


def served() -> Served:
    return Served(None, [], False, [])


def test_every_path_says_what_is_served() -> None:
    async def scenario(client: Client) -> None:
        for path in ("/v2/models/m", "/v2/models/m/versions/1"):
            model = await client.ask("GET", path)
            assert (model.status, model.content["name"], model.content["inputs"]) == (
                200,
                "m",
                [{"name": "x", "datatype": "FP32", "shape": [-1]}],
            )
            assert (await client.ask("GET", f"{path}/ready")).content == {"name": "m", "ready": True}
        assert (await client.ask("GET", "/v2/health/live")).content == {"live": True}
        assert (await client.ask("GET", "/v2/health/ready")).content == {"name": "m", "ready": True}
        assert (await client.ask("GET", "/v2")).content["extensions"] == ["binary_tensor_data"]
        assert (await client.ask("GET", "/")).status == 200

    assert play(scenario, served()) == ["starting 1 process of m"]


def test_requests_are_answered_or_refused_as_the_protocol_has_it_and_counted() -> None:
    async def scenario(client: Client) -> None:
        answer = await client.infer(1, 2)
        assert (answer.status, answer.content["model_name"]) == (200, "m")
        [output] = answer.content["outputs"]
        assert (output["name"], output["shape"], output["data"]) == ("y", [2], [2.0, 4.0])
        longer = await client.infer(1, 2, 3)  # more than a micro-batch
        assert longer.content["outputs"][0]["data"] == [2.0, 4.0, 6.0]
        refused = await client.infer(NEGATIVE, 2)
        assert (refused.status, refused.headers.get("Retry-After")) == (400, None)
        assert "index -1" in refused.content["error"]
        assert (await client.ask("POST", "/v2/models/m/infer", b"{")).status == 400
        for method, path, status in (
            ("POST", "/v2/models/other/infer", 404),
            ("GET", "/v2/models/other", 404),
            ("GET", "/v2/models/m/infer", 405),
            ("GET", "/nothing", 404),
        ):
            error = await client.ask(method, path, b"{}" if method == "POST" else None)
            assert (error.status, list(error.content)) == (status, ["error"])
        host = await client.ask("GET", "/v2", Host="elsewhere.example")
        assert (host.status, host.content["error"][:15]) == (400, "the Host header")
        metrics = (await client.ask("GET", "/metrics")).content.splitlines()
        for line in (
            'autoauto_requests_total{code="200"} 2.0',
            'autoauto_requests_total{code="400"} 2.0',
            'autoauto_requests_total{code="404"} 1.0',
            "autoauto_request_seconds_count 2.0",
            "autoauto_ready 1.0",
            "autoauto_plan_samples_per_second 10.0",
            "autoauto_queued_samples 0.0",
            "autoauto_restarts_total 0.0",
        ):
            assert line in metrics

    play(scenario, served())


def test_lost_processes_are_503_to_try_again_and_come_back() -> None:
    async def scenario(client: Client) -> None:
        lost = await client.infer(DIES)
        assert (lost.status, lost.headers["Retry-After"]) == (503, "1")
        assert lost.content["error"].startswith("a process of stage 1 died; the model is being loaded again")
        while (await client.ask("GET", "/v2/health/ready")).status == 503:
            pass
        assert (await client.infer(1)).content["outputs"][0]["data"] == [2.0]
        assert client.lines[-1] == "a process of stage 1 died; the processes are started again"

    play(scenario, served())


def test_processes_that_end_again_and_again_end_the_server() -> None:
    async def scenario(client: Client) -> None:
        for _ in range(3):
            assert (await client.infer(DIES)).status == 503
            while client.lines[-1].startswith("a process") and await is_loading(client):
                pass

    with pytest.raises(WorkerLost, match="a process failed: a process of"):
        play(scenario, served())


async def is_loading(client: Client) -> bool:
    """False once it is ready, or away."""
    try:
        return (await client.ask("GET", "/v2/health/ready")).status == 503
    except aiohttp.ClientError:
        return False


def test_an_error_of_the_server_is_one_answer_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a mistake")

    async def scenario(client: Client) -> None:
        monkeypatch.setattr("autoauto.serve.server.write_response", fail)
        failed = await client.infer(1)
        assert (failed.status, failed.content) == (500, {"error": "the server failed; its log has the reason"})
        assert client.lines[-1] == "POST /v2/models/m/infer: RuntimeError('a mistake')"
        assert 'autoauto_requests_total{code="500"} 1.0' in (await client.ask("GET", "/metrics")).content

    play(scenario, served())


def test_binary_outputs_follow_the_object() -> None:
    async def scenario(client: Client) -> None:
        tensor = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 16]}
        body = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
        answer = await client.ask("POST", "/v2/models/m/infer", json.dumps(body).encode(), Accept="*/*")
        length = int(answer.headers["Inference-Header-Content-Length"])
        assert answer.headers["Content-Type"] == "application/octet-stream"
        content = answer.content.encode()
        assert json.loads(content[:length])["outputs"][0]["parameters"] == {"binary_data_size": 8}
        assert struct.unpack("<2f", content[length:]) == (2.0, 32.0)

    play(scenario, served())


def test_as_many_processes_as_all_pipelines_have_are_said_to_start() -> None:
    """Two pipelines of three processes."""

    async def scenario(client: Client) -> None:
        assert (await client.infer(1)).status == 200

    several = served()
    several.model = replace(several.model, n_pipelines=2, n_processes=3)
    assert play(scenario, several) == ["starting 6 processes of m"]
