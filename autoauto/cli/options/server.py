"""Options of servers: `add_server` of those who ask one, `add_listen` of a server itself."""

from __future__ import annotations

import argparse
import os

from autoauto.cli.options.study import DEFAULT_STORAGE
from autoauto.records.errors import BadInput

_VARIABLE = "AUTOAUTO_SERVER"


def add_server(parser: argparse.ArgumentParser, what: str) -> None:
    """Add a server that does what a command does in place of this process."""
    parser.add_argument(
        "--server",
        default=os.environ.get(_VARIABLE),
        metavar="URL",
        help=f"{what} this `autoauto server`, by the token in AUTOAUTO_TOKEN; default: {_VARIABLE}, else this machine",
    )


def is_on_server(args: argparse.Namespace) -> bool:
    """Whether a command is for a server; a database that is given counts more than a variable.

    Raises:
        BadInput: both are given.
    """
    if args.server is None or args.storage == DEFAULT_STORAGE:
        return args.server is not None
    if args.server != os.environ.get(_VARIABLE):
        raise BadInput("--server has a database of its own, got --storage, too; leave one of them out")
    return False


def add_listen(parser: argparse.ArgumentParser, port: int) -> None:
    """Add where a server answers, and by which names."""
    parser.add_argument(
        "--listen",
        type=address,
        default=("127.0.0.1", port),
        metavar="HOST:PORT",
        help=f"where requests are answered; port 0 is a free one; default 127.0.0.1:{port}",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="name by which requests may call this server, as a proxy forwards it; addresses, localhost and the name "
        "of this machine always may; may be repeated",
    )


def address(text: str) -> tuple[str, int]:
    """Read an address and a port.

    >>> address("127.0.0.1:8080"), address("[::1]:0")
    (('127.0.0.1', 8080), ('::1', 0))
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and colon and port.isascii() and port.isdecimal() and int(port) <= 65_535):
        raise argparse.ArgumentTypeError(f"an address is written HOST:PORT, for example 127.0.0.1:8080, got {text!r}")
    return host, int(port)
