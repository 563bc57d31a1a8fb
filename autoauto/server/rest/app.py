"""The HTTP server of the service, on aiohttp: `serve_searches`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from autoauto.http.application import Address, serving
from autoauto.processes.circles import collect_often
from autoauto.server.call import ReadRequest, Service, WriteCommand
from autoauto.server.metrics import ServiceMetrics
from autoauto.server.rest.answers import protocol_of
from autoauto.server.rest.door import Door, Log
from autoauto.server.rest.identity import ServiceOptions
from autoauto.server.rest.openapi import openapi_document
from autoauto.server.store.models import delete_left
from autoauto.server.store.tables import ServiceDatabase
from autoauto.server.work.commands import Commands, RunCommand

SHUTDOWN_S = 5.0


async def serve_searches(
    database: ServiceDatabase,
    read_request: ReadRequest,
    run_command: RunCommand,
    write_command: WriteCommand,
    options: ServiceOptions,
    on_ready: Callable[[str], None],
    log: Log,
) -> None:
    """Answer requests until SIGINT or SIGTERM.

    Raises:
        BadInput: the address is taken, or there is no such host.
    """
    collect_often()
    is_ending = asyncio.Event()
    commands = Commands(database.storage, run_command)
    delete_left(database)
    service = Service(
        database=database,
        read_request=read_request,
        metrics=ServiceMetrics(),
        document=msgspec.json.encode(openapi_document()),
        commands=commands,
        write_command=write_command,
        upload_quota_bytes=options.max_user_bytes,
    )
    door = Door(service, options, log, is_ending)
    try:
        async with serving(
            door.app(),
            Address(options.host, options.port, options.tls),
            lambda line: log({"event": "error", "message": line}),
            is_ending.set,
            SHUTDOWN_S,
            handler_cancellation=False,  # a submission that was taken is stored, also where its sender has gone
            protocol=protocol_of,
        ) as (door.connections, url):
            on_ready(url)
            await is_ending.wait()
    finally:
        door.close()
        commands.close()
