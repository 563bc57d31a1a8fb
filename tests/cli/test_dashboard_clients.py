"""The dashboard answers several connections, and only requests that call this machine by its own name."""

import socket
from collections.abc import Iterable
from contextlib import ExitStack
from threading import Thread
from typing import Any

from autoauto.cli.commands.studies.dashboard import HOST, _server, own_host_only


def application(_: Any, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [])
    return [b"study"]


def status(number: int, host: str) -> bytes:
    with socket.create_connection((HOST, number)) as connection:
        connection.sendall(f"DELETE /api/studies/1 HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        return connection.makefile("rb").readline().split()[1]


def test_one_that_says_nothing_keeps_nobody_waiting_and_other_names_are_refused() -> None:
    with _server(0) as server, ExitStack() as stack:
        server.set_app(own_host_only(application))
        number = server.server_address[1]
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            for _ in range(5):
                stack.enter_context(socket.create_connection((HOST, number)))
            assert [status(number, host) for host in ("localhost:1", "127.0.0.1")] == [b"200"] * 2
            assert [status(number, host) for host in ("rebound.example", "")] == [b"403"] * 2
        finally:
            server.shutdown()
            thread.join()
