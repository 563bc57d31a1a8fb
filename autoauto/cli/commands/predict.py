"""Predict one configuration from layer profiles.

Nothing is measured.
"""

from __future__ import annotations

import argparse

from autoauto.cli.options.model import add_configuration, add_profile, open_flow, requested_knobs
from autoauto.cli.output.plans import show_infeasible, show_plan, warn_unbounded
from autoauto.records.errors import DoesNotFit
from autoauto.records.target import Origin

EXAMPLE = "predict resnet50 --cluster c600 --n-ipu 1 --batch-size 16 --precision fp16 --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a model, a cluster and one configuration, or a profile in place of measurements."""
    add_configuration(parser)
    add_profile(parser)


def run(args: argparse.Namespace) -> int:
    """Print the plan of the configuration and its estimated throughput, or why it does not fit."""
    flow = open_flow(args)
    knobs = requested_knobs(args, flow)
    warn_unbounded(flow, knobs)
    try:
        plan = flow.predict(knobs)
    except DoesNotFit as failure:
        return show_infeasible(args, failure)
    return show_plan(args, flow, knobs, plan, Origin.ESTIMATED)
