"""Find the configuration with the highest throughput; every trial is kept, a stopped search goes on where it was."""

from __future__ import annotations

import argparse
import hashlib
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from autoauto import __version__
from autoauto.cli.arguments import (
    add_json,
    add_model,
    add_storage,
    add_training,
    choices_of,
    integers,
    open_flow,
    print_json,
    proportions,
    training_values,
)
from autoauto.cli.output import describe_result, show_best
from autoauto.records.errors import Infeasible
from autoauto.records.trial import Objective, SearchSpace, Strategy

if TYPE_CHECKING:
    from autoauto.flow import Flow
    from autoauto.search import SearchProgress

EXAMPLE = "search bert-large-128 --cluster bow-2000 --n-ipu 2,4 --batch-size 1:32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a model, a cluster, the space and where to keep the trials."""
    add_model(parser)
    parser.add_argument(
        "--n-ipu", type=integers, metavar="1,2,4", help="devices in the pipeline; default: powers of two, at most 4"
    )
    parser.add_argument(
        "--memory-proportion",
        type=proportions,
        default=(0.3, 0.6, 1.0),
        metavar="0.3,0.6,1.0",
        help="bounds on the temporary memory of a matmul or convolution; default 0.3,0.6,1.0",
    )
    parser.add_argument(
        "--batch-size",
        type=integers,
        default=tuple(range(1, 129)),
        metavar="1:128",
        help="batch sizes to bisect over, both ends included; default 1:128",
    )
    add_training(parser, several=True)
    parser.add_argument(
        "--strategy",
        type=choices_of(tuple(Strategy)),
        metavar="pipeline,phased",
        help="stages on several devices, or phases on each, from streaming memory; "
        "default: pipeline, and phased where no pipeline fits",
    )
    parser.add_argument(
        "--steps",
        type=integers,
        default=(16,),
        metavar="16",
        help="micro-batches that go through a phase before the next begins; default 16",
    )
    parser.add_argument(
        "--objective",
        choices=[str(o) for o in Objective],
        default=str(Objective.THROUGHPUT),
        help="samples per second, or the seed's cycles x n_ipu / batch; default %(default)s",
    )
    add_storage(parser)
    parser.add_argument("--study-name", metavar="NAME", help="default: model, cluster and objective")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Search, keep every trial, print the best configuration."""
    from autoauto.report import progress_bar
    from autoauto.search import open_study, run_search, shown_storage

    flow = open_flow(args)
    space = SearchSpace(
        args.n_ipu or default_n_ipu(len(flow.cluster)),
        args.memory_proportion,
        args.batch_size,
        *training_values(args),
        args.strategy or (Strategy.PIPELINE,),
        args.steps,
    )
    flow.check(space)
    objective = Objective(args.objective)
    fingerprint = {"autoauto": __version__, "mode": args.mode, **flow.fingerprint()}
    name = args.study_name or default_study_name(flow, objective, fingerprint)
    shown = shown_storage(args.storage)
    notes = {"command": shlex.join(["autoauto", *sys.argv[1:]]).replace(args.storage, shown)}
    study = open_study(args.storage, name, objective, fingerprint, notes)
    with progress_bar("search", "tries") as report:
        result = run_search(space, flow.evaluate, study, objective, lambda now: report(*_progress(now)))
        if result.best is None and args.strategy is None and flow.cluster.streaming_memory is not None:
            space = replace(space, strategy=(Strategy.PIPELINE, Strategy.PHASED))
            result = run_search(space, flow.evaluate, study, objective, lambda now: report(*_progress(now)))
    if args.json:
        print_json(describe_result(result, args.storage))
    else:
        if result.best is not None:
            show_best(result.best, result.counts, result.cells, flow.names)
        print(f"study {result.study_name} in {shown}")
    if result.best is None:
        raise Infeasible(f"no configuration fits; the smallest batch size: {result.cells[-1].reason}", 0)
    return 0


def _progress(now: SearchProgress) -> tuple[int, int, str]:
    """What the progress bar shows: tries, and the best so far."""
    best = "" if now.best is None else f"best so far: {now.best.samples_per_s:,.0f} samples/s"
    return now.done, now.total, best


def default_n_ipu(n_devices: int) -> tuple[int, ...]:
    """The default grid over devices, as far as the cluster goes.

    >>> default_n_ipu(4), default_n_ipu(1)
    ((1, 2, 4), (1,))
    """
    return tuple(n for n in (1, 2, 4) if n <= n_devices)


def default_study_name(flow: Flow, objective: Objective, fingerprint: Mapping[str, str]) -> str:
    """What the study is about, and a digest of all that its trials depend on: an equal search resumes it."""
    digest = hashlib.sha256(repr(fingerprint).encode()).hexdigest()
    return f"{flow.graph.name}-{flow.cluster.name}-{objective}-{digest[:6]}"
