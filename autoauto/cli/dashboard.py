"""Open the trials in Optuna's dashboard."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys

from autoauto.cli.arguments import add_study, load
from autoauto.records.errors import MissingExtra

EXAMPLE = "dashboard resnet50-bow-2000-throughput"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a study and a port."""
    add_study(parser)
    parser.add_argument("--port", type=int, default=8080, help="port on this machine; default %(default)s")


def run(args: argparse.Namespace) -> int:
    """Serve the dashboard until interrupted.

    Raises:
        MissingExtra: optuna-dashboard is not installed.
    """
    if importlib.util.find_spec("optuna_dashboard") is None:
        raise MissingExtra('the dashboard needs the extra "dashboard"; try: pip install "autoauto[dashboard]"')
    load(args)
    command = [sys.executable, "-m", "optuna_dashboard", args.storage, "--host", "127.0.0.1", "--port", str(args.port)]
    return subprocess.run(command, check=False).returncode
