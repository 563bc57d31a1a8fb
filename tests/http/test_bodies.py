"""Bodies of requests within limits of bytes and of time; they arrive in parts when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from autoauto.http.bodies import Bodies, LargeRequest, SlowRequest
from autoauto.records.errors import BadInput

web = pytest.importorskip("aiohttp.web")


class Arriving:
    """A request whose body comes from a queue; b"" is its end."""

    def __init__(self, content_length: int | None = None) -> None:
        self.content_length, self.content = content_length, self
        self.headers: dict[str, str] = {}
        self.body_exists = True
        self.parts: asyncio.Queue[bytes | Exception] = asyncio.Queue()

    async def iter_chunks(self) -> AsyncIterator[tuple[bytes, bool]]:
        while part := await self.parts.get():
            if isinstance(part, Exception):
                raise part
            yield part, False

    def send(self, *parts: bytes | Exception) -> Arriving:
        for part in parts:
            self.parts.put_nowait(part)
        return self


async def read(bodies: Bodies, request: Arriving) -> bytes:
    async with bodies.read(request) as body:  # type: ignore[arg-type]
        return bytes(body)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_body_is_its_parts() -> None:
    assert asyncio.run(read(Bodies(9, 9, 60.0), Arriving().send(b"abc", b"de", b""))) == b"abcde"


@pytest.mark.parametrize("request_", [Arriving(10), Arriving(None)])
def test_a_body_with_too_many_bytes_is_refused(request_: Arriving) -> None:
    async def test() -> None:
        with pytest.raises(LargeRequest, match="a body may have 9 bytes"):
            await read(Bodies(9, 99, 60.0), request_.send(b"12345", b"67890", b""))

    run(test())


def test_a_body_that_does_not_come_in_time_is_refused() -> None:
    async def test() -> None:
        with pytest.raises(SlowRequest, match=r"within 0.001 s, .*; 3 bytes did"):
            await read(Bodies(9, 9, 0.001), Arriving().send(b"abc"))

    run(test())


def test_a_body_that_breaks_off_is_bad_input() -> None:
    async def test() -> None:
        for error in (web.RequestPayloadError("no gzip"), ConnectionResetError("gone")):
            with pytest.raises(BadInput, match=r"must arrive as its head says: (no gzip|gone)"):
                await read(Bodies(9, 9, 60.0), Arriving().send(b"abc", error))

    run(test())


def test_of_too_many_bytes_in_all_those_that_came_first_and_are_not_complete_are_given_up() -> None:
    """Ten bytes may be there: two clients stop in the middle, and those that go on are served."""

    async def test() -> None:
        bodies, stalled = Bodies(6, 10, 60.0), [Arriving().send(b"1111"), Arriving().send(b"2222")]
        waiting = [asyncio.create_task(read(bodies, each)) for each in stalled]
        while not all(each.parts.empty() for each in stalled):
            await asyncio.sleep(0)
        assert await read(bodies, Arriving().send(b"33", b"3333", b"")) == b"333333"
        with pytest.raises(SlowRequest):
            await waiting[0]
        stalled[1].send(b"22", b"")
        assert await waiting[1] == b"222222"
        assert bodies._sum_bytes == 0

    run(test())
