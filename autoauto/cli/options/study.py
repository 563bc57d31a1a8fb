"""Options that name a study, and those of how its trials are executed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from autoauto.cli.options.values import at_most, positive_number
from autoauto.records.errors import AutoautoError, BadInput

if TYPE_CHECKING:
    from optuna.study import Study

    from autoauto.evaluate.flow import Flow
    from autoauto.space.study_summary import StudySummary
    from autoauto.study.execution.executors import Executor, ProcessExecutor
    from autoauto.study.execution.process import Bounds


DEFAULT_STORAGE = "sqlite:///studies/autoauto.db"
STUDY_HELP = "a study: its name or the beginning of it (see `autoauto studies`); default: the latest"
_GIB = 2**30
_MAX_BYTES = 2**62  # the largest limit that the operating system accepts


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Add the database of the trials."""
    parser.add_argument(
        "--storage", default=DEFAULT_STORAGE, metavar="URL", help="database of the trials; default %(default)s"
    )


def storage_words(storage: str) -> list[str]:
    """The option that names a database in a command to copy, without its password; none for the default one."""
    from autoauto.study.store.database import shown_storage

    return [] if storage == DEFAULT_STORAGE else ["--storage", shown_storage(storage)]


def add_study(parser: argparse.ArgumentParser) -> None:
    """Add an existing study, and its database."""
    parser.add_argument("study", nargs="?", metavar="STUDY", help=STUDY_HELP)
    add_storage(parser)


def chosen_name(storage: str, part: str | None) -> str:
    """The full name of a study; if only a part of it was given, a line on stderr says which study it is."""
    from autoauto.study.store.study import find_study

    name, why = find_study(storage, part)
    if why:
        print(f"autoauto: study {name} ({why})", file=sys.stderr)
    return name


def requested_study(args: argparse.Namespace) -> Study:
    """The study that the arguments name; raises BadInput if none, or several, are meant."""
    from autoauto.study.store.database import attributes_of
    from autoauto.study.store.study import load_study

    study = load_study(args.storage, chosen_name(args.storage, args.study))
    if "target" not in attributes_of(study):
        raise BadInput(
            f"study {study.study_name!r} does not say what measured it; search anew with another --study-name"
        )
    return study


def summary_to_report(args: argparse.Namespace, study: Study) -> StudySummary:
    """The summary of a study, with the choice of auto_pipeline, which the first report of a study computes.

    A line on stderr says where the model cannot be opened here.
    """
    from autoauto.study.analysis.best import summarise_study
    from autoauto.study.analysis.comparisons import asks_auto_pipeline

    summary = summarise_study(study, args.storage)
    if not asks_auto_pipeline(summary):
        return summary
    from autoauto.study.search import flow_of_study
    from autoauto.study.verify_winner import with_auto_pipeline

    try:
        return with_auto_pipeline(flow_of_study(study, args.storage), study, summary)
    except AutoautoError as error:
        print(f"autoauto: what auto_pipeline would choose is not known: {error}", file=sys.stderr)
        return summary


def require_trials(summary: StudySummary) -> StudySummary:
    """A study of which there is something to draw; raises BadInput if it has no finished trial."""
    if not summary.trials and not summary.failures:
        raise BadInput(
            f"a page needs a finished trial, study {summary.study_name!r} has none; the `autoauto search` that made it "
            "goes on with it"
        )
    return summary


def add_workers(parser: argparse.ArgumentParser, default: int | None, default_text: str) -> None:
    """Add how many processes measure, and the limits of a measurement."""
    parser.add_argument(
        "--workers",
        type=at_most(1_000),
        default=default,
        metavar="N",
        help=f"processes that measure side by side; default: {default_text}",
    )
    parser.add_argument(
        "--time-limit",
        type=positive_number,
        metavar="S",
        help="seconds after which a measurement is stopped and counts as failed; measures in processes of its own",
    )
    parser.add_argument(
        "--memory-limit",
        type=positive_number,
        metavar="GIB",
        help="memory in GiB that a measurement may take, in a process of its own with all that it starts: on ipu the "
        "model of the compiler, on the host the processes of all stages; it is no limit of a planned device",
    )


def add_executor(parser: argparse.ArgumentParser) -> None:
    """Add a Dask cluster to measure on."""
    parser.add_argument(
        "--executor",
        metavar="dask://HOST:PORT",
        help="measure on a Dask cluster, where a measurement takes as many devices of a worker as it has; "
        "workers are started with dask worker --resources device=N",
    )


def executor_maker(args: argparse.Namespace, flow: Flow) -> Callable[[], Executor] | None:
    """A function that makes the executor of the arguments; None when this process measures.

    Raises BadInput for an unknown kind.
    """
    if args.executor is not None:
        kind, _, address = args.executor.partition("://")
        if kind != "dask" or not address:
            raise BadInput(f"an executor is written dask://HOST:PORT, got {args.executor!r}")
        if args.dask is not None:
            raise BadInput(
                "with --executor every Dask worker measures a configuration, with --dask all of them together measure "
                "one; leave one of them out"
            )
        from autoauto.study.execution.dask import DaskExecutor

        return partial(DaskExecutor, f"tcp://{address}", flow.evaluate, bounds_of(args), args.workers)
    if args.workers is None and args.time_limit is None and args.memory_limit is None:
        return None
    return partial(process_executor_of, args, flow)


def process_executor_of(args: argparse.Namespace, flow: Flow) -> ProcessExecutor:
    """Processes of this machine that measure, by default one; raises BadInput if several would disturb each other."""
    from autoauto.study.search import process_executor

    return process_executor(flow, args.workers or 1, bounds_of(args))


def bounds_of(args: argparse.Namespace) -> Bounds:
    """The limits of a measurement."""
    from autoauto.study.execution.process import Bounds

    memory_bytes = None
    if args.memory_limit is not None:
        memory_bytes = int(min(args.memory_limit * _GIB, _MAX_BYTES))
    return Bounds(args.time_limit, memory_bytes)
