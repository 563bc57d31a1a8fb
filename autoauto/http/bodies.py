"""Bodies of requests, within limits of bytes and of time: `Bodies`."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING

from autoauto.records.errors import AutoautoError, BadInput

if TYPE_CHECKING:
    from aiohttp import web

UNPACKED_BYTES = 1 << 18
"""Maximum bytes that are unpacked at once; other requests are read in between."""
_WINDOW_BITS = {"gzip": zlib.MAX_WBITS + 16, "x-gzip": zlib.MAX_WBITS + 16, "deflate": zlib.MAX_WBITS}


class SlowRequest(AutoautoError):
    """A body did not arrive in time."""


class LargeRequest(AutoautoError):
    """A body has more bytes than it may have."""


class Bodies:
    """Reads bodies; when all together have too many bytes, the one that has been arriving longest is given up.

    So clients that send slowly, or stop in the middle, do not stand in the way of others.

    Args:
        max_sum_bytes: of all bodies that arrive or whose requests are not answered yet.
        max_s: the maximum time from the head of a request to the end of its body.
    """

    def __init__(
        self, max_bytes: int, max_sum_bytes: int, max_s: float, hint: str = "try fewer samples in a request"
    ) -> None:
        self._max_bytes = max_bytes
        self._max_sum_bytes = max_sum_bytes
        self._max_s = max_s
        self._hint = hint
        self._sum_bytes = 0
        self._arriving: dict[asyncio.Timeout, None] = {}

    @asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[bytearray]:
        """The body of a request; its bytes count until the context ends.

        Raises:
            LargeRequest: it is too long.
            SlowRequest: it arrives too slowly.
            BadInput: it does not arrive as its head says.
        """
        body = bytearray()
        try:
            await self._read(request, body.extend)
            yield body
        finally:
            self._sum_bytes -= len(body)

    async def save(self, request: web.Request, file: IO[bytes]) -> None:
        """Write the body of a request to a file, as it arrives; its bytes count until it ends.

        Raises:
            LargeRequest, SlowRequest, BadInput: as `read`.
            OSError: the file cannot be written.
        """
        start = file.tell()
        try:
            await self._read(request, file.write)
        finally:
            self._sum_bytes -= file.tell() - start

    async def _read(self, request: web.Request, write: Callable[[bytes], object]) -> None:
        from aiohttp.web import RequestPayloadError

        n_bytes = 0

        def add(part: bytes) -> None:
            nonlocal n_bytes
            self._count(n_bytes, part)
            write(part)
            n_bytes += len(part)

        if not request.body_exists:  # all requests without one share a stream, which never ends where it is read twice
            return
        if (request.content_length or 0) > self._max_bytes:
            raise self._too_large()
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in _WINDOW_BITS and encoding not in ("", "identity"):
            raise BadInput(f"a body must come as it is, or packed by {', '.join(_WINDOW_BITS)}, got {encoding:.40}")
        unpacker = zlib.decompressobj(_WINDOW_BITS[encoding]) if encoding in _WINDOW_BITS else None
        try:
            async with asyncio.timeout(self._max_s) as limit:
                self._arriving[limit] = None
                try:
                    async for chunk, _ in request.content.iter_chunks():  # not joined first
                        if unpacker is None:
                            add(chunk)
                            continue
                        packed = chunk
                        while packed and not unpacker.eof:
                            add(unpacker.decompress(packed, UNPACKED_BYTES))
                            await asyncio.sleep(0)
                            packed = unpacker.unconsumed_tail
                    if unpacker is not None and not unpacker.eof:
                        raise zlib.error("its end is missing")
                finally:
                    self._arriving.pop(limit, None)
        except TimeoutError as error:
            raise SlowRequest(
                f"a body must arrive within {self._max_s:g} s, and sooner when many do; {n_bytes} bytes did"
            ) from error
        except (RequestPayloadError, ConnectionError, zlib.error) as error:
            raise BadInput(f"a body must arrive as its head says: {error}") from error

    def _count(self, n_before: int, chunk: bytes) -> None:
        if n_before + len(chunk) > self._max_bytes:
            raise self._too_large()
        self._sum_bytes += len(chunk)
        if self._sum_bytes > self._max_sum_bytes and self._arriving:
            oldest = next(iter(self._arriving))
            del self._arriving[oldest]
            oldest.reschedule(0.0)  # its time is over: it is refused as too slow

    def _too_large(self) -> LargeRequest:
        return LargeRequest(f"a body may have {self._max_bytes} bytes; {self._hint}")
