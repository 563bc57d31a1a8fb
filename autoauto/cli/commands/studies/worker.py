"""Measure for a search that runs elsewhere: join its study, and measure until nothing is left to do."""

from __future__ import annotations

import argparse
from time import monotonic
from typing import TYPE_CHECKING

from autoauto.cli.options.study import STUDY_HELP, add_storage, add_workers, chosen_name, process_executor_of
from autoauto.cli.options.values import positive_number
from autoauto.cli.output.lines import print_line
from autoauto.cli.output.log import add_log, trial_event, write_event
from autoauto.space.objectives import parse_objectives

if TYPE_CHECKING:
    from autoauto.space.trial import Trial

EXAMPLE = "worker --storage postgresql://me@server/trials --study-name first --workers 4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a study, and how many processes measure."""
    parser.add_argument("--study-name", metavar="NAME", help=STUDY_HELP)
    add_storage(parser)
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
        default=60.0,
        metavar="S",
        help="seconds without work after which the worker ends; default %(default)g",
    )
    add_log(parser, "nothing")


def run(args: argparse.Namespace) -> int:
    """Measure until there has been nothing to measure for a while."""
    from autoauto.study.execution.worker_loop import WorkerLoop
    from autoauto.study.interrupts import Interrupts
    from autoauto.study.search import flow_of_study
    from autoauto.study.store.study import join_study

    study = join_study(args.storage, chosen_name(args.storage, args.study_name))
    local_files = {name: value for name in ("model", "cluster", "inputs") if (value := getattr(args, name)) is not None}
    executor = process_executor_of(args, flow_of_study(study, args.storage, **local_files))
    print_line(f"joined study {study.study_name}: {args.workers} at a time")
    objectives, callback = parse_objectives(study.user_attrs["objective"]), _write_trial if args.log == "json" else None
    with Interrupts() as interrupts, WorkerLoop(study, executor, objectives, callback=callback) as worker:
        last_busy_s = monotonic()
        while True:
            if worker.work(interrupts.interruptible):
                last_busy_s = monotonic()
            elif monotonic() - last_busy_s >= args.idle:
                break
    print(f"nothing to measure for {args.idle:g} s; {worker.n_finished} measured")
    if args.log == "json":
        write_event("end", exit_code=0, study_name=study.study_name, n_measured=worker.n_finished)
    return 0


def _write_trial(trial: Trial) -> None:
    write_event("trial", **trial_event(trial))
