"""Open the trials in Optuna's dashboard."""

from __future__ import annotations

import argparse
import importlib.util

from autoauto.cli.arguments import add_study, load
from autoauto.records.errors import BadInput, MissingExtra

EXAMPLE = "dashboard resnet50-bow-2000-throughput-1a2b3c"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a study and a port."""
    add_study(parser)
    parser.add_argument("--port", type=int, default=8080, help="port on this machine; default %(default)s")


def run(args: argparse.Namespace) -> int:
    """Serve the dashboard until interrupted.

    Raises:
        MissingExtra: optuna-dashboard is not installed.
        BadInput: no such study, or the port is taken.
    """
    if importlib.util.find_spec("optuna_dashboard") is None:
        raise MissingExtra('the dashboard needs the extra "dashboard"; try: pip install "autoauto[dashboard]"')
    load(args)  # one clear line when there is no such study
    import optuna_dashboard

    try:
        optuna_dashboard.run_server(args.storage, host="127.0.0.1", port=args.port)
    except OSError as error:
        raise BadInput(f"port {args.port} cannot be used ({error.strerror}); try another --port") from error
    return 0
