"""Measure for a search that runs elsewhere: join its study, and work until there is nothing left to do."""

from __future__ import annotations

import argparse
from time import monotonic
from typing import TYPE_CHECKING

from autoauto.cli.options.execution import add_workers, children, flow_of
from autoauto.cli.options.model import add_storage
from autoauto.cli.options.numbers import positive_number
from autoauto.cli.output.log import add_log, trial_event, write_event
from autoauto.records.knobs import aim_of

if TYPE_CHECKING:
    from autoauto.records.trial import FinishedTrial

EXAMPLE = "worker --storage postgresql://me@server/trials --study-name first --workers 4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a study, and how many processes measure."""
    parser.add_argument("--study-name", required=True, metavar="NAME", help="the study of the search to join")
    add_storage(parser)
    add_workers(parser, 1, "1")
    parser.add_argument("--model", metavar="FILE", help="where the model's file lies here; default: as there")
    parser.add_argument("--cluster", metavar="FILE", help="where the cluster's file lies here; default: as there")
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
    from autoauto.study.execution.worker_loop import Crew
    from autoauto.study.interrupts import Interrupts
    from autoauto.study.store.study import join_study

    study = join_study(args.storage, args.study_name)
    elsewhere = {name: value for name in ("model", "cluster") if (value := getattr(args, name)) is not None}
    hands = children(args, flow_of(study, args.storage, elsewhere))
    print(f"joined study {args.study_name}: {args.workers} at a time", flush=True)
    aim, callback = aim_of(study.user_attrs["objective"]), _write_trial if args.log == "json" else None
    with Interrupts() as interrupts, Crew(study, hands, aim, callback=callback) as crew:
        busy_s = monotonic()
        while monotonic() - busy_s < args.idle:
            if crew.work(interrupts.heard):
                busy_s = monotonic()
    print(f"nothing to measure for {args.idle:g} s; {crew.n_finished} measured")
    if args.log == "json":
        write_event("end", exit_code=0, study_name=args.study_name, n_measured=crew.n_finished)
    return 0


def _write_trial(trial: FinishedTrial) -> None:
    write_event("trial", **trial_event(trial))
