"""Plan one configuration and measure it: run on the target's devices, or every stage compiled whole by its model."""

from __future__ import annotations

import argparse

from autoauto.cli.options.model import add_configuration, read_knobs
from autoauto.cli.options.targets import open_flow
from autoauto.cli.output.results import show_infeasible, show_plan, tell_unbounded
from autoauto.records.errors import DoesNotFit

EXAMPLE = "measure bert-base-128 --n-ipu 2 --batch-size 8"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a model, a cluster and one configuration."""
    add_configuration(parser)


def run(args: argparse.Namespace) -> int:
    """Print whether the configuration fits, its plan and its throughput, as measured."""
    from autoauto.report.style import measured_by

    flow = open_flow(args)
    knobs = read_knobs(args, flow, args.replicas)
    tell_unbounded(flow, knobs)
    try:
        run = flow.measure(knobs, flow.worth_trying(knobs))
    except DoesNotFit as failure:
        return show_infeasible(args, failure)
    return show_plan(args, flow, knobs, run.plan, measured_by(flow.target.version), run)
