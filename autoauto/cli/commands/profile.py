"""Profile every kind of layer of a model at one batch size."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from autoauto.cli.options.model import add_json, add_knobs, add_model, read_knobs
from autoauto.cli.options.targets import open_flow, tell_spread
from autoauto.cli.output.results import print_json, tell_unbounded
from autoauto.records.errors import BadInput

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.records.knobs import Knobs

EXAMPLE = "profile resnet50 --batch-size 16 --output profile.json --format upstream"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a model, a cluster, one configuration and where to keep the profile."""
    add_model(parser)
    add_knobs(parser)
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep the profile as JSON")
    parser.add_argument(
        "--format", choices=["autoauto", "upstream"], default="autoauto", help="form of FILE; upstream: the seed's"
    )
    parser.add_argument(
        "--sweep",
        choices=["memory-proportion"],
        help="instead: cycles and temporary memory at proportions from 0.02 to 1",
    )
    parser.add_argument(
        "--layer", metavar="NAME", help="with --sweep: the layer shown by itself; default: the product of most weights"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the layer profiles, and keep them when asked to."""
    from rich.console import Console

    from autoauto.profile.importers.auto_pipeline import model_profile_to_upstream
    from autoauto.profile.store.codec import save_profile, write_json
    from autoauto.report.text.listings import profile_table
    from autoauto.report.text.progress import progress_bar

    _check(args)
    flow = open_flow(args)
    knobs = read_knobs(args, flow)
    if args.sweep:
        return _sweep(args, flow, knobs)
    tell_unbounded(flow, knobs)
    with progress_bar("profile", "kinds") as progress:
        profile = flow.profile(flow.options(knobs), progress)
    tell_spread(flow)
    if args.output and args.format == "upstream":
        write_json(model_profile_to_upstream(profile), args.output)
    elif args.output:
        save_profile(profile, args.output)
    if args.json:
        print_json(asdict(profile))
    else:
        Console().print(profile_table(profile))
    return 0


def _check(args: argparse.Namespace) -> None:
    """Refuse options that would do nothing."""
    if args.sweep and args.target != "ipu":
        raise BadInput(f"a sweep of memory-proportion is for --target ipu, got {args.target}; leave out --sweep")
    if args.sweep and args.output:
        raise BadInput(f"--output keeps a profile, of which a sweep makes none, got {args.output}; try --json > FILE")
    if args.layer is not None and not args.sweep:
        raise BadInput(f"--layer is for --sweep memory-proportion, got {args.layer!r} without it")
    if args.format != "autoauto" and not args.output:
        raise BadInput(f"--format is that of --output FILE, got {args.format} without a file")


def _sweep(args: argparse.Namespace, flow: Flow, knobs: Knobs) -> int:
    """Print what the bound on temporary memory costs."""
    from rich.console import Console

    from autoauto.cli.commands.profile_sweep import layer_index, sweep, sweep_record, sweep_table

    index = layer_index(flow.graph, args.layer)
    name, swept = flow.names[index], sweep(flow, knobs, index)
    if args.json:
        print_json(sweep_record(swept, name))
    else:
        Console().print(sweep_table(swept, name))
    return 0
