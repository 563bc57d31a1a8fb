"""Cut a model into pipeline stages: the exact optimum of max compute + max transfer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoauto.cli.commands.plan_queries import QuerySubject, add_queries, best_plan, requested_query
from autoauto.cli.options.model import add_knobs, add_model, one_value, requested_knobs
from autoauto.cli.options.targets import config_of, open_flow
from autoauto.cli.options.values import positive_number
from autoauto.cli.output.json_output import add_json, print_json
from autoauto.cli.output.plans import describe_configuration, show_imported, show_infeasible, show_plan
from autoauto.records.errors import BadInput, DoesNotFit
from autoauto.records.hardware import Period
from autoauto.records.knobs import DEFAULT_PLANNING_PROPORTION
from autoauto.records.target import Origin
from autoauto.targets.registry import default_options

if TYPE_CHECKING:
    from autoauto.profile.importers.imported import ImportedGraph

EXAMPLE = "plan --model-info profile.json --cluster-info cluster.json --planning-proportion 0.85 --json"

MODEL_ARGUMENTS = (
    *("model", "cluster", "headroom", "precision", *default_options()),
    *("n_ipu", "memory_proportion", "batch_size", "mode", "estimator"),
)
"""Arguments that a profile from a file excludes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a model and one configuration, or a profile and a cluster in the format of [auto-pipeline]."""
    add_model(parser)
    add_knobs(parser, without=("replicas",))
    parser.add_argument(
        "--model-info",
        type=Path,
        metavar="FILE",
        help="plan this profile: ModelInfo of Graphcore's auto_pipeline as JSON, or a profile of `autoauto profile`",
    )
    parser.add_argument(
        "--cluster-info",
        type=Path,
        metavar="FILE",
        help="plan for all devices of this cluster: IPUClusterInfo of Graphcore's auto_pipeline as JSON",
    )
    parser.add_argument(
        "--config-info",
        type=Path,
        metavar="FILE",
        help="read the planning proportion from this AutoPipelineConfiguration of Graphcore's auto_pipeline as JSON",
    )
    _add_profile(parser)
    parser.set_defaults(model_arguments={name: parser.get_default(name) for name in MODEL_ARGUMENTS})
    add_queries(parser)
    add_json(parser)


def _add_profile(parser: argparse.ArgumentParser) -> None:
    """Add a profile of another program, with the devices that it describes."""
    group = parser.add_argument_group("profiles of other programs")
    group.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="plan this profile on the devices of its file, all or fewer; of PipeDream on --n-ipu devices; of PipeEdge "
        "the folder with its three files, and MODEL is one of its models",
    )
    group.add_argument("--profile-format", choices=list(PROFILE_FORMATS), help="the program that the profile is of")
    group.add_argument(
        "--stage-replicas",
        action="store_true",
        help="several devices may run one stage, and take micro-batches in turn",
    )
    group.add_argument(
        "--link-bytes-per-s",
        type=positive_number,
        default=inf,
        metavar="RATE",
        help="of the links between devices, for a profile of PipeDream; default: transfers take no time",
    )


def run(args: argparse.Namespace) -> int:
    """Print the partition and its costs, or the answer to another query.

    Raises:
        BadInput: options that contradict each other.
    """
    from autoauto.profile.importers.auto_pipeline import planning_proportion_from_auto_pipeline
    from autoauto.records.codec import read_json

    if args.profile is not None or args.profile_format is not None:
        return _plan_imported(args)
    if (args.model_info is None) != (args.cluster_info is None):
        raise BadInput("--model-info and --cluster-info go together, got one of them; try both")
    if args.config_info is not None:
        args.planning_proportion = planning_proportion_from_auto_pipeline(
            read_json(args.config_info), str(args.config_info)
        )
    ignored = [name for name, default in args.model_arguments.items() if getattr(args, name) != default]
    if args.model_info is not None and ignored:
        raise BadInput(f"a profile comes with its model and options, got {', '.join(ignored)} too; leave them out")
    return _plan_model(args) if args.model_info is None else _plan_profile(args)


def _plan_model(args: argparse.Namespace) -> int:
    """Plan a model that is profiled here."""
    from autoauto.plan.pipeline.optimal import optimal

    flow = open_flow(args)
    knobs = requested_knobs(args, flow)
    table = flow.table(knobs)
    if requested_query(args) is best_plan:
        try:
            plan = optimal(table)
        except DoesNotFit as failure:
            return show_infeasible(args, failure)
        return show_plan(args, flow, knobs, plan, Origin.ESTIMATED)
    context = describe_configuration(flow, knobs) | {"source": Origin.ESTIMATED}
    subject = QuerySubject(table, flow.names, flow.cluster.devices[0].clock_hz, knobs.batch_size)
    return _answer(args, subject, context)


def _plan_profile(args: argparse.Namespace) -> int:
    """Plan a profile from a file."""
    from autoauto.estimate.table import cost_table
    from autoauto.profile.importers.auto_pipeline import cluster_from_auto_pipeline, read_profile
    from autoauto.records.codec import read_json

    cluster = cluster_from_auto_pipeline(read_json(args.cluster_info), str(args.cluster_info))
    profile = read_profile(args.model_info)
    proportion = DEFAULT_PLANNING_PROPORTION if args.planning_proportion is None else args.planning_proportion
    table = cost_table(profile, cluster, proportion, Period(config_of(args).period or Period.BARRIER))
    return _answer(args, QuerySubject(table, profile.names, cluster.devices[0].clock_hz), {})


def _plan_imported(args: argparse.Namespace) -> int:
    """Plan a profile of another program."""
    from autoauto.evaluate.imported import ImportedPlanner

    if args.profile is None or args.profile_format is None:
        raise BadInput("--profile and --profile-format go together, got one of them; try both")
    if requested_query(args) is not best_plan:
        raise BadInput("a profile of another program has the best plan only; leave the other query out")
    graph = PROFILE_FORMATS[args.profile_format](args)
    for note in graph.notes:
        print(f"autoauto: {note}", file=sys.stderr)
    period, proportion = config_of(args).period, args.planning_proportion
    planner = ImportedPlanner(
        None if period is None else Period(period), 1.0 if proportion is None else proportion, args.stage_replicas
    )
    try:
        _, imported, bounded = planner.best(graph)
    except DoesNotFit as failure:
        return show_infeasible(args, failure)
    show_imported(args, imported, bounded)
    return 0


def _read_dnn_partitioning(args: argparse.Namespace) -> ImportedGraph:
    from autoauto.profile.importers.dnn_partitioning import read_dnn_partitioning

    return read_dnn_partitioning(args.profile)


def _read_pipedream(args: argparse.Namespace) -> ImportedGraph:
    from autoauto.profile.importers.pipedream import read_pipedream
    from autoauto.records.hardware import Link

    return read_pipedream(args.profile, one_value(args, "n_ipu"), Link(args.link_bytes_per_s, 0))


def _read_pipeedge(args: argparse.Namespace) -> ImportedGraph:
    from autoauto.profile.importers.pipeedge import read_pipeedge

    return read_pipeedge(args.profile, None if args.model == args.model_arguments["model"] else args.model)


PROFILE_FORMATS: dict[str, Callable[[argparse.Namespace], ImportedGraph]] = {
    "dnn-partitioning": _read_dnn_partitioning,
    "pipedream": _read_pipedream,
    "pipeedge": _read_pipeedge,
}
"""The programs whose profiles can be planned, and what reads the profile of the arguments."""


def _answer(args: argparse.Namespace, subject: QuerySubject, context: dict[str, Any]) -> int:
    """Print the answer to the query and its context, or why nothing fits.

    Returns:
        0, or 3 when nothing fits.
    """
    try:
        answer = requested_query(args)(subject, args)
    except DoesNotFit as failure:
        return show_infeasible(args, failure)
    if args.json:
        print_json(context | answer.record)
    else:
        from autoauto.report.tables.terminal import show

        show(*answer.shown)
    return 0 if answer.fits else 3
