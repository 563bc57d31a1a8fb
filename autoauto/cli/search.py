"""Find the configuration with the highest throughput; every trial is kept, a stopped search goes on where it was."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from autoauto.cli.arguments import (
    add_json,
    add_model,
    add_storage,
    integers,
    open_flow,
    print_json,
    proportions,
)
from autoauto.cli.output import describe_result
from autoauto.records.trial import Objective, SearchSpace

if TYPE_CHECKING:
    from autoauto.flow import Flow

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
    from autoauto.report import search_progress
    from autoauto.search import open_study, run_search

    flow = open_flow(args)
    space = SearchSpace(args.n_ipu or default_n_ipu(len(flow.cluster)), args.memory_proportion, args.batch_size)
    flow.check(space)
    objective = Objective(args.objective)
    study = open_study(args.storage, args.study_name or study_name(flow, objective), objective, flow.fingerprint())
    with search_progress() as progress:
        result = run_search(space, flow.evaluate, study, objective, progress)
    if args.json:
        print_json(describe_result(result))
    else:
        show_result(result, flow)
    return 0 if result.best else 3


def default_n_ipu(n_devices: int) -> tuple[int, ...]:
    """The default grid over devices, as far as the cluster goes.

    >>> default_n_ipu(4), default_n_ipu(1)
    ((1, 2, 4), (1,))
    """
    return tuple(n for n in (1, 2, 4) if n <= n_devices)


def study_name(flow: Flow, objective: Objective) -> str:
    """The default name: what the study is about."""
    return f"{flow.graph.name}-{flow.cluster.name}-{flow.precision}-{objective}"
