"""Cut a model into pipeline stages: the exact optimum of max compute + max transfer."""

from __future__ import annotations

import argparse
from pathlib import Path

from autoauto.cli.arguments import add_json, add_knobs, add_model, describe_plan, open_flow, print_json, read_knobs
from autoauto.cli.output import show_infeasible, show_plan
from autoauto.records.errors import BadInput, DoesNotFit

EXAMPLE = "plan --model-info profile.json --cluster-info cluster.json --planning-proportion 0.85 --json"


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
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the partition and its costs."""
    if (args.model_info is None) != (args.cluster_info is None):
        raise BadInput("--model-info and --cluster-info go together, got one of them; try both")
    if args.model_info is None:
        from autoauto.report import ESTIMATED

        flow = open_flow(args)
        knobs = read_knobs(args, flow)
        return show_plan(args, flow, knobs, lambda: flow.predict(knobs), ESTIMATED)
    return _plan_profile(args)


def _plan_profile(args: argparse.Namespace) -> int:
    """Plan a profile that was taken elsewhere."""
    from autoauto.estimate import cost_table
    from autoauto.plan import optimal
    from autoauto.profile.upstream import cluster_from_upstream, read_json, read_profile

    cluster = cluster_from_upstream(read_json(args.cluster_info))
    profile = read_profile(args.model_info)
    try:
        plan = optimal(cost_table(profile, cluster, args.planning_proportion))
    except DoesNotFit as failure:
        return show_infeasible(args, failure)
    if args.json:
        print_json(describe_plan(plan))
    else:
        from rich.console import Console

        from autoauto.report import ESTIMATED, stages_table

        Console().print(stages_table(plan, profile.names, ESTIMATED))
    return 0
