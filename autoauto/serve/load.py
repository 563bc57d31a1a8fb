"""Load on a server of the Open Inference Protocol, and what it measures: `measure`, `LoadOptions`, `LoadResult`.

A closed loop shows the throughput, Poisson arrivals the latency; it counts from the time at which a request was due, so
that no wait is left out.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, takewhile
from math import prod
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from autoauto.exporters.onnx_stages import made_up
from autoauto.load.arrivals import closed_loop, open_loop
from autoauto.load.refusals import unreached
from autoauto.records.costs.traffic.requests import percentile
from autoauto.records.errors import BadInput
from autoauto.records.layers import Port
from autoauto.records.units import Array
from autoauto.serve.protocol import DATATYPE_OF, DATATYPES
from autoauto.targets.host.samples import read_samples

if TYPE_CHECKING:
    from aiohttp import ClientSession

N_INPUTS = 16
"""How many different requests there are; answers to the same one must agree."""
TOLERANCE = 1e-3
"""The largest difference of answers that agree, relative to the largest value: a sample's position in a micro-batch may
change the order in which a kernel adds."""
WARM_UP_S = 1.0
DEFAULT_CLIENTS = 16
MAX_CLIENTS = 1024
_OK, _REFUSED = 200, (429, 503)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The load.

    Attributes:
        n_clients: of the closed load; None for as many as fill all micro-batches that may be in flight.
        shares: of the closed load's throughput, at which open load is put on.
        inputs: an npz file with samples of the model's inputs; None for made-up ones.
    """

    n_samples: int = 1
    n_clients: int | None = None
    shares: tuple[float, ...] = (0.5, 0.8)
    seconds: float = 10.0
    inputs: str | None = None


@dataclass(slots=True)
class LoadResult:
    """Measurements under one load.

    Attributes:
        latencies_s: of the requests that were answered, each from the time when it was due.
        n_refused: requests that the server refused because of its load (429, 503).
        n_failed: those with another error, or without an answer.
        n_wrong: answers that disagree with another one to the same inputs.
        server_cpu_s: that of the server without the processes that compute; None where it does not say so.
    """

    name: str
    n_samples: int
    seconds: float
    latencies_s: list[float] = field(default_factory=list)
    n_refused: int = 0
    n_failed: int = 0
    n_wrong: int = 0
    client_cpu_s: float = 0.0
    server_cpu_s: float | None = None

    @property
    def samples_per_s(self) -> float:
        """The throughput, measured."""
        return len(self.latencies_s) * self.n_samples / self.seconds

    def percentile_ms(self, percent: float) -> float:
        """The latency in which so many percent of the requests were answered; NaN where none was."""
        return percentile(self.latencies_s, percent) * 1000


class Endpoint:
    """A model on a server."""

    def __init__(self, session: ClientSession, url: str, metadata: Mapping[str, Any], options: LoadOptions) -> None:
        self._session = session
        self._url = f"{url}/infer"
        self.metadata = metadata
        self._metrics_url = f"{url.rpartition('/v2/')[0]}/metrics"
        self._requests = [_request(inputs) for inputs in _inputs(metadata, options)]
        self._answers: dict[int, list[Array]] = {}

    async def send(self, result: LoadResult, number: int, due_s: float) -> None:
        """Send request `number`, and note what comes of it."""
        from aiohttp import ClientError

        body, headers = self._requests[number % N_INPUTS]
        try:
            async with self._session.post(self._url, data=body, headers=headers) as response:
                answer = await response.read()
                status = response.status
                length = response.headers.get("Inference-Header-Content-Length")
        except (ClientError, TimeoutError):
            result.n_failed += 1
            return
        if status in _REFUSED:
            result.n_refused += 1
        elif status != _OK or length is None:
            result.n_failed += 1
        else:
            result.latencies_s.append(perf_counter() - due_s)
            outputs = list(_outputs(answer, int(length)))
            expected = self._answers.setdefault(number % N_INPUTS, outputs)
            result.n_wrong += len(outputs) != len(expected) or not all(map(_is_close, outputs, expected))

    async def server_cpu_s(self) -> float | None:
        """CPU time of the server so far, by its metrics; None where it has none."""
        from aiohttp import ClientError

        try:
            async with self._session.get(self._metrics_url) as response:
                text = await response.text()
        except (ClientError, TimeoutError, ValueError):
            return None
        match = re.search(r"^process_cpu_seconds_total ([0-9.e+-]+)$", text, re.MULTILINE)
        return float(match[1]) if match else None


async def measure(
    url: str,
    options: LoadOptions,
    report: Callable[[LoadResult], None],
    on_start: Callable[[str], None] = lambda _: None,
) -> Mapping[str, Any]:
    """Put closed and then open load on the model at `url`, and report every result as it comes.

    Args:
        on_start: is called once the model has answered, with a line about what begins.

    Returns:
        The metadata of the model.

    Raises:
        BadInput: nothing answers there as a model does, or nothing was answered under load.
    """
    async with _endpoint(url.rstrip("/"), options) as endpoint:
        n_clients = options.n_clients or _filling(endpoint.metadata, options.n_samples)
        n_loads = 1 + len(options.shares)
        clients = f"{n_clients} clients" if n_clients > 1 else "1 client"
        on_start(f"starting {clients}; {n_loads} loads of {options.seconds:g} s each")
        await _closed(endpoint, n_clients, LoadResult("warm-up", options.n_samples, min(WARM_UP_S, options.seconds)))
        closed = LoadResult(f"closed, {n_clients} clients", options.n_samples, options.seconds)
        await _timed(endpoint, _closed(endpoint, n_clients, closed), closed)
        report(closed)
        if not closed.latencies_s:
            raise BadInput(f"{url} must answer some requests, got {closed.n_refused} refused, {closed.n_failed} failed")
        for share in options.shares:
            opened = LoadResult(f"open, {share:.0%} of that", options.n_samples, options.seconds)
            requests_per_s = share * len(closed.latencies_s) / closed.seconds
            await _timed(endpoint, _open(endpoint, requests_per_s, opened), opened)
            report(opened)
        return endpoint.metadata


@asynccontextmanager
async def _endpoint(url: str, options: LoadOptions) -> AsyncIterator[Endpoint]:
    from aiohttp import ClientError, ClientSession, ClientTimeout, InvalidURL, TCPConnector

    connector = TCPConnector(limit=0)
    timeout = ClientTimeout(total=None, sock_connect=10.0)
    async with ClientSession(connector=connector, timeout=timeout) as session:
        try:
            async with session.get(url) as response:
                content = await response.read()
                if response.status != _OK:
                    raise BadInput(
                        f"{url} must be a model, got status {response.status}; try the URL that serve prints"
                    )
                metadata = msgspec.json.decode(content)
            endpoint = Endpoint(session, url, metadata, options)
        except (ClientError, InvalidURL, TimeoutError, msgspec.DecodeError, KeyError, TypeError) as error:
            raise BadInput(f"{url} must be a model of the Open Inference Protocol: {unreached(error)}") from error
        yield endpoint


def _filling(metadata: Mapping[str, Any], n_samples: int) -> int:
    """The number of clients that fill two micro-batches per process, if the server says how large these are."""
    properties = metadata.get("properties", {})
    try:
        n_waiting = 2 * int(properties["n_processes"]) * int(properties["batch_size"])
    except (KeyError, ValueError):
        return DEFAULT_CLIENTS
    return max(min(-(-n_waiting // n_samples), MAX_CLIENTS), 1)


async def _timed(endpoint: Endpoint, load: Awaitable[None], result: LoadResult) -> None:
    server_before_s = await endpoint.server_cpu_s()
    before_s = process_time()
    await load
    result.client_cpu_s = process_time() - before_s
    server_s = await endpoint.server_cpu_s()
    if server_before_s is not None and server_s is not None:
        result.server_cpu_s = server_s - server_before_s


async def _closed(endpoint: Endpoint, n_clients: int, result: LoadResult) -> None:
    start_s = perf_counter()
    numbers = takewhile(lambda _: perf_counter() < start_s + result.seconds, count())
    await closed_loop(partial(endpoint.send, result), n_clients, numbers)
    result.seconds = perf_counter() - start_s


async def _open(endpoint: Endpoint, requests_per_s: float, result: LoadResult) -> None:
    """Send the requests of a Poisson process, and wait for their answers."""
    start_s = perf_counter()
    n_requests = round(requests_per_s * result.seconds) or 1
    await open_loop(partial(endpoint.send, result), requests_per_s, iter(range(n_requests)))
    result.seconds = perf_counter() - start_s


def _inputs(metadata: Mapping[str, Any], options: LoadOptions) -> Iterator[Mapping[str, Array]]:
    """The inputs of every request: given ones in turn, or made-up ones."""
    ports = _ports(metadata, options.n_samples)
    if options.inputs is None:
        for seed in range(N_INPUTS):
            yield made_up(ports, np.random.default_rng(seed))
        return
    axes = {}
    for each in metadata["inputs"]:
        axes[each["name"]] = each["shape"].index(-1) if -1 in each["shape"] else None
    samples = read_samples(options.inputs, metadata["name"], _ports(metadata, 1), axes)
    for number in range(N_INPUTS):
        yield samples.batch(ports, number * options.n_samples)


def _ports(metadata: Mapping[str, Any], n_samples: int) -> list[Port]:
    ports = []
    for each in metadata["inputs"]:
        shape = tuple(n_samples if n < 0 else n for n in each["shape"])  # -1 is the axis of samples
        ports.append(Port(each["name"], shape, DATATYPES[each["datatype"]]))
    return ports


def _request(inputs: Mapping[str, Array]) -> tuple[bytes, dict[str, str]]:
    parts = []
    entries = []
    for name, array in inputs.items():
        parts.append(array.tobytes())
        entries.append(
            {
                "name": name,
                "datatype": DATATYPE_OF[array.dtype.name],
                "shape": array.shape,
                "parameters": {"binary_data_size": array.nbytes},
            }
        )
    head = msgspec.json.encode({"inputs": entries, "parameters": {"binary_data_output": True}})
    headers = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}
    return b"".join([head, *parts]), headers


def _outputs(answer: bytes, length: int) -> Iterator[Array]:
    start = length
    for entry in msgspec.json.decode(answer[:length])["outputs"]:
        dtype = np.dtype(DATATYPES[entry["datatype"]])
        yield np.frombuffer(answer, dtype, prod(entry["shape"]), start)
        start += entry["parameters"]["binary_data_size"]


def _is_close(array: Array, expected: Array) -> bool:
    if np.array_equal(array, expected):
        return True
    if array.shape != expected.shape or array.dtype.kind != "f":
        return False
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    return np.allclose(array, expected, rtol=0.0, atol=TOLERANCE * largest, equal_nan=True)
