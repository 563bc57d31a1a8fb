"""Cut a model into pipeline stages: the exact optimum of max compute + max transfer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from autoauto.cli.commands.plan_queries import Subject, add_questions, best, question
from autoauto.cli.options.model import add_json, add_knobs, add_model, read_knobs
from autoauto.cli.options.targets import open_flow
from autoauto.cli.output.results import describe_flow, print_json, show_infeasible, show_plan
from autoauto.records.errors import BadInput, DoesNotFit
from autoauto.records.knobs import DEFAULT_PLANNING_PROPORTION

EXAMPLE = "plan --model-info profile.json --cluster-info cluster.json --planning-proportion 0.85 --json"

OF_A_MODEL = (
    *("model", "cluster", "headroom", "precision", "synthetic_data", "overlap_io", "partials", "float_operators"),
    *("n_ipu", "memory_proportion", "batch_size", "mode", "estimator"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a model and one configuration, or a profile and a cluster in the seed's own format."""
    add_model(parser)
    add_knobs(parser)
    parser.add_argument(
        "--model-info", type=Path, metavar="FILE", help="plan this profile: the seed's ModelInfo as JSON, or our own"
    )
    parser.add_argument(
        "--cluster-info", type=Path, metavar="FILE", help="plan for these devices, all of them: IPUClusterInfo as JSON"
    )
    parser.add_argument(
        "--config-info",
        type=Path,
        metavar="FILE",
        help="take the planning proportion from the seed's AutoPipelineConfiguration as JSON",
    )
    parser.set_defaults(of_a_model={name: parser.get_default(name) for name in OF_A_MODEL})
    add_questions(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the partition and its costs, or the answer to another question.

    Raises:
        BadInput: options that contradict each other.
    """
    from autoauto.profile.importers.auto_pipeline import planning_proportion_from_upstream
    from autoauto.profile.store.codec import read_json

    if (args.model_info is None) != (args.cluster_info is None):
        raise BadInput("--model-info and --cluster-info go together, got one of them; try both")
    if args.config_info is not None:
        args.planning_proportion = planning_proportion_from_upstream(read_json(args.config_info))
    ignored = [name for name, default in args.of_a_model.items() if getattr(args, name) != default]
    if args.model_info is not None and ignored:
        raise BadInput(f"a profile comes with its model and options, got {', '.join(ignored)} too; leave them out")
    return _plan_model(args) if args.model_info is None else _plan_profile(args)


def _plan_model(args: argparse.Namespace) -> int:
    """Plan a model that is profiled here."""
    from autoauto.plan.pipeline.optimal import optimal
    from autoauto.report.style import ESTIMATED

    flow = open_flow(args)
    knobs = read_knobs(args, flow)
    table = flow.table(knobs)
    if question(args) is best:
        try:
            plan = optimal(table)
        except DoesNotFit as failure:
            return show_infeasible(args, failure)
        return show_plan(args, flow, knobs, plan, ESTIMATED)
    context = describe_flow(flow, knobs) | {"source": ESTIMATED}
    return _answer(args, Subject(table, flow.names, flow.cluster.devices[0].clock_hz, knobs.batch_size), context)


def _plan_profile(args: argparse.Namespace) -> int:
    """Plan a profile that was taken elsewhere."""
    from autoauto.estimate.table import cost_table
    from autoauto.profile.importers.auto_pipeline import cluster_from_upstream, read_profile
    from autoauto.profile.store.codec import read_json

    cluster = cluster_from_upstream(read_json(args.cluster_info))
    profile = read_profile(args.model_info)
    proportion = DEFAULT_PLANNING_PROPORTION if args.planning_proportion is None else args.planning_proportion
    table = cost_table(profile, cluster, proportion, args.overlap)
    return _answer(args, Subject(table, profile.names, cluster.devices[0].clock_hz), {})


def _answer(args: argparse.Namespace, subject: Subject, context: dict[str, Any]) -> int:
    """Print the answer to the question that was asked and its context, or why nothing fits.

    Returns:
        0, or 3 when nothing fits.
    """
    try:
        answer = question(args)(subject, args)
    except DoesNotFit as failure:
        return show_infeasible(args, failure)
    if args.json:
        print_json(context | answer.record)
    else:
        from rich.console import Console

        Console().print(answer.shown)
    return 0 if answer.fits else 3
