"""A served model: every request is answered once with its own outputs, and bad ones harm no other."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import run
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

from autoauto.serve import server as server_module
from autoauto.serve.artifact import Artifact
from autoauto.serve.batcher import NotServing
from autoauto.serve.server import Server, ServerOptions
from tests.running import PATIENCE_S, is_running, wait_until
from tests.serve.conftest import (
    ROOT,
    WIDTH,
    RunningServer,
    expected,
    need_libraries,
    request,
    request_body,
    write_folder,
)

pytestmark = pytest.mark.slow
Start = Callable[..., RunningServer]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Two pipelines of three stages, which serve several tests, and end well."""
    need_libraries()
    folder = write_folder(tmp_path_factory.mktemp("serve") / "folder", cuts=(0, 1, 3, 4), replicas=2)
    with RunningServer(folder, "--max-request-mib", "1") as running:
        yield running
        assert running.stop() == (0, "")


CLIENT = """
import sys
import numpy as np
import tritonclient.http as http

sys.path.insert(0, sys.argv[2])
from tests.serve.conftest import WIDTH, expected

client = http.InferenceServerClient(sys.argv[1])
assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("lookup", "1")
assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
metadata = client.get_model_metadata("lookup")
assert [(port["name"], port["datatype"], port["shape"]) for port in metadata["inputs"]] == [
    ("ids", "INT64", [-1]), ("x", "FP32", [-1, WIDTH])]

ids = np.arange(7) % 10
x = np.random.default_rng(0).standard_normal((7, WIDTH)).astype(np.float32)
for binary in (True, False):
    inputs = [http.InferInput("ids", ids.shape, "INT64"), http.InferInput("x", x.shape, "FP32")]
    inputs[0].set_data_from_numpy(ids, binary_data=binary)
    inputs[1].set_data_from_numpy(x, binary_data=binary)
    outputs = [http.InferRequestedOutput("y", binary_data=binary)]
    answers = [client.infer("lookup", inputs), client.infer("lookup", inputs, outputs=outputs, request_id="7")]
    answers.append(client.infer("lookup", inputs, request_compression_algorithm="gzip"))
    answers += [waiting.get_result() for waiting in [client.async_infer("lookup", inputs) for _ in range(4)]]
    for answer in answers:
        np.testing.assert_allclose(answer.as_numpy("y"), expected(ids, x), rtol=1e-5)
    assert answers[1].get_response()["id"] == "7"
try:
    client.infer("other", inputs)
except http.InferenceServerException as error:
    assert "the model here is lookup" in str(error), error
print("as it is")
"""


def test_the_public_client_works_as_it_is(server: RunningServer) -> None:
    pytest.importorskip("tritonclient.http")
    command = [sys.executable, "-c", CLIENT, server.base.removeprefix("http://"), str(ROOT)]
    done = run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("as it is\n", 0), done.stderr


def answers_of(server: RunningServer, client: int, n_requests: int) -> int:
    """How many requests of one client, of 1 to 9 samples each, had the right answer."""
    rng = np.random.default_rng(client)
    n_right = 0
    for _ in range(n_requests):
        ids = rng.integers(0, 10, rng.integers(1, 10))
        x = rng.standard_normal((len(ids), WIDTH)).astype(np.float32)
        status, content = server.infer(ids.tolist(), x)
        assert status == 200, content
        outputs = np.array(content["outputs"][0]["data"]).reshape(x.shape)
        n_right += np.allclose(outputs, expected(ids, x), rtol=1e-5, atol=1e-6)
    return n_right


def exchange(server: RunningServer, sent: bytes, n_bytes: int = 0) -> bytes:
    """Send bytes on a connection of their own, and read the first ones of the answer before it is closed."""
    host, _, number = server.base.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(number))) as connection:
        connection.sendall(sent)
        return connection.recv(n_bytes) if n_bytes else b""


def head(n_bytes: int) -> bytes:
    return f"POST /v2/models/lookup/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {n_bytes}\r\n\r\n".encode()


def misbehave(server: RunningServer) -> set[bytes]:
    """Ask for ids that the model refuses, send garbage and too much, leave; the statuses of what was answered."""
    for garbage in (b"nonsense", b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", b"\x00" * 70_000):
        exchange(server, garbage)
    body = request_body([1], np.zeros((1, WIDTH), np.float32))
    exchange(server, head(len(body)) + body)
    refused = request_body([3, 99], np.zeros((2, WIDTH), np.float32))
    answers = [exchange(server, head(len(refused)) + refused, 12), exchange(server, head(2_000_000), 12)]
    return {answer[-3:] for answer in answers}


def test_eight_clients_have_their_own_answers_while_others_misbehave(server: RunningServer) -> None:
    """Twenty more stop in the middle of a body; together they sent as much as all bodies may have, and more."""
    host, _, number = server.base.removeprefix("http://").partition(":")
    with ExitStack() as stack, ThreadPoolExecutor(9) as pool:
        for _ in range(20):
            stalled = stack.enter_context(socket.create_connection((host, int(number))))
            stalled.sendall(head(900_000) + b"x" * 800_000)
        good = [pool.submit(answers_of, server, client, 25) for client in range(8)]
        bad = [pool.submit(misbehave, server) for _ in range(5)]
        assert [each.result() for each in good] == [25] * 8
        assert [each.result() for each in bad] == [{b"400", b"413"}] * 5
    assert "autoauto_restarts_total 0.0" in server.get("/metrics")[1]


def test_requests_without_a_body_are_refused_however_many(server: RunningServer) -> None:
    """All of them share one stream of aiohttp, whose second reader would never come to its end."""
    assert [request(f"{server.url}/infer", b"")[0] for _ in range(3)] == [400, 400, 400]


def test_a_page_whose_name_was_made_to_lead_here_is_refused(server: RunningServer) -> None:
    for host, answer in (("rebound.example", b"400"), ("localhost:1", b"200"), ("[::1]", b"200")):
        asked = f"GET /v2/health/live HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        assert exchange(server, asked, 12)[-3:] == answer


def test_an_output_whose_lengths_depend_on_data_has_those_of_its_request(start_server: Start, tmp_path: Path) -> None:
    program = "Relu x > a; NonZero a > y"
    server = start_server(write_folder(tmp_path / "folder", (0, 1, 2), 2, program=program, inputs={"x": ["n", 4]}))

    def infer(*rows: list[int]) -> Any:
        given = {"name": "x", "shape": [len(rows), 4], "datatype": "FP32", "data": rows}
        return request(f"{server.url}/infer", json.dumps({"inputs": [given]}).encode())

    for rows, n in (([[0, 1, 0, 1], [2, 0, 0, 0]], 3), ([[0] * 4] * 2, 0), ([[1] * 4] * 2, 8)):
        status, content = infer(*rows)
        assert (status, content["outputs"][0]["shape"]) == (200, [2, n])
        assert content["outputs"][0]["data"] == np.array(np.nonzero(np.array(rows))).ravel().tolist()
    status, content = infer([1] * 4)
    assert (status, content["error"].partition(",")[0]) == (400, "a request must hold 2 samples")
    assert server.stop() == (0, "")


def test_a_killed_stage_gives_503_and_recovery(start_server: Start, tmp_path: Path) -> None:
    server = start_server(write_folder(tmp_path / "folder"))
    assert server.infer([1, 2])[0] == 200
    n_descriptors = len(server.descriptors())
    for stage in (1, 0):
        pid = sorted(server.children())[stage]
        os.kill(pid, signal.SIGSTOP)  # so that the request is in flight when the stage is killed
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(server.infer, [1, 2])
            wait_until(lambda: "in_flight_micro_batches 1.0" in server.get("/metrics")[1], "the request in flight")
            os.kill(pid, signal.SIGKILL)
            status, content = waiting.result()
        assert status == 503
        assert (
            "of pipeline 0 ended without a message, exit code -9; the model is being loaded again" in content["error"]
        )
        assert server.get("/v2/health/live")[0] == 200
        wait_until(lambda: server.get("/v2/health/ready")[0] == 200, "recovery")
        assert server.infer([1, 2])[0] == 200
    wait_until(lambda: len(server.descriptors()) <= n_descriptors, "as few descriptors as before")
    code, error = server.stop()
    assert (code, error.count("the processes are started again\n")) == (0, 2)


def test_processes_that_end_again_and_again_end_the_server(start_server: Start, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder", cuts=(0, 4))
    server = start_server(folder)
    for path in folder.glob("*.onnx"):
        path.write_bytes(b"no model")
    os.kill(server.children()[0], signal.SIGKILL)
    _, error = server.process.communicate(timeout=PATIENCE_S)
    assert server.process.returncode == 2
    assert "autoauto: a process failed: " in error.splitlines()[-1]


def test_a_full_queue_gives_429_and_the_end_answers_what_was_taken(start_server: Start, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder", cuts=(0, 4), batch_size=1)
    server = start_server(folder, "--max-queue", "2")
    [stage] = server.children()
    os.kill(stage, signal.SIGSTOP)

    def is_full() -> bool:
        text = server.get("/metrics")[1]
        return "autoauto_queued_samples 2.0" in text and "autoauto_in_flight_micro_batches 2.0" in text

    with ThreadPoolExecutor(4) as pool:
        taken = [pool.submit(server.infer, [number]) for number in range(4)]
        wait_until(is_full, "a full queue")
        status, content = server.infer([5])
        assert (status, content["error"]) == (429, "at most 2 samples may wait, 2 do; try again later")
        assert server.infer([1, 2, 3])[0] == 400
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.get("/v2/health/ready")[0] == 503, "the end to begin")
        assert server.infer([5]) == (503, {"error": "the server ends; try another one"})
        os.kill(stage, signal.SIGCONT)
        assert [each.result()[0] for each in taken] == [200] * 4
    assert server.process.communicate(timeout=PATIENCE_S) == ("", "autoauto: starting 1 process of lookup\n")
    assert (server.process.returncode, is_running(stage)) == (0, False)


def test_one_process_without_a_thread_between_refuses_is_lost_and_comes_again(
    start_server: Start, tmp_path: Path
) -> None:
    server = start_server(write_folder(tmp_path / "folder", cuts=(0, 4), batch_size=2))
    rng = np.random.default_rng(3)

    def check_right_answers() -> None:
        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(lambda client: answers_of(server, client, 20), range(4))) == 80

    check_right_answers()
    with ThreadPoolExecutor(6) as pool:
        taken = [pool.submit(server.infer, [number % 3 * 9]) for number in range(12)]  # 18 is not in the table
        assert [each.result()[0] for each in taken] == [200, 200, 400] * 4
    for _ in range(2):
        [stage] = server.children()
        os.kill(stage, signal.SIGKILL)
        wait_until(partial(has_another, server, stage), "another process")
        wait_until(lambda: server.infer([int(rng.integers(10))])[0] == 200, "answers again")
    check_right_answers()
    _, error = server.stop()
    assert error.count("the processes are started again") == 2


def test_large_tensors_are_copied_by_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "folder", cuts=(0, 4))
    exchanges = []
    for limit in (0, 1 << 20):
        monkeypatch.setattr("autoauto.serve.engine.MAX_DIRECT_BYTES", limit)
        exchanges.append(asyncio.run(served_directly(Artifact(folder))))
    assert exchanges == [False, True]


def has_another(server: RunningServer, stage: int) -> bool:
    return server.children() not in ([], [stage])


async def served_directly(artifact: Artifact) -> bool:
    """Whether the event loop of a server exchanges micro-batches itself; one is computed."""
    need_libraries()
    server, is_serving = Server(artifact, ServerOptions(), pytest.fail), asyncio.Event()
    running = asyncio.create_task(server.run(is_serving.set))
    await is_serving.wait()
    inputs = {"ids": np.array([1]), "x": np.zeros((1, WIDTH), np.float32)}
    outputs = await server._computed(inputs, 1)
    np.testing.assert_allclose(outputs["y"], expected(inputs["ids"], inputs["x"]))
    is_direct = server._engine._exchange is not None
    server.stop()
    await running
    return is_direct


def test_the_root_says_what_is_served(server: RunningServer) -> None:
    status, facts = server.get("/")
    assert (status, facts["model"], facts["ready"]) == (200, "lookup", True)
    assert server.get(facts["links"]["infer"].removeprefix(server.base).removesuffix("/infer"))[0] == 200
    assert {port["name"] for port in facts["inputs"]} == {"ids", "x"}
    page = server_page(server)
    assert page.startswith("<!doctype html>")
    assert "with inputs ids, INT64 [" in page
    assert f"POST {server.url}/infer" in page


def server_page(server: RunningServer) -> str:
    with urlopen(Request(f"{server.base}/", headers={"Accept": "text/html,*/*"})) as answer:
        assert answer.headers["Content-Type"].startswith("text/html")
        return str(answer.read().decode())


def test_a_second_signal_ends_at_once_and_leaves_no_process(start_server: Start, tmp_path: Path) -> None:
    server = start_server(write_folder(tmp_path / "folder"))
    children = server.children()
    os.kill(children[0], signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.infer, [1])
        wait_until(lambda: "in_flight_micro_batches 1.0" in server.get("/metrics")[1], "the request in flight")
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: server.get("/v2/health/ready")[0] == 503, "the end to begin")
        server.process.send_signal(signal.SIGINT)
        assert isinstance(waiting.exception(), ConnectionError)
    server.process.communicate(timeout=PATIENCE_S)
    assert server.process.returncode == 130
    wait_until(lambda: not any(map(is_running, children)), "the end of all stages")


def test_processes_that_hang_are_killed_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_libraries()
    artifact = Artifact(write_folder(tmp_path / "folder", cuts=(0, 4)))
    lines: list[str] = []
    inputs = {"ids": np.array([1]), "x": np.zeros((1, WIDTH), np.float32)}

    async def test() -> None:
        served, is_ready = Server(artifact, ServerOptions(), lines.append), asyncio.Event()
        running = asyncio.create_task(served.run(is_ready.set))
        await is_ready.wait()
        await served._computed(inputs, 1)
        os.kill(served._engine._pids[0], signal.SIGSTOP)
        monkeypatch.setattr(server_module, "MIN_STALL_S", 0.0)
        with pytest.raises(NotServing, match="exit code -9; the model is being loaded again"):
            await served._computed(inputs, 1)
        monkeypatch.undo()
        await served._until(lambda: served._is_ready)
        outputs = await served._computed(inputs, 1)
        np.testing.assert_allclose(outputs["y"], expected(**inputs), rtol=1e-5)
        served.stop()
        await running

    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))
    assert [line.partition(" gave")[0] for line in lines if "gave" in line] == ["the processes"]
