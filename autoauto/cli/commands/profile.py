"""Profile every kind of layer of a model at one batch size."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from autoauto.cli.options.model import add_knobs, add_model, requested_knobs
from autoauto.cli.options.targets import open_flow
from autoauto.cli.output.json_output import add_json, print_json
from autoauto.cli.output.lines import warn
from autoauto.cli.output.plans import warn_unbounded
from autoauto.records.errors import BadInput

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.records.knobs.knobs import Knobs

EXAMPLE = "profile resnet50 --batch-size 16 --output profile.json --format upstream"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a model, a cluster, one configuration, and a file for the profile."""
    add_model(parser)
    add_knobs(parser, without=("replicas", "stage_replicas"))
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the profile as JSON")
    parser.add_argument(
        "--format",
        choices=["autoauto", "upstream"],
        default="autoauto",
        help="format of FILE; upstream: ModelInfo of Graphcore's auto_pipeline",
    )
    parser.add_argument(
        "--sweep",
        choices=["memory-proportion"],
        help="print cycles and temporary memory at proportions from 0.02 to 1 instead",
    )
    parser.add_argument(
        "--layer", metavar="NAME", help="with --sweep: a layer to show by itself; default: the product of most weights"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the layer profiles; write them when --output is given."""
    from autoauto.exporters.graphcore.auto_pipeline import profile_to_auto_pipeline
    from autoauto.profile.store.codec import profile_record, save_profile
    from autoauto.records.files.json import write_json
    from autoauto.report.tables.listings import profile_table
    from autoauto.report.tables.terminal import show
    from autoauto.report.text.progress import progress_bar

    _check(args)
    flow = open_flow(args)
    flow.check_one_kind("a profile")
    knobs = requested_knobs(args, flow)
    if args.sweep:
        return _sweep(args, flow, knobs)
    warn_unbounded(flow, knobs)
    with progress_bar("profile", "kinds") as progress:
        profile = flow.profile(flow.options(knobs), progress)
    _print_spread(flow)
    if args.output and args.format == "upstream":
        write_json(profile_to_auto_pipeline(profile), args.output)
    elif args.output:
        save_profile(profile, args.output)
    if args.json:
        print_json(profile_record(profile))
    else:
        show(profile_table(profile, flow.traits.origin))
    return 0


def _check(args: argparse.Namespace) -> None:
    """Refuse options that would do nothing.

    Raises:
        BadInput: there is one.
    """
    if args.sweep and args.output:
        raise BadInput(f"--output writes a profile, and a sweep has none, got {args.output}; try --json > FILE")
    if args.layer is not None and not args.sweep:
        raise BadInput(f"--layer is for --sweep memory-proportion, got {args.layer!r} without it")
    if args.format != "autoauto" and not args.output:
        raise BadInput(f"--format is that of --output FILE, got {args.format} without a file")


def _print_spread(flow: Flow) -> None:
    """Print on stderr how much repeated measurements on this machine differ; nothing where none was made."""
    from autoauto.targets.host.measure.worker import spread_line
    from autoauto.targets.host.target import HostTarget

    if isinstance(flow.target, HostTarget) and flow.target.measurements:
        warn(spread_line(flow.target.measurements))


def _sweep(args: argparse.Namespace, flow: Flow, knobs: Knobs) -> int:
    """Print cycles and temporary memory at every memory proportion."""
    from autoauto.cli.commands.profile_sweep import layer_index, sweep, sweep_record, sweep_table
    from autoauto.report.tables.terminal import show
    from autoauto.targets.ipu.target import IpuTarget

    if not isinstance(flow.target, IpuTarget):
        raise BadInput(f"a sweep of memory-proportion is for --target ipu, got {args.target}; leave out --sweep")
    index = layer_index(flow.graph, args.layer)
    name, rows = flow.names[index], sweep(flow, knobs, index)
    if args.json:
        print_json(sweep_record(rows, name))
    else:
        show(sweep_table(rows, name))
    return 0
