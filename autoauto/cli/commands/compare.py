"""Compare estimated, simulated and measured costs.

Stage by stage and category by category.
"""

from __future__ import annotations

import argparse

from autoauto.cli.options.model import add_configuration, open_flow, requested_knobs
from autoauto.cli.output.lines import print_assumed, print_json, show
from autoauto.cli.output.plans import show_infeasible
from autoauto.records.errors import DoesNotFit

EXAMPLE = "compare resnet50 --n-ipu 2 --batch-size 16"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a model, a cluster and one configuration."""
    add_configuration(parser)


def run(args: argparse.Namespace) -> int:
    """Print the estimated, simulated and measured costs of every stage side by side."""
    from autoauto.report.tables.compare import Speeds, compare_rows, compare_table

    flow = open_flow(args)
    knobs = requested_knobs(args, flow)
    try:
        estimated = flow.pipelines.plan_to_measure(knobs)
        run = flow.measure(knobs, estimated)
        estimated = estimated.in_order_of(run.plan)
    except DoesNotFit as failure:
        return show_infeasible(args, failure)
    simulated = flow.timeline(knobs, estimated)
    speeds = Speeds(
        flow.samples_per_s(knobs, estimated),
        flow.plans.mode(knobs).simulated_samples_per_s(knobs, simulated, estimated),
        flow.pipelines.measured_samples_per_s(knobs, run),
    )
    notes = flow.setting.notes_of([knobs])
    if args.json:
        rows = compare_rows(estimated, simulated, run, speeds)
        plan = {"fits": True, "partition": list(estimated.partition), "core_fraction": run.core_fraction}
        print_json(plan | {"rows": rows, "assumed": list(notes)})
    else:
        show(compare_table(estimated, simulated, run, speeds, flow.traits.origin, flow.setting.shown_clock_hz))
        print_assumed(notes)
    return 0
