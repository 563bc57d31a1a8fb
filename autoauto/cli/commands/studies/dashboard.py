"""Open the study in Optuna's dashboard, with notes, figures, plans and traces."""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from autoauto.cli.commands.studies.dashboard_content import default_folder, write_dashboard
from autoauto.cli.options.study import add_study, requested_study
from autoauto.cli.options.values import at_most
from autoauto.records.errors import BadInput, missing_extra

EXAMPLE = "dashboard first"
HOST = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a study, a port, and a folder for files."""
    add_study(parser)
    parser.add_argument("--port", type=at_most(65_535), default=8080, help="port on this machine; default %(default)s")
    parser.add_argument(
        "--artifacts",
        type=Path,
        metavar="FOLDER",
        help="folder for plans, traces and pictures of the best trials; default: beside the database",
    )


def run(args: argparse.Namespace) -> int:
    """Write the notes, figures and files of the study, then serve the dashboard until Ctrl-C or SIGTERM.

    Raises:
        MissingExtra: optuna-dashboard or plotly is not installed.
        BadInput: no such study, or the port is taken.
    """
    study = requested_study(args)
    if not all(map(importlib.util.find_spec, ("optuna_dashboard", "plotly"))):
        raise missing_extra("the dashboard", "dashboard")
    server = _server(args.port)
    import optuna_dashboard

    from autoauto.study.analysis.summary import summarise_study
    from autoauto.study.store.dashboard_files import DashboardFiles

    dashboard = DashboardFiles(args.storage, study.study_name, args.artifacts or default_folder(args.storage))
    write_dashboard(dashboard, summarise_study(study, args.storage))
    server.set_app(optuna_dashboard.wsgi(dashboard.backend, artifact_store=dashboard.files))
    print(f"study {study.study_name}: http://{HOST}:{args.port}/dashboard/studies/{dashboard.study_id}", flush=True)
    print("Ctrl-C ends the dashboard", flush=True)
    with _ending_at_signals():
        server.serve_forever()
    return 0


class _SilentHandler(WSGIRequestHandler):
    """Writes no line for each of the page's requests, one every two seconds: the address would scroll away."""

    def log_request(self, *_: object) -> None:
        """Write nothing; errors are still written."""


@contextmanager
def _ending_at_signals() -> Iterator[None]:
    """End this process at SIGINT and SIGTERM, as people mean to; an exception in the middle of an answer would be lost.

    The server of the standard library catches every exception there (`wsgiref`). Nothing is lost: databases keep what
    was committed.
    """
    previous = {number: signal.signal(number, _end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _end(*_: object) -> None:
    os._exit(0)


def _server(port: int) -> WSGIServer:
    """A server on this machine's `port`, which does not answer yet.

    Raises:
        BadInput: it is taken, or there is no such port.
    """
    try:
        return WSGIServer((HOST, port), _SilentHandler)
    except (OSError, OverflowError) as error:
        raise BadInput(f"the port must be free and at most 65535, got {port} ({error}); try another --port") from error
