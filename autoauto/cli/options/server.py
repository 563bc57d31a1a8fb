"""Options of servers: `add_server` of those who ask one, `add_listen` and `add_identity` of a server itself."""

from __future__ import annotations

import argparse
import os
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING

from autoauto.cli.options.study import DEFAULT_STORAGE
from autoauto.cli.output.lines import warn
from autoauto.records.errors import BadInput

if TYPE_CHECKING:
    import ssl

    from autoauto.server.client import Client
    from autoauto.server.rest.identity import UserProxy

SERVER_VARIABLE = "AUTOAUTO_SERVER"


def add_server(parser: argparse.ArgumentParser, what: str) -> None:
    """Add a server that does what a command does in place of this process."""
    parser.add_argument(
        "--server",
        default=os.environ.get(SERVER_VARIABLE),
        metavar="URL",
        help=f"{what} this `autoauto server`, by the token in AUTOAUTO_TOKEN; default: {SERVER_VARIABLE}, else this "
        "machine",
    )


def server_of(args: argparse.Namespace) -> Client:
    """A client of the server that a command names; it prints a line when it waits; raises BadInput for no URL."""
    from autoauto.server.client import connect

    return connect(args.server, on_wait=warn)


def is_on_server(args: argparse.Namespace) -> bool:
    """True if a command is for a server: by --server, or by the variable if no database is given."""
    if args.server is None or args.storage == DEFAULT_STORAGE:
        return args.server is not None
    if args.server != os.environ.get(SERVER_VARIABLE):
        raise BadInput("--server has a database of its own, got --storage, too; leave one of them out")
    return False


def add_listen(parser: argparse._ActionsContainer, port: int) -> None:
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


def add_identity(parser: argparse._ActionsContainer) -> None:
    """Add what tells who sends requests besides tokens, and TLS."""
    parser.add_argument(
        "--proxy-header",
        metavar="NAME",
        help="header in which a proxy names the user of a request, for example X-Forwarded-User; it counts only from "
        "--proxy-address; default: none",
    )
    parser.add_argument(
        "--proxy-address",
        type=network,
        action="append",
        default=[],
        metavar="ADDRESS",
        help="address or network (10.0.0.0/24) of the proxy that is trusted with --proxy-header; may be repeated",
    )
    parser.add_argument(
        "--proxy-role",
        choices=["reader", "submitter"],
        default="submitter",
        help="what users that the proxy names may do; default %(default)s",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="certificates of the server in PEM; with --tls-key")
    parser.add_argument("--tls-key", metavar="FILE", help="the key of the first certificate in PEM; with --tls-cert")


def network(text: str) -> IPv4Network | IPv6Network:
    """Read an address or a network.

    >>> network("10.0.0.7"), network("10.0.0.0/24")
    (IPv4Network('10.0.0.7/32'), IPv4Network('10.0.0.0/24'))
    """
    try:
        return ip_network(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"an address is written 10.0.0.7 or 10.0.0.0/24: {error}") from error


def user_proxy(args: argparse.Namespace) -> UserProxy | None:
    """The proxy that names users; None without one; raises BadInput if only one of its options is given."""
    from autoauto.server.rest.identity import UserProxy
    from autoauto.server.store.users import Role

    if (args.proxy_header is None) != (not args.proxy_address):
        raise BadInput("--proxy-header and --proxy-address go together, got one of them; give both, or none")
    if args.proxy_header is None:
        return None
    return UserProxy(args.proxy_header, tuple(args.proxy_address), Role(args.proxy_role))


def tls_context(args: argparse.Namespace) -> ssl.SSLContext | None:
    """The TLS context of the server's certificate; None without one; raises BadInput if a file is missing or wrong."""
    import ssl

    if (args.tls_cert is None) != (args.tls_key is None):
        raise BadInput("--tls-cert and --tls-key go together, got one of them; give both, or none")
    if args.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(args.tls_cert, args.tls_key)
    except OSError as error:  # an SSLError is one
        raise BadInput(
            f"TLS needs a certificate and its key in PEM, got {args.tls_cert} and {args.tls_key}: {error}; try others"
        ) from error
    return context


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
