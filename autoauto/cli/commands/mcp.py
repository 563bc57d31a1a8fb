"""Offer a server of searches to programs by MCP.

The tools of the Model Context Protocol are over stdin and stdout: a client, an assistant for example, starts this
command itself.
"""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec

from autoauto.cli.options.server import SERVER_VARIABLE
from autoauto.cli.output.lines import warn
from autoauto.records.errors import BadInput, missing_extra

EXAMPLE = "mcp --server http://127.0.0.1:8080"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a server."""
    parser.add_argument(
        "--server",
        default=os.environ.get(SERVER_VARIABLE),
        metavar="URL",
        help=f"of an `autoauto server`, by the token in AUTOAUTO_TOKEN; default: {SERVER_VARIABLE}",
    )


def run(args: argparse.Namespace) -> int:
    """Answer a client until it closes stdin."""
    if find_spec("mcp") is None:
        raise missing_extra("the Model Context Protocol", "mcp")
    if not args.server:
        raise BadInput("--server must name a server of searches, got none; try --server http://127.0.0.1:8080")
    from autoauto.server.client import connect
    from autoauto.server.mcp.stdio import serve_tools

    serve_tools(connect(args.server, on_wait=warn), warn)
    return 0
