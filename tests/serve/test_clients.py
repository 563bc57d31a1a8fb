"""Clients that do not read, that only connect, and bodies that unpack to more than they may, stay within limits."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoauto.http.connections import CHUNK_BYTES, Answers, Connections, note_errors
from autoauto.records.errors import BadInput
from autoauto.serve.protocol import read_request
from tests.serve.conftest import RunningServer, port, request_body, write_folder
from tests.serve.test_server import exchange

web = pytest.importorskip("aiohttp.web")
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def listening(answer: Callable[[Any], Coroutine[Any, Any, Any]], limit: int = 99) -> AsyncIterator[int]:
    """A server of aiohttp with so many connections; its port."""
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    connections = Connections(runner.server)
    connections._limit = limit
    protocol = partial(connections.protocol, lambda server: server())
    listener = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await runner.cleanup()


async def opened(stack: AsyncExitStack, number: int, sent: bytes = b"") -> asyncio.StreamReader:
    """A connection that has sent some bytes, and reads nothing unless it is asked to."""
    reader, writer = await asyncio.open_connection("127.0.0.1", number, limit=1024)
    stack.callback(writer.close)
    writer.write(sent)
    return reader


def test_of_more_connections_than_may_be_those_idle_for_longest_are_closed() -> None:
    async def answer(_: Any) -> Any:
        return web.Response(text="here")

    async def test() -> None:
        async with listening(answer, 3) as number, AsyncExitStack() as stack:
            readers = [await opened(stack, number) for _ in range(8)]
            for reader in readers[:5]:
                assert await reader.read(1) == b""
            assert (await (await opened(stack, number, HEAD)).readline()).startswith(b"HTTP/1.1 200")

    asyncio.run(asyncio.wait_for(test(), 30))


def test_of_answers_that_nobody_reads_the_oldest_are_given_up() -> None:
    """Each may be in memory alone; the last client reads, and has all of its own."""
    n_bytes = 64 * CHUNK_BYTES
    answers, given_up = Answers(n_bytes, 60.0), asyncio.Event()
    n_ended = 0

    async def answer(request: Any) -> Any:
        nonlocal n_ended
        try:
            return await answers.write(request, web.Response(body=bytes(n_bytes)))
        finally:
            n_ended += 1
            if n_ended == 5:
                given_up.set()

    async def test() -> None:
        async with listening(answer) as number, AsyncExitStack() as stack:
            for _ in range(6):
                assert (await (await opened(stack, number, HEAD)).readline()).startswith(b"HTTP/1.1 200")
            await given_up.wait()
            assert [*answers._written.values()] == [n_bytes]
            reader = await opened(stack, number, HEAD)
            await reader.readuntil(b"\r\n\r\n")
            assert len(await reader.readexactly(n_bytes)) == n_bytes

    asyncio.run(asyncio.wait_for(test(), 60))
    assert not answers._written


def test_an_answer_that_is_not_read_in_time_ends_its_connection() -> None:
    answers, ended = Answers(1 << 30, -64.0), asyncio.Event()

    async def answer(request: Any) -> Any:
        response = await answers.write(request, web.Response(body=bytes(64 * CHUNK_BYTES)))
        ended.set()
        return response

    async def test() -> None:
        async with listening(answer) as number, AsyncExitStack() as stack:
            reader = await opened(stack, number, HEAD)
            await ended.wait()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(65 * CHUNK_BYTES)

    asyncio.run(asyncio.wait_for(test(), 30))


def test_what_goes_wrong_in_the_event_loop_is_one_line_a_minute() -> None:
    lines: list[str] = []

    async def test() -> None:
        loop = asyncio.get_running_loop()
        note_errors(loop, lines.append)
        for _ in range(100):
            loop.call_exception_handler({"message": "accept failed", "exception": OSError("no\ndescriptors")})

    asyncio.run(test())
    assert lines == ["accept failed: no descriptors"]


EMPTY = "[" + ",".join(["[]"] * 1000) + "]"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data": EMPTY}, "must have the data of shape"),
        ({"data": "[1,2]", "parameters": '{"a": "' + "x" * 70_000 + '"}'}, "have more than 65536 bytes"),
        ({"data": "[1,2]", "shape": "[" + "1," * 40_000 + "1]"}, "have more than 65536 bytes"),
        ({"data": "[1,2]", "shape": "[300]"}, "a request may hold 200 samples, got 300"),
        ({"data": '["' + '","' * 20_000 + '"]'}, "more than 10000 names and texts"),
    ],
)
def test_json_of_another_size_than_its_shape_makes_no_objects(fields: dict[str, str], message: str) -> None:
    entry = {"name": '"x"', "shape": "[2]", "datatype": '"FP32"'} | fields
    body = '{"inputs": [{' + ",".join(f'"{name}": {value}' for name, value in entry.items()) + "}]}"
    with pytest.raises(BadInput, match=message):
        read_request(body.encode(), None, (port("x", 4, batch_size=4),), (), 200)


def test_a_long_list_is_read_in_parts() -> None:
    values = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    entry = {"name": "x", "shape": [100_000], "datatype": "FP32", "data": values.tolist()}
    body = json.dumps({"inputs": [entry]}, indent=1).encode()
    request = read_request(body, None, (port("x", 1, batch_size=1),), ())
    np.testing.assert_array_equal(request.inputs["x"], values)


@pytest.mark.slow
def test_a_body_that_unpacks_to_more_than_it_may_is_refused(
    start_server: Callable[..., RunningServer], tmp_path: Path
) -> None:
    server = start_server(write_folder(tmp_path / "folder"), "--max-request-mib", "1")
    head = "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: {}\r\nContent-Length: {}\r\n\r\n"

    def sent(body: bytes, encoding: str = "gzip") -> bytes:
        return exchange(server, head.format("/v2/models/lookup/infer", encoding, len(body)).encode() + body, 12)[-3:]

    good = gzip.compress(request_body([1, 2], np.zeros((2, 8), np.float32)))
    assert sent(good) == b"200"
    assert sent(gzip.compress(bytes(1 << 28))) == b"413"
    assert [sent(good[:-9]), sent(b"no gzip"), sent(good, "br")] == [b"400"] * 3
    assert server.stop() == (0, "")
