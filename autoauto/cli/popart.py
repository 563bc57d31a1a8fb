"""What `autoauto schedule` tells of PopART's pipeline: its program of fragments, its stages, its devices."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from autoauto.cli.arguments import print_json
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order

if TYPE_CHECKING:
    from autoauto.records.pipeline import PipelineGraph


def show_popart(args: argparse.Namespace) -> int:
    """Print the program or a view of the pipeline, by default the program; JSON has all three and what it holds.

    Raises:
        BadInput: another order, or a pipeline that PopART refuses.
    """
    from autoauto.report.pipeline_program import program_text
    from autoauto.report.pipeline_views import devices_view, stages_view
    from autoauto.schedule.transform import transform

    if args.order != Order.POPART:
        raise BadInput(f"--program and --view need --order popart, got {args.order}")
    training = args.mode == "training"
    pipeline = transform(_graph(args), args.micro_batches, training=training, recompute=args.recompute)
    texts = {"program": program_text, "stages": stages_view, "devices": devices_view}
    if args.json:
        print_json(
            {
                "stage_devices": pipeline.devices,
                "n_pipeline_cycles": pipeline.program.n_cycles,
                "stash_entries": list(pipeline.stash_entries.values()),
                "n_copies": len(pipeline.copies),
                **{name: text(pipeline).splitlines() for name, text in texts.items()},
            }
        )
    else:
        asked = ["program"] if args.program or not args.view else []
        asked += [args.view] if args.view else []
        print("\n\n".join(texts[name](pipeline) for name in asked))
    return 0


def poplar_mapping(args: argparse.Namespace) -> tuple[int, ...]:
    """The device of every stage of the pipeline in --pipeline, backward stages too, for Poplar's orders.

    Raises:
        BadInput: another order, or a pipeline that Poplar's plugin refuses.
    """
    from autoauto.schedule.poplar_rules import check_accumulation, poplar_devices

    poplar = (Order.GROUPED, Order.POPLAR_INTERLEAVED, Order.SEQUENTIAL)
    if args.order not in poplar:
        raise BadInput(f"--pipeline is for popart, {', '.join(poplar)}, got {args.order}")
    check_accumulation(args.micro_batches)
    return poplar_devices(_graph(args), training=args.mode == "training")


def _graph(args: argparse.Namespace) -> PipelineGraph:
    from autoauto.profile.store import read_json
    from autoauto.schedule.pipeline_input import read_pipeline, simple_pipeline

    return read_pipeline(read_json(args.pipeline)) if args.pipeline else simple_pipeline(args.stages)
