"""An application of aiohttp that this process serves until a signal ends it: `serving`."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from autoauto.http.connections import Connections, note_errors
from autoauto.records.errors import BadInput

if TYPE_CHECKING:
    from aiohttp import web

KEEPALIVE_S = 75.0
"""The time after which a connection without a whole head of a request is closed."""
HANDSHAKE_S = 10.0
"""The time that a client has to begin TLS."""


class Address(NamedTuple):
    """The address at which a server takes connections; port 0 is any that is free, `tls` is None without TLS."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None


@asynccontextmanager
async def serving(
    app: web.Application,
    address: Address,
    log: Callable[[str], None],
    stop: Callable[[], None],
    shutdown_s: float,
    *,
    handler_cancellation: bool,
    protocol: Callable[[web.Server], web.RequestHandler] = lambda server: server(),
) -> AsyncIterator[tuple[Connections, str]]:
    """Take connections within a context, which gets them and the URL of the server.

    Args:
        log: is called with a line about what goes wrong in the event loop.
        stop: is called at SIGINT and SIGTERM.
        shutdown_s: the time that clients have to take the last answers, after the context.

    Raises:
        BadInput: the address is taken, or there is no such host.
    """
    from aiohttp import web

    # Every client takes a descriptor, so this process has as many as it may.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop = asyncio.get_running_loop()
    note_errors(loop, log)
    # Tracebacks are dropped: one for every request that is no HTTP could fill the disk.
    silent = logging.Logger("autoauto.http")
    silent.addHandler(logging.NullHandler())
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=silent,
        handler_cancellation=handler_cancellation,
        keepalive_timeout=KEEPALIVE_S,
        shutdown_timeout=shutdown_s,
        auto_decompress=False,
    )
    await runner.setup()
    try:
        assert runner.server is not None
        connections = Connections(runner.server)
        listener = await _listen(partial(connections.protocol, protocol), address, connections.backlog)
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop)
            host, port = listener.sockets[0].getsockname()[:2]
            if ":" in host:  # of IPv6
                host = f"[{host}]"
            yield connections, f"{'http' if address.tls is None else 'https'}://{host}:{port}"
        finally:
            listener.close()
    finally:
        await runner.cleanup()


async def _listen(protocol: Callable[[], asyncio.Protocol], address: Address, backlog: int) -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(
            protocol,
            address.host,
            address.port,
            backlog=backlog,
            ssl=address.tls,
            ssl_handshake_timeout=None if address.tls is None else HANDSHAKE_S,
        )
    except OSError as error:
        raise BadInput(
            f"{address.host}:{address.port} must be free to be served at: {error.strerror}; try another port"
        ) from error
