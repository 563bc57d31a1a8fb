"""`autoauto schedule` for PopART's pipeline: its program of fragments, its stages, its devices [popart-pipelining]."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from autoauto.cli.options.model import one_switch
from autoauto.cli.output.lines import print_json, print_line
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order

if TYPE_CHECKING:
    from autoauto.programs.popart.graph import PopartPipeline

DEFAULT_STAGES = 4
SIMULATION_ARGUMENTS = ("stages", "html", "trace", "csv", "bubble_checks", "chunks", "max_in_flight", "stage_to_device")


def show_pipeline(args: argparse.Namespace) -> int:
    """Print the pipeline of layers in a file: the views that the arguments ask for, by default its program."""
    given = [name for name in SIMULATION_ARGUMENTS if getattr(args, name)]
    if given:
        raise BadInput(f"a pipeline of layers is transformed, not simulated; leave out {', '.join(given)}")
    if args.json:
        print_json(describe_popart(args))
    else:
        args.program = args.program or not args.view
        print_popart(args)
    return 0


def describe_popart(args: argparse.Namespace) -> dict[str, Any]:
    """The pipeline as plain values."""
    from autoauto.programs.popart.transform import devices_view, program_text, stages_view

    pipeline = _pipeline(args)
    return {
        "stage_devices": pipeline.devices,
        "n_pipeline_cycles": pipeline.program.n_cycles,
        "stash_entries": list(pipeline.stash_entries.values()),
        "n_copies": len(pipeline.copies),
        "program": program_text(pipeline).splitlines(),
        "stages_view": stages_view(pipeline).splitlines(),
        "devices_view": devices_view(pipeline).splitlines(),
    }


def print_popart(args: argparse.Namespace) -> None:
    """Print the program, a view, or both."""
    from autoauto.programs.popart.transform import devices_view, program_text, stages_view

    pipeline = _pipeline(args)
    texts = [program_text(pipeline)] if args.program else []
    if args.view:
        texts.append(stages_view(pipeline) if args.view == "stages" else devices_view(pipeline))
    print_line("\n\n".join(texts))


def poplar_mapping(args: argparse.Namespace) -> tuple[int, ...]:
    """The device of every stage of --pipeline, also of backward stages, for the orders of Poplar [poplar-tensorflow].

    Raises:
        BadInput: another order, or a pipeline that the TensorFlow plugin refuses.
    """
    from autoauto.programs.popart.input import read_pipeline
    from autoauto.programs.popart.tensorflow_plugin import check_accumulation, poplar_devices
    from autoauto.records.files.json import read_json
    from autoauto.schedule.orders.registry import spec_of

    takers = [order for order in Order if spec_of(order).takes_stage_devices]
    if args.schedule not in takers:
        raise BadInput(f"--pipeline is for popart, {', '.join(takers)}, got {args.schedule}")
    check_accumulation(args.n_micro_batches)
    return poplar_devices(read_pipeline(read_json(args.pipeline)), training=args.mode == "training")


def _pipeline(args: argparse.Namespace) -> PopartPipeline:
    """The layers of a file, or one per device, as PopART pipelines them."""
    from autoauto.programs.popart.input import read_pipeline, simple_pipeline
    from autoauto.programs.popart.transform import transform
    from autoauto.records.files.json import read_json

    if args.schedule != Order.POPART:
        raise BadInput(f"--program and --view need --schedule popart, got {args.schedule}")
    graph = read_pipeline(read_json(args.pipeline)) if args.pipeline else simple_pipeline(args.stages or DEFAULT_STAGES)
    recompute = one_switch(args, "recompute")
    return transform(graph, args.n_micro_batches, training=args.mode == "training", recompute=recompute)
