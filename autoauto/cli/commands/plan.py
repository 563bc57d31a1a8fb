"""Cut a model into pipeline stages: the exact optimum of max compute + max transfer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from autoauto.cli.commands.plan_queries import QuerySubject, add_queries, best_plan, requested_query
from autoauto.cli.options.model import add_knobs, add_model, requested_knobs
from autoauto.cli.options.targets import open_flow
from autoauto.cli.output.json_output import add_json, print_json
from autoauto.cli.output.plans import describe_configuration, show_infeasible, show_plan
from autoauto.records.errors import BadInput, DoesNotFit
from autoauto.records.knobs import DEFAULT_PLANNING_PROPORTION
from autoauto.records.target import Origin
from autoauto.targets.registry import default_options

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
    parser.set_defaults(model_arguments={name: parser.get_default(name) for name in MODEL_ARGUMENTS})
    add_queries(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the partition and its costs, or the answer to another query.

    Raises:
        BadInput: options that contradict each other.
    """
    from autoauto.profile.importers.auto_pipeline import planning_proportion_from_auto_pipeline
    from autoauto.records.codec import read_json

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
    table = cost_table(profile, cluster, proportion, args.overlap)
    return _answer(args, QuerySubject(table, profile.names, cluster.devices[0].clock_hz), {})


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
