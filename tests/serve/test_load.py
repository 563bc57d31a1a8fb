"""What counts of the answers under load, by a server of this process that gives those that it is given."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from autoauto.records.errors import BadInput
from autoauto.serve.load import Endpoint, LoadOptions, LoadResult, _endpoint, _filling, _timed, measure

pytest.importorskip("aiohttp")
METADATA: dict[str, Any] = {
    "name": "m",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
    "properties": {"n_processes": "3", "batch_size": "4"},
}


def answer(values: Sequence[float], shape: Sequence[int] = (1, 2)) -> tuple[int, bytes, int]:
    """A status, a content and the length of its head."""
    data = np.array(values, np.float32).tobytes()
    entry = {"name": "y", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"outputs": [entry]}).encode()
    return 200, head + data, len(head)


class Model(ThreadingHTTPServer):
    """Gives `answers` one after the other, the last again and again. `bodies` are those of the requests."""

    def __init__(self, answers: Sequence[tuple[int, bytes, int]], cpu_s: Sequence[float]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.cpu_s, self.bodies = list(answers), list(cpu_s), list[bytes]()


class Handler(BaseHTTPRequestHandler):
    """Of `Model`."""

    server: Model
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/v2/models/m":
            self._write(200, json.dumps(METADATA).encode())
        elif self.path == "/metrics" and self.server.cpu_s:
            self._write(200, f"other 1\nprocess_cpu_seconds_total {self.server.cpu_s.pop(0)}\n".encode())
        else:
            self._write(404, b"")

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        answers = self.server.answers
        status, content, length = answers.pop(0) if len(answers) > 1 else answers[0]
        self._write(status, content, length)

    def _write(self, status: int, content: bytes, length: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if length:
            self.send_header("Inference-Header-Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def served(*answers: tuple[int, bytes, int], cpu_s: Sequence[float] = ()) -> Iterator[tuple[Model, str]]:
    with Model(answers, cpu_s) as model:
        threading.Thread(target=model.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield model, f"http://127.0.0.1:{model.server_address[1]}/v2/models/m"
        model.shutdown()


def sent(url: str, numbers: Sequence[int], delay_s: float = 0.0) -> LoadResult:
    """What came of requests of these numbers, one after the other; each was due some time ago."""
    result = LoadResult("load", 1, 1.0)

    async def send() -> None:
        async with _endpoint(url, LoadOptions()) as endpoint:
            for number in numbers:
                await endpoint.send(result, number, perf_counter() - delay_s)

    asyncio.run(send())
    return result


def test_every_answer_counts_once_as_what_it_is() -> None:
    failed = [(500, b"", 0), (400, b"", 0), (200, b"no header", 0)]
    with served(answer([1, 2]), (429, b"", 0), (503, b"", 0), *failed, answer([1, 2])) as (model, url):
        result = sent(url, range(8), delay_s=5.0)
        assert len(model.bodies) == 8
    assert (result.n_refused, result.n_failed, result.n_wrong) == (2, 3, 0)
    assert len(result.latencies_s) == 3
    assert all(5.0 <= latency_s < 60.0 for latency_s in result.latencies_s)  # from the time when it was due


@pytest.mark.parametrize(
    ("other", "n_wrong"),
    [
        (answer([1, 2000]), 0),
        (answer([1, 2001]), 0),  # by less than a thousandth of the largest value
        (answer([1, 2003]), 1),
        (answer([1.5, 2000]), 0),
        (answer([float("nan"), 2000]), 1),
        (answer([1, 2000, 0], (1, 3)), 1),
    ],
)
def test_answers_to_the_same_inputs_must_agree(other: tuple[int, bytes, int], n_wrong: int) -> None:
    """There are 16 different requests, so the 17th is the first again; the second may have another answer."""
    with served(answer([1, 2000]), answer([5, 6]), other) as (model, url):
        assert sent(url, [0, 1, 16]).n_wrong == n_wrong
        assert model.bodies[0] == model.bodies[2] != model.bodies[1]


def test_a_server_that_is_away_fails_requests() -> None:
    result = LoadResult("load", 1, 1.0)

    async def send() -> None:
        with served(answer([1, 2])) as (_, url):
            async with _endpoint(url, LoadOptions()) as endpoint:
                await endpoint.send(result, 0, perf_counter())
                endpoint._url = "http://127.0.0.1:1/v2/models/m/infer"
                await endpoint.send(result, 1, perf_counter())

    asyncio.run(send())
    assert (len(result.latencies_s), result.n_failed, result.n_refused) == (1, 1, 0)


@pytest.mark.parametrize(("cpu_s", "expected"), [((1.5, 4.0), 2.5), ((1.5,), None), ((), None)])
def test_the_cpu_time_of_the_server_is_what_it_took_under_load(
    cpu_s: tuple[float, ...], expected: float | None
) -> None:
    result = LoadResult("load", 1, 1.0)

    async def load(endpoint: Endpoint) -> None:
        await endpoint.send(result, 0, perf_counter())

    async def timed() -> None:
        async with _endpoint(url, LoadOptions()) as endpoint:
            await _timed(endpoint, load(endpoint), result)

    with served(answer([1, 2]), cpu_s=cpu_s) as (_, url):
        asyncio.run(timed())
    assert result.server_cpu_s == expected
    assert result.client_cpu_s > 0


def test_a_load_is_closed_and_then_open_at_shares_of_its_rate() -> None:
    results: list[LoadResult] = []
    lines: list[str] = []
    options = LoadOptions(n_samples=2, shares=(0.5, 1.0), seconds=0.2)
    with served(answer([1, 2])) as (model, url):
        metadata = asyncio.run(measure(f"{url}/", options, results.append, lines.append))
        assert {len(body.partition(b"true}}")[2]) for body in model.bodies} == {2 * 3 * 4}  # two samples of 3 floats
    assert metadata == METADATA
    # Two micro-batches of 4 in each of 3 processes are 24 samples, of which a client sends 2.
    assert lines == ["starting 12 clients; 3 loads of 0.2 s each"]
    closed, half, whole = results
    assert [each.name for each in results] == ["closed, 12 clients", "open, 50% of that", "open, 100% of that"]
    per_s = len(closed.latencies_s) / closed.seconds
    assert closed.samples_per_s == pytest.approx(2 * per_s)
    assert [len(each.latencies_s) for each in (half, whole)] == [round(0.5 * per_s * 0.2), round(per_s * 0.2)]
    assert all((each.n_failed, each.n_refused, each.n_wrong) == (0, 0, 0) for each in results)
    assert closed.percentile_ms(0) == pytest.approx(1000 * min(closed.latencies_s))


@pytest.mark.parametrize(
    ("n_processes", "batch_size", "n_samples", "n_clients"),
    [("1", "8", 1, 16), ("1", "8", 5, 4), ("2", "1", 100, 1), ("100", "100", 1, 1024), ("x", "1", 1, 16)],
)
def test_clients_fill_two_micro_batches_a_process(
    n_processes: str, batch_size: str, n_samples: int, n_clients: int
) -> None:
    properties = {"n_processes": n_processes, "batch_size": batch_size}
    assert _filling({"properties": properties}, n_samples) == n_clients
    assert _filling({}, n_samples) == 16


@pytest.mark.parametrize(("path", "message"), [("/other", "got status 404"), ("", "must answer some requests, got")])
def test_what_answers_no_request_is_refused(path: str, message: str, record: Callable[[LoadResult], None]) -> None:
    with served((503, b"", 0)) as (_, url), pytest.raises(BadInput, match=message):
        asyncio.run(measure(f"{url}{path}", LoadOptions(n_clients=1, seconds=0.05), record))


@pytest.fixture
def record() -> Callable[[LoadResult], None]:
    """A function that notes a load that was refused as a whole."""

    def check(result: LoadResult) -> None:
        assert result.latencies_s == []
        assert result.n_refused > 0
        assert result.n_failed == 0

    return check


def test_given_samples_are_sent_in_turn(tmp_path: Path) -> None:
    """Three samples of three floats: requests of two have the first and second, the third and first, and so on."""
    samples = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.savez(tmp_path / "samples.npz", x=samples)
    options = LoadOptions(n_samples=2, inputs=str(tmp_path / "samples.npz"))

    async def send(url: str) -> None:
        async with _endpoint(url, options) as endpoint:
            for number in range(4):
                await endpoint.send(LoadResult("load", 2, 1.0), number, perf_counter())

    with served(answer([1, 2])) as (model, url):
        asyncio.run(send(url))
        sent_values = [np.frombuffer(body[-24:], np.float32).reshape(2, 3).tolist() for body in model.bodies]
    rows = samples.tolist()
    assert sent_values == [[rows[0], rows[1]], [rows[2], rows[0]], [rows[1], rows[2]], [rows[0], rows[1]]]


@pytest.mark.parametrize(("seconds", "warm_up_s"), [(0.5, 0.5), (1.0, 1.0), (10.0, 1.0)])
def test_a_warm_up_is_as_long_as_a_load_and_a_second_at_most(
    seconds: float, warm_up_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is reported. Of 20 answers in the closed load, half a share is due at half of its rate."""
    loads: list[tuple[str, float]] = []
    rates: list[float] = []

    async def closed(endpoint: Endpoint, n_clients: int, result: LoadResult) -> None:
        loads.append((result.name, result.seconds))
        result.latencies_s = [0.1] * 20

    async def opened(endpoint: Endpoint, requests_per_s: float, result: LoadResult) -> None:
        loads.append((result.name, result.seconds))
        rates.append(requests_per_s)

    monkeypatch.setattr("autoauto.serve.load._closed", closed)
    monkeypatch.setattr("autoauto.serve.load._open", opened)
    lines: list[str] = []
    results: list[LoadResult] = []
    with served(answer([1, 2])) as (_, url):
        options = LoadOptions(n_clients=1, shares=(0.5,), seconds=seconds)
        asyncio.run(measure(url, options, results.append, lines.append))
    assert lines == [f"starting 1 client; 2 loads of {seconds:g} s each"]
    closed_name = "closed, 1 clients"
    assert loads == [("warm-up", warm_up_s), (closed_name, seconds), ("open, 50% of that", seconds)]
    assert [each.name for each in results] == [closed_name, "open, 50% of that"]
    assert rates == [0.5 * 20 / seconds]


@pytest.mark.parametrize("answers", ["nothing listens", "no metrics"])
def test_a_server_that_does_not_say_its_cpu_time_has_none(answers: str) -> None:
    async def cpu_s(url: str, metrics_url: str | None) -> float | None:
        async with _endpoint(url, LoadOptions()) as endpoint:
            if metrics_url is not None:
                endpoint._metrics_url = metrics_url
            return await endpoint.server_cpu_s()

    with served(answer([1, 2])) as (_, url):
        closed = "http://127.0.0.1:1/metrics" if answers == "nothing listens" else None
        assert asyncio.run(cpu_s(url, closed)) is None


def test_what_is_no_model_says_what_was_wanted() -> None:
    with pytest.raises(BadInput, match=r"http://127\.0\.0\.1:1/v2/models/m must be a model of the Open Inference"):
        asyncio.run(measure("http://127.0.0.1:1/v2/models/m", LoadOptions(), lambda _: None))
