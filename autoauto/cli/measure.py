"""Plan one configuration and measure it: every stage compiled whole."""

from __future__ import annotations

import argparse

from autoauto.cli.arguments import add_configuration, open_flow, read_knobs
from autoauto.cli.bound import tell_unbounded
from autoauto.cli.output import show_plan

EXAMPLE = "measure bert-base-128 --n-ipu 2 --batch-size 8"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a model, a cluster and one configuration."""
    add_configuration(parser)


def run(args: argparse.Namespace) -> int:
    """Print whether the configuration fits, its plan and its throughput, as measured."""
    from autoauto.report import MEASURED

    flow = open_flow(args)
    knobs = read_knobs(args, flow)
    tell_unbounded(flow, knobs)
    return show_plan(args, flow, knobs, lambda: flow.measure(knobs, flow.predict(knobs)), MEASURED)
