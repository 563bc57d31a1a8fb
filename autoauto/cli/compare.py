"""Hold estimated costs against measured ones, stage by stage and category by category."""

from __future__ import annotations

import argparse

from autoauto.cli.arguments import add_configuration, open_flow, print_json, read_knobs
from autoauto.cli.output import show_infeasible
from autoauto.records.errors import DoesNotFit

EXAMPLE = "compare resnet50 --n-ipu 2 --batch-size 16"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a model, a cluster and one configuration."""
    add_configuration(parser)


def run(args: argparse.Namespace) -> int:
    """Print every stage's estimate beside its measured value."""
    from rich.console import Console

    from autoauto.report import compare_rows, compare_table

    flow = open_flow(args)
    knobs = read_knobs(args, flow)
    try:
        estimated = flow.predict(knobs)
        measured = flow.measure(knobs, estimated)
    except DoesNotFit as failure:
        return show_infeasible(args, failure)
    speeds = (flow.samples_per_s(knobs, estimated), flow.samples_per_s(knobs, measured))
    if args.json:
        print_json(
            {"fits": True, "partition": list(estimated.partition), "rows": compare_rows(estimated, measured, speeds)}
        )
    else:
        Console().print(compare_table(estimated, measured, speeds))
    return 0
