"""Measure for a search or a server that runs elsewhere.

A study is measured until nothing is left to do, the searches of a server are run until a signal.
"""

from __future__ import annotations

import argparse
import signal
from time import monotonic
from typing import TYPE_CHECKING

from autoauto.cli.commands.studies.server import add_labels, labels_of, make_worker, open_database, queue_of
from autoauto.cli.options.server import add_server, is_on_server
from autoauto.cli.options.study import STUDY_HELP, add_storage, add_workers, chosen_name, process_executor_of
from autoauto.cli.options.values import at_most, positive_number
from autoauto.cli.output.lines import print_line, warn
from autoauto.cli.output.log import add_log, trial_event, write_event

if TYPE_CHECKING:
    from autoauto.server.work.worker import SearchSource
    from autoauto.space.trial import Trial

IDLE_S = 60.0
EXAMPLE = "worker --storage postgresql://me@server/trials --study-name first --workers 4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a study, and how many processes measure."""
    parser.add_argument("--study-name", metavar="NAME", help=STUDY_HELP)
    add_storage(parser)
    add_server(parser, "run searches of")
    add_workers(parser, 1, "1")
    parser.add_argument("--model", metavar="FILE", help="the model's file on this machine; default: the search's path")
    parser.add_argument(
        "--cluster", metavar="FILE", help="the cluster's file on this machine; default: the search's path"
    )
    parser.add_argument(
        "--inputs", metavar="FILE.npz", help="the file of the inputs on this machine; default: the search's path"
    )
    parser.add_argument(
        "--idle",
        type=positive_number,
        metavar="S",
        help=f"seconds without work after which the worker ends; default {IDLE_S:g}, and never for a server",
    )
    add_labels(parser)
    parser.add_argument(
        "--max-running",
        type=at_most(1_000),
        metavar="N",
        help="searches of one owner of a server that run at once; default: any number",
    )
    add_log(parser, "nothing")


def run(args: argparse.Namespace) -> int:
    """Measure until there has been nothing to measure for a while; without a study, where there is a server, for it."""
    from autoauto.server.store.tables import has_searches

    if args.study_name is not None:
        return _measure(args)
    if is_on_server(args):
        return _run_searches_of_server(args)
    if has_searches(args.storage):
        database = open_database(args.storage)
        return _run_searches(args, queue_of(database, args), database.shown)
    return _measure(args)


def _run_searches_of_server(args: argparse.Namespace) -> int:
    """Run the searches of a server whose database this machine does not reach."""
    from autoauto.database.backend import WAIT_S
    from autoauto.processes.folders import temporary_folder
    from autoauto.server.client import connect
    from autoauto.server.work.remote import RemoteSource

    with temporary_folder("autoauto-worker-") as folder:
        source = RemoteSource(connect(args.server, patience_s=WAIT_S), folder, labels_of(args), args.max_running)
        return _run_searches(args, source, args.server)


def _run_searches(args: argparse.Namespace, source: SearchSource, where: str) -> int:
    """Run the searches of a server, one at a time, until a signal ends this process or none came for a while."""

    def log(line: str) -> None:
        if args.log == "json":
            write_event("error", message=line)
        else:
            warn(line)

    def on_end(search_id: str, state: str) -> None:
        if args.log == "json":
            write_event("search", search=search_id, state=state)

    worker = make_worker(source, log, on_end, args.launch)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: worker.end())
    print_line(f"joined the searches of {where}")
    worker.start(args.idle)
    worker.wait()
    worker.close()
    print_line(f"{worker.n_finished} searches ended here")
    return 0


def _measure(args: argparse.Namespace) -> int:
    from autoauto.study.analysis.best import objectives_of_study
    from autoauto.study.execution.worker_loop import WorkerLoop
    from autoauto.study.interrupts import Interrupts
    from autoauto.study.search import flow_of_study
    from autoauto.study.store.study import join_study

    study = join_study(args.storage, chosen_name(args.storage, args.study_name))
    local_files = {name: value for name in ("model", "cluster", "inputs") if (value := getattr(args, name)) is not None}
    executor = process_executor_of(args, flow_of_study(study, args.storage, **local_files))
    print_line(f"joined study {study.study_name}: {args.workers} at a time")

    def write_trial(trial: Trial) -> None:
        write_event("trial", **trial_event(trial))

    objectives = objectives_of_study(study)
    callback = write_trial if args.log == "json" else None
    idle_s = args.idle or IDLE_S
    with Interrupts() as interrupts, WorkerLoop(study, executor, objectives, callback=callback) as worker:
        last_busy_s = monotonic()
        while True:
            if worker.work(interrupts.interruptible):
                last_busy_s = monotonic()
            elif monotonic() - last_busy_s >= idle_s:
                break
    print(f"nothing to measure for {idle_s:g} s; {worker.n_finished} measured")
    if args.log == "json":
        write_event("end", exit_code=0, study_name=study.study_name, n_measured=worker.n_finished)
    return 0
