"""What `search` and `worker` share: who measures, and how a worker elsewhere makes the same flow."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from autoauto.cli.options.numbers import positive, positive_number
from autoauto.cli.options.targets import HOST_ONLY, IPU_ONLY, open_flow
from autoauto.records.errors import BadInput

if TYPE_CHECKING:
    from optuna import Study

    from autoauto.evaluate.flow import Flow
    from autoauto.study.execution.executors import Children, Hands
    from autoauto.study.execution.process import Bounds

RECIPE = "flow"
"""The attribute of a study that says how its flow is made."""
_COMMON = ("model", "target", "cluster", "headroom", "precision", "estimator", "planning_proportion", "overlap")
_INGREDIENTS = (*_COMMON, "constraints", "max_latency_s", *IPU_ONLY, *HOST_ONLY)
_GIB = 2**30
_MOST_BYTES = 2**62  # of a limit that the system takes


def add_bounds(parser: argparse.ArgumentParser) -> None:
    """Take what a measurement in a process of its own may take."""
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
        help="memory that a measuring process may take, in GiB; measures in processes of its own",
    )


def add_workers(parser: argparse.ArgumentParser, default: int | None, otherwise: str) -> None:
    """Take how many processes measure."""
    parser.add_argument(
        "--workers",
        type=positive,
        default=default,
        metavar="N",
        help=f"processes that measure side by side; default: {otherwise}",
    )
    add_bounds(parser)


def add_executor(parser: argparse.ArgumentParser) -> None:
    """Take a cluster of another kind to measure on."""
    parser.add_argument(
        "--executor",
        metavar="dask://HOST:PORT",
        help="measure on a Dask cluster, where a measurement takes as many devices of a worker as it has; "
        "workers are started with dask worker --resources device=N",
    )


def hands_of(args: argparse.Namespace, flow: Flow) -> Hands | None:
    """Who measures by the arguments of a search; None when this process shall.

    Raises:
        BadInput: no such cluster, or several measurements would disturb each other.
        MissingExtra: Dask is asked for and not installed.
    """
    from autoauto.study.execution.dask import DaskHands

    if args.executor is not None:
        kind, _, address = args.executor.partition("://")
        if kind != "dask" or not address:
            raise BadInput(f"an executor is written dask://HOST:PORT, got {args.executor!r}")
        return DaskHands(f"tcp://{address}", flow.evaluate, bounds_of(args), args.workers)
    if args.workers is None and args.time_limit is None and args.memory_limit is None:
        return None
    return children(args, flow)


def children(args: argparse.Namespace, flow: Flow) -> Children:
    """Processes of this machine that measure, one unless the arguments ask for more.

    Raises:
        BadInput: several would disturb each other's measurements.
    """
    from autoauto.study.search import children_of

    return children_of(flow, args.workers or 1, bounds_of(args))


def bounds_of(args: argparse.Namespace) -> Bounds:
    """What a measurement may take by the arguments."""
    from autoauto.study.execution.process import Bounds

    return Bounds(
        args.time_limit, None if args.memory_limit is None else int(min(args.memory_limit * _GIB, _MOST_BYTES))
    )


def recipe(args: argparse.Namespace) -> str:
    """The arguments that make the flow, as JSON; files by their absolute paths."""
    told = {name: getattr(args, name) for name in _INGREDIENTS}
    for name in ("model", "cluster"):
        if told[name] is not None and Path(told[name]).is_file():
            told[name] = str(Path(told[name]).resolve())
    return json.dumps(told)


def flow_of(study: Study, storage: str, elsewhere: Mapping[str, str]) -> Flow:
    """The flow of a study, made here; `elsewhere` names the model or cluster where their files lie on this machine.

    Raises:
        BadInput: something that the study's trials depend on is not the same here.
    """
    known = study.user_attrs
    if RECIPE not in known:
        raise BadInput(f"study {study.study_name!r} does not say how to measure; `autoauto search` makes one that does")
    told = {"headroom": 0.0} | json.loads(known[RECIPE]) | elsewhere
    if lacking := [name for name in (*_COMMON, *IPU_ONLY, *HOST_ONLY) if name not in told]:
        raise BadInput(f"study {study.study_name!r} does not say its {', '.join(lacking)}; search anew by another name")
    flow = open_flow(argparse.Namespace(**told, storage=storage))
    for field, value in flow.fingerprint().items():
        if known.get(field) != value:
            raise BadInput(
                f"study {study.study_name!r} has {field} {known.get(field)!r}, this machine has {value!r}; "
                "workers need the same model, cluster and version of autoauto"
            )
    return flow
