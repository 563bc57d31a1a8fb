"""Open the trials in Optuna's dashboard."""

from __future__ import annotations

import argparse
import importlib.util
import socket

from autoauto.cli.arguments import add_study, load, positive
from autoauto.records.errors import BadInput, MissingExtra

EXAMPLE = "dashboard first"
HOST = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a study and a port."""
    add_study(parser)
    parser.add_argument("--port", type=positive, default=8080, help="port on this machine; default %(default)s")


def run(args: argparse.Namespace) -> int:
    """Serve the dashboard until interrupted.

    Raises:
        MissingExtra: optuna-dashboard is not installed.
        BadInput: no such study, or the port is taken.
    """
    if importlib.util.find_spec("optuna_dashboard") is None:
        raise MissingExtra('the dashboard needs the extra "dashboard"; try: pip install optuna-dashboard')
    load(args)  # one clear line when there is no such study
    _check_port(args.port)
    import optuna_dashboard

    optuna_dashboard.run_server(args.storage, host=HOST, port=args.port)
    return 0


def _check_port(port: int) -> None:
    """Refuse a port that cannot be listened on, before the server says that it listens."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except (OSError, OverflowError) as error:
        raise BadInput(f"the port must be free and at most 65535, got {port} ({error}); try another --port") from error
