"""Plan one configuration and measure it.

On the devices of the target, or by its cost model stage by stage.
"""

from __future__ import annotations

import argparse

from autoauto.cli.options.model import add_configuration, open_flow, requested_knobs
from autoauto.cli.options.values import integers
from autoauto.cli.output.plans import show_infeasible, show_plan, warn_unbounded
from autoauto.records.errors import DoesNotFit

EXAMPLE = "measure bert-base-128 --n-ipu 2 --batch-size 8"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a model, a cluster and one configuration."""
    add_configuration(parser)
    parser.add_argument(
        "--partition",
        type=integers,
        metavar="0,A,B,N",
        help="the first layer of every stage, and the number of layers; default: the best by the estimate",
    )


def run(args: argparse.Namespace) -> int:
    """Print the plan of the configuration and its measured throughput, or why it does not fit."""
    flow = open_flow(args)
    knobs = requested_knobs(args, flow)
    warn_unbounded(flow, knobs)
    try:
        plan = flow.plans.cut_at(knobs, args.partition) if args.partition else flow.pipelines.plan_to_measure(knobs)
        run = flow.measure(knobs, plan)
    except DoesNotFit as failure:
        return show_infeasible(args, failure)
    return show_plan(args, flow, knobs, run.plan, flow.traits.origin, run)
