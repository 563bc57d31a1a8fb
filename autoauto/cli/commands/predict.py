"""Predict one configuration from layer profiles; nothing is measured."""

from __future__ import annotations

import argparse

from autoauto.cli.options.model import add_configuration, read_knobs
from autoauto.cli.options.targets import open_flow
from autoauto.cli.output.results import show_infeasible, show_plan, tell_unbounded
from autoauto.records.errors import DoesNotFit

EXAMPLE = "predict resnet50 --cluster c600 --n-ipu 1 --batch-size 16 --precision fp16 --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a model, a cluster and one configuration."""
    add_configuration(parser)


def run(args: argparse.Namespace) -> int:
    """Print whether the configuration fits, its plan and its throughput, as estimated."""
    from autoauto.report.style import ESTIMATED

    flow = open_flow(args)
    knobs = read_knobs(args, flow, args.replicas)
    tell_unbounded(flow, knobs)
    try:
        plan = flow.predict(knobs)
    except DoesNotFit as failure:
        return show_infeasible(args, failure)
    return show_plan(args, flow, knobs, plan, ESTIMATED)
