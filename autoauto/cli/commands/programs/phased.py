"""Run a model in phases on one device.

Variables and activations lie in streaming memory.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autoauto.cli.options.model import add_knob, add_model, one_switch, one_value, open_flow
from autoauto.cli.output.lines import add_json, print_assumed, print_json, show, warn
from autoauto.cli.output.plans import describe_phases, show_infeasible
from autoauto.records.errors import BadInput, DoesNotFit
from autoauto.records.plans.phased import DEFAULT_IO_TILES, IoMode, PhasedOptions, PhasedPlan
from autoauto.records.target import Origin
from autoauto.records.units import format_number
from autoauto.space.knobs import Knobs
from autoauto.space.modes.phased import Phased
from autoauto.space.space import SearchSpace
from autoauto.targets.ipu.session import IpuSession

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow

EXAMPLE = "phased bert-large-128 --cluster bow-2000 --steps 64 --io-mode io_overlapped"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a model, its target, and how its phases run."""
    add_model(parser)
    for knob in ("steps", "memory_proportion", "batch_size"):
        add_knob(parser, knob)
    parser.add_argument(
        "--io-mode",
        choices=[str(mode) for mode in IoMode],
        default=str(IoMode.IO),
        help="which tiles load and store: compute tiles, IO tiles, or IO tiles while the others compute; "
        "default %(default)s",
    )
    parser.add_argument(
        "--io-tiles",
        type=int,
        default=DEFAULT_IO_TILES,
        metavar="N",
        help="tiles that load and store and do not compute; default %(default)s",
    )
    devices = "devices that run the same phases on other data, each with a shard of the variables"
    add_knob(parser, "replicas", devices)
    parser.add_argument("--mode", choices=["inference", "training"], default="inference", help="default %(default)s")
    add_knob(parser, "recompute", "backward phases run forward again instead of loading its activations")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the phases, their buffers, and their time compared with a loop that loads variables at every step.

    Returns:
        0, or 3 when some layers fit no phase.
    """
    recompute = one_switch(args, "recompute")
    if recompute and args.mode == "inference":
        raise BadInput("recompute is for training, got --mode inference; try --mode training")
    options = PhasedOptions(
        one_value(args, "steps"), IoMode(args.io_mode), args.io_tiles, one_value(args, "replicas"), recompute
    )
    flow = open_flow(args)
    if Phased not in flow.setting.modes:
        raise BadInput(f"phases are planned for --target ipu, got {flow.cluster.target}, which has no streaming memory")
    session = IpuSession(one_value(args, "memory_proportion"))
    mode = Phased(options.steps, options.recompute, training=args.mode == "training")
    knobs = Knobs(1, one_value(args, "batch_size"), mode=mode, session=session)
    flow.checked(SearchSpace((1,), (session.memory_proportion,), (knobs.batch_size,)))
    try:
        plan = flow.phases.plan(knobs, options)
    except DoesNotFit as failure:
        return show_infeasible(args, failure)
    if plan.warning:
        warn(f"warning: {plan.warning}")
    if args.json:
        print_json(_describe(flow, knobs, options, plan))
    else:
        _show(flow, knobs, plan)
    return 0


def _describe(flow: Flow, knobs: Knobs, options: PhasedOptions, plan: PhasedPlan) -> dict[str, Any]:
    clock_hz = flow.cluster.clock_hz
    return {
        "model": flow.graph.name,
        "cluster": flow.cluster.name,
        "precision": str(flow.setting.precision),
        "batch_size": knobs.batch_size,
        "memory_proportion": knobs.session.values["memory_proportion"],
        "training": knobs.training,
        **asdict(options),
        "warning": plan.warning,
        "assumed": list(flow.setting.notes),
        "source": Origin.ESTIMATED,
        "samples_per_s": plan.samples_per_s(knobs.batch_size, clock_hz),
        "naive_samples_per_s": plan.samples_per_s(knobs.batch_size, clock_hz, naive=True),
        **describe_phases(plan),
    }


def _show(flow: Flow, knobs: Knobs, plan: PhasedPlan) -> None:
    from autoauto.report.tables.plans import buffers_table, phases_table

    clock_hz = flow.cluster.clock_hz
    show(phases_table(plan, Origin.ESTIMATED), "", buffers_table(plan))
    speeds = [plan.samples_per_s(knobs.batch_size, clock_hz, naive=naive) for naive in (False, True)]
    show(f"throughput: {format_number(speeds[0])} samples/s, naive loop {format_number(speeds[1])}, {Origin.ESTIMATED}")
    print_assumed(flow.setting.notes)
