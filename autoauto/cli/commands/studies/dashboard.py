"""Open a study in Optuna's dashboard.

The study has notes, figures, plans and traces there.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from autoauto import __version__
from autoauto.cli.commands.studies.commands_to_copy import commands_of, reproducing_command
from autoauto.cli.options.study import add_study, requested_study, require_trials, summary_to_report
from autoauto.cli.options.values import at_most
from autoauto.cli.output.plans import describe_plan
from autoauto.cli.output.search_result import simulated_timeline
from autoauto.http.hosts import is_allowed_host
from autoauto.processes.circles import collect_often
from autoauto.records.errors import BadInput, missing_extra
from autoauto.report.wording import clock_of, origin_of, shown_clock
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Trial

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from autoauto.study.store.dashboard_files import DashboardFiles


EXAMPLE = "dashboard first"
HOST = "127.0.0.1"
CONNECTION_S, MAX_CONNECTIONS = 30.0, 64
"""The time for which a connection may say nothing, and how many there may be at once."""
N_WITH_FILES = 3
"""The number of the best trials that have a plan, a trace and pictures as files."""
N_NOTES = 100
"""The most trials with a note besides the best: the dashboard sends all notes in every answer."""
N_MARKS = 1_000
"""The most dots of a figure and bars of a timeline: figures, too, are part of every answer."""
PLOT_HEIGHT = 450
"""In pixels, as the dashboard shows figures."""


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
    """Write the notes, figures and files of the study, then serve the dashboard until Ctrl-C or SIGTERM."""
    study = requested_study(args)
    if not all(map(importlib.util.find_spec, ("optuna_dashboard", "plotly"))):
        raise missing_extra("the dashboard", "dashboard")
    summary = require_trials(summary_to_report(args, study))
    server = _server(args.port)
    import optuna_dashboard

    from autoauto.study.store.dashboard_files import DashboardFiles

    dashboard = DashboardFiles(args.storage, study.study_name, args.artifacts or default_folder(args.storage))
    write_dashboard(dashboard, summary)
    server.set_app(own_host_only(optuna_dashboard.wsgi(dashboard.backend, artifact_store=dashboard.files)))
    print(f"study {study.study_name}: http://{HOST}:{args.port}/dashboard/studies/{dashboard.study_id}", flush=True)
    print("Ctrl-C ends the dashboard", flush=True)
    collect_often()
    with _ending_at_signals():
        server.serve_forever()
    return 0


class _ThreadedServer(ThreadingMixIn, WSGIServer):
    """Answers every connection in a thread, so that one that says nothing keeps no other waiting."""

    daemon_threads = True
    connections = BoundedSemaphore(MAX_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread; where too many are open, close it."""
        if not self.connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing for a client that has gone or is too slow; else as the library."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _SilentHandler(WSGIRequestHandler):
    """Writes no line for each of the page's requests, one every two seconds: the address would scroll away."""

    timeout = CONNECTION_S

    def log_request(self, *_: object) -> None:
        """Write nothing; errors are still written."""


@contextmanager
def _ending_at_signals() -> Iterator[None]:
    """End this process at SIGINT and SIGTERM, as people mean to; an exception in the middle of an answer would be lost.

    The server of the standard library catches every exception there (`wsgiref`). Nothing is lost: databases keep what
    was committed.
    """
    signals = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, lambda *_: os._exit(0)) for number in signals}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def own_host_only(app: WSGIApplication) -> WSGIApplication:
    """An application for requests to this machine by its own name: not of a page whose name was made to lead here."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if is_allowed_host(environ.get("HTTP_HOST", ""), ()):
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"the dashboard must be opened as localhost or {HOST}\n".encode()]

    return answer


def _server(port: int) -> WSGIServer:
    try:
        return _ThreadedServer((HOST, port), _SilentHandler)
    except (OSError, OverflowError) as error:
        raise BadInput(f"the port must be free and at most 65535, got {port} ({error}); try another --port") from error


def default_folder(storage: str) -> Path:
    """The folder of the files: beside the file of a database, otherwise in `studies/`.

    >>> str(default_folder("sqlite:///studies/autoauto.db")), str(default_folder("postgresql://me@host/all"))
    ('studies/autoauto.artifacts', 'studies/all.artifacts')
    """
    from autoauto.database.registry import backend_of, parse_url

    url = parse_url(storage)
    path = backend_of(url).file(url) or Path("studies", url.database or "autoauto")
    return path.parent / f"{path.stem}.artifacts"


def write_dashboard(dashboard: DashboardFiles, summary: StudySummary) -> None:
    """Write notes and figures of the study, notes of its trials, and files of the best, unless they are up to date.

    A note that a person has edited stays until the study has more trials.
    """
    from plotly.graph_objects import Figure

    from autoauto.report.charts.plotly_figure import plotly_figure
    from autoauto.report.charts.study import study_charts
    from autoauto.report.notes import finalist_note, study_note, trial_note
    from autoauto.study.analysis.comparisons import study_comparisons

    digest = hashlib.sha256(f"{__version__} {summary}".encode()).hexdigest()
    if dashboard.shows(digest):
        return
    dashboard.note(study_note(summary, study_comparisons(summary), commands_of(summary)))
    timeline = simulated_timeline(summary.winner) if summary.winner else None
    for chart in study_charts(summary, timeline, N_MARKS):
        figure = Figure(plotly_figure(chart, N_MARKS)).update_layout(height=PLOT_HEIGHT)
        dashboard.figure(f"autoauto-{chart.name}", figure)
    for rank, finalist in enumerate(summary.finalists):
        pictures = _write_files(dashboard, summary, finalist) if rank < N_WITH_FILES else {}
        command = reproducing_command(summary, finalist)
        dashboard.note(finalist_note(summary, finalist, command, pictures), finalist.number)
    for trial in _trials_with_notes(summary):
        dashboard.note(trial_note(trial, origin_of(summary)), trial.number)
    dashboard.finish(digest)


def _trials_with_notes(summary: StudySummary) -> list[Trial]:
    """At most `N_NOTES` trials besides the finalists: first those at the limits of cells, then the others."""
    best = {finalist.number for finalist in summary.finalists}
    limits = [trial for cell in summary.cells for trial in (cell.best, cell.largest, cell.first_unfit) if trial]
    others = {trial.number: trial for trial in (*limits, *summary.trials) if trial.number not in best}
    return list(others.values())[:N_NOTES]


def _write_files(dashboard: DashboardFiles, summary: StudySummary, finalist: Trial) -> dict[str, str]:
    """Write the files of a finalist; returns the addresses of its pictures by their names."""
    from autoauto.report.charts.plan import memory_chart, timeline_chart
    from autoauto.report.charts.svg import picture_file
    from autoauto.report.trace import chrome_trace

    number, timeline, clock_hz = finalist.number, simulated_timeline(finalist), clock_of(summary, finalist)
    dashboard.file(number, "plan.json", json.dumps(describe_plan(finalist.plan), indent=1).encode())
    charts = [memory_chart(finalist, origin_of(summary))]
    if timeline is not None:
        dashboard.file(number, "trace.json", json.dumps(chrome_trace(timeline, clock_hz)).encode())
        in_seconds = shown_clock(summary) is not None
        device = finalist.knobs.session.words.device
        charts.insert(0, timeline_chart(timeline, clock_hz, in_seconds=in_seconds, device=device))
    pictures = {}
    for chart in charts:
        pictures[chart.name] = dashboard.file(number, f"{chart.name}.svg", picture_file(chart).encode())
    return pictures
