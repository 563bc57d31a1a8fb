"""Options for the target and its devices, and the flow that they open: `add_target`, `open_flow`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from autoauto.cli.options.values import at_most, choices_of, positive_number, share
from autoauto.cli.output.lines import warn
from autoauto.records.profile import HostPrecision
from autoauto.records.units import MAX_MIB, Precision
from autoauto.targets.registry import DEFAULT_TARGET, TARGETS

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.evaluate.flow_config import FlowConfig
    from autoauto.targets.target import NamedTarget


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add a target, a cluster, and how both are used."""
    default = TARGETS[DEFAULT_TARGET]
    others = [entry for entry in TARGETS.values() if entry is not default]
    clusters, precisions = (
        "".join(f", or {getattr(entry, name)} for --target {entry.name}" for entry in others)
        for name in ("default_cluster", "default_precision")
    )
    parser.add_argument(
        "--target",
        choices=sorted(TARGETS),
        default=DEFAULT_TARGET,
        help="; ".join(f"{entry.name}: {entry.summary}" for entry in TARGETS.values()) + "; default %(default)s",
    )
    parser.add_argument(
        "--cluster",
        metavar="NAME|FILE",
        help="a built-in cluster (see `autoauto clusters`), a TOML file, or Graphcore's IPUClusterInfo as JSON; "
        f"default {default.default_cluster}{clusters}",
    )
    parser.add_argument(
        "--precision",
        type=choices_of((*Precision, HostPrecision.BF16, HostPrecision.TF32)),
        metavar="|".join(Precision),
        help=f"format of weights and activations; default {default.default_precision}{precisions}, where it is the "
        f"format in which the runtime computes: {' or '.join(HostPrecision)}, in a search several with commas",
    )
    parser.add_argument(
        "--headroom",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="share of every device's memory that stays free; default %(default)g",
    )
    parser.add_argument(
        "--device-memory-gib",
        type=positive_number,
        metavar="GIB",
        help="memory of a device in GiB: with --target host of a core besides the runtime, by default an equal part of "
        "this machine's; with --profile of each of --devices",
    )
    for entry in TARGETS.values():
        _add_options(parser.add_argument_group(f"for --target {entry.name}"), entry)


def _add_options(group: argparse._ArgumentGroup, entry: NamedTarget) -> None:
    """Add the options that only one target has."""
    links: dict[str | None, argparse._MutuallyExclusiveGroup] = {
        option.excludes: group.add_mutually_exclusive_group() for option in entry.options if option.excludes
    }
    for option in entry.options:
        owner = links.get(option.excludes) or links.get(option.name) or group
        if option.kind is bool:
            owner.add_argument(option.flag, action="store_true", help=option.help)
            continue
        owner.add_argument(
            option.flag,
            type=at_most(MAX_MIB) if option.kind is int else str,
            default=option.default,
            choices=[str(choice) for choice in option.choices] or None,
            metavar=option.metavar,
            help=option.help or argparse.SUPPRESS,
        )


def config_of(args: argparse.Namespace) -> FlowConfig:
    """The names, files and options that make a flow."""
    from autoauto.evaluate.flow_config import FlowConfig

    return FlowConfig.of(vars(args))


def open_flow(args: argparse.Namespace) -> Flow:
    """The model on the cluster of the arguments.

    Raises:
        BadInput: no such model or cluster, one that cannot be read, or an option of another target.
    """
    if args.device_memory_mib is not None:
        warn("--device-memory-mib is now --device-memory-gib; the next version has no --device-memory-mib")
    flow = config_of(args).open(getattr(args, "storage", None))
    for note in flow.notes:
        warn(note)
    return flow
