"""Simulate and draw an order of micro-batches."""

from __future__ import annotations

import argparse
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

from autoauto.cli.options.model import add_knob, one_switch
from autoauto.cli.options.values import at_most, integers
from autoauto.cli.output.lines import add_json, print_assumed, print_json, print_line, show
from autoauto.exporters.schedule_csv import write_schedule_csv
from autoauto.programs.popart.graph import PopartPipeline
from autoauto.programs.popart.transform import devices_view, program_text, stages_view, transform
from autoauto.records.errors import BadInput
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import MAX_FORWARDS, MAX_STAGES, WEIGHT, Order, Schedule, StageTimes, Transfers
from autoauto.report.text import timeline_picture
from autoauto.report.trace import write_chrome_trace
from autoauto.schedule.csv_checks import hang_of_waiting_sends, read_actions, schedule_of
from autoauto.schedule.orders.one_f_one_b import with_bubble_checks
from autoauto.schedule.orders.poplar import execution_order, require_mapping
from autoauto.schedule.orders.registry import check_size, make_schedule, spec_of, stage_devices_of
from autoauto.schedule.simulate.barrier import slots
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.stash import stash_entries
from autoauto.schedule.times import stage_times

EXAMPLE = "schedule --schedule 1f1b --stages 4 --n-micro-batches 8 --forward-cycles 1 --backward-cycles 2"

Cycles = tuple[Fraction, ...]

DEFAULTS = {"schedule": str(Order.ONE_F_ONE_B), "n_micro_batches": 8, "mode": "training"}
"""Of the options that --from-csv excludes; all others of these are None or False where they are not given."""

ORDER_ARGUMENTS = (
    *(*DEFAULTS, "stages", "chunks", "max_in_flight", "stage_to_device", "bubble_checks"),
    *("pipeline", "program", "view"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add an order, its size, the times of its actions, and what to print."""
    parser.add_argument("--schedule", choices=[str(o) for o in Order], help=f"default {DEFAULTS['schedule']}")
    parser.add_argument(
        "--from-csv", type=Path, metavar="FILE", help="read the order from PyTorch's pipeline schedule CSV"
    )
    parser.add_argument(
        "--stages", type=at_most(MAX_STAGES), metavar="P", help=f"devices in the pipeline; default {DEFAULT_STAGES}"
    )
    parser.add_argument(
        "--n-micro-batches",
        type=at_most(MAX_FORWARDS),
        metavar="M",
        help=f"micro-batches of a step; default {DEFAULTS['n_micro_batches']}",
    )
    parser.add_argument(
        "--mode",
        choices=["training", "inference"],
        help=f"whether popart and the orders of Poplar have a backward pass; default {DEFAULTS['mode']}",
    )
    _add_costs(parser)
    parser.add_argument(
        "--chunks", type=at_most(MAX_STAGES), metavar="V", help="chunks per device, for interleaved; default 2"
    )
    parser.add_argument(
        "--max-in-flight",
        type=at_most(MAX_FORWARDS),
        metavar="K",
        help="micro-batches whose activations a device may hold, for zb*, v-*",
    )
    parser.add_argument(
        "--stage-to-device",
        type=integers,
        metavar="0,1,1,0",
        help="device of every stage, also of backward stages, for the orders of Poplar",
    )
    parser.add_argument(
        "--bubble-checks", action="store_true", help="fill the bubbles of 1f1b with checks, which take no extra time"
    )
    parser.add_argument(
        "--pipeline",
        type=Path,
        metavar="FILE",
        help="layers and tensors to pipeline, as JSON, for popart and the orders of Poplar",
    )
    parser.add_argument("--program", action="store_true", help="print PopART's program of fragments")
    parser.add_argument("--view", choices=["stages", "devices"], help="print PopART's pipeline by stages or devices")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the timeline as one page for a browser")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="write the timeline for Perfetto or chrome://tracing"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the order as PyTorch's pipeline schedule CSV")
    add_json(parser)


def _add_costs(parser: argparse.ArgumentParser) -> None:
    costs = {
        "forward": ("1", "cycles of the forward of one micro-batch on a device, all its chunks together"),
        "backward": ("2", "cycles of its backward; with --weight-cycles those of the input gradient alone"),
        "weight": (None, "cycles of its weight gradient"),
        "comm": (
            "0",
            "cycles of a message to the next device or back; the last entry: from the last device to the first",
        ),
    }
    for name, (default, what) in costs.items():
        default_text = default or "half of the backward where an order splits it"
        parser.add_argument(
            f"--{name}-cycles",
            type=decimals,
            default=default,
            metavar="A[,B...]",
            help=f"{what}; one number, or one per device; default {default_text}",
        )
    add_knob(parser, "recompute", "stash only stage inputs: every backward runs its forward again first")
    parser.add_argument(
        "--transfers",
        choices=[str(t) for t in Transfers],
        help="devices transfer while they compute, or all at once when all have computed; "
        "default: barrier for popart and the orders of Poplar, overlap for others",
    )


def run(args: argparse.Namespace) -> int:
    """Simulate the order, and print or write its timeline."""
    assumed: list[str] = []
    if args.from_csv:
        schedule, times, assumed = _custom_schedule(args)
    else:
        for name, value in DEFAULTS.items():
            setattr(args, name, getattr(args, name) or value)
        if args.pipeline and args.schedule == Order.POPART:
            return show_pipeline(args)
        schedule, times = _schedule(args, Order(args.schedule))
    if args.bubble_checks and args.transfers == Transfers.BARRIER:
        raise BadInput(
            "bubble checks keep 1f1b's ideal diagram, where no device waits for all, got --transfers barrier"
        )
    default = Transfers.OVERLAP if schedule.slots is None else Transfers.BARRIER  # devices in lockstep
    timeline = simulate(schedule, times, Transfers(args.transfers or default))
    _write(args, timeline)
    has_program = args.program or args.view
    if args.json:
        record = _describe(timeline) | {"assumed": assumed}
        if has_program:
            record |= describe_popart(args)
        print_json(record)
    elif has_program:
        print_popart(args)
    else:
        _show(timeline)
        print_assumed(assumed)
    return 0


def _describe(timeline: Timeline) -> dict[str, Any]:
    schedule = timeline.schedule
    record = {
        "order": schedule.order_name,
        "source": timeline.origin,
        "makespan_cycles": timeline.makespan_cycles,
        "period_cycles": timeline.period_cycles,
        "ideal_cycles": timeline.ideal_cycles,
        "latency_cycles": timeline.latency_cycles,
        "busy_cycles": timeline.busy_cycles,
        "exchange_cycles": timeline.exchange_cycles,
        "bubble_cycles": timeline.bubble_cycles,
        "bubble_fraction": timeline.bubble_fraction,
        "idle_gaps": [_gaps(timeline, device) for device in range(schedule.n_devices)],
        "peak_in_flight": schedule.peak_in_flight,
        "stash_entries": stash_entries(schedule),
        "n_pipeline_cycles": 1 + max(int(rows[-1]) for rows in slots(schedule)),
        "programs": [[str(action) for action in schedule.actions(d)] for d in range(schedule.n_devices)],
    }
    if schedule.slots is not None:
        record["execution_order"] = execution_order(schedule)
    return record


def _gaps(timeline: Timeline, device: int) -> list[list[float]]:
    """Start and length of every idle time of a device, in cycles."""
    gaps = timeline.gaps(device).tolist()
    return [[timeline.cycles(start), timeline.cycles(stop - start)] for start, stop in gaps]


def decimals(text: str) -> Cycles:
    """Read "1" or "0.5,2,1e3" as numbers, exactly.

    >>> decimals("0.1,2")
    (Fraction(1, 10), Fraction(2, 1))
    """
    items = text.split(",")
    values = tuple(Fraction(item) for item in items if re.fullmatch(r"\d{0,15}(\d\.?|\.\d)\d{0,9}(e[+-]?\d)?", item))
    if len(values) != len(items):
        raise argparse.ArgumentTypeError(
            f"cycles are numbers from 0 to 10**15, written 1 or 0.5,2,1e3 (one per device), got {text!r}"
        )
    return values


def _custom_schedule(args: argparse.Namespace) -> tuple[Schedule, StageTimes, list[str]]:
    """The schedule of --from-csv, the times of its actions, and what is assumed of its messages."""
    given = [f"--{name.replace('_', '-')}" for name in ORDER_ARGUMENTS if getattr(args, name)]
    if given:
        raise BadInput(f"--from-csv gives the order and its size; leave out {', '.join(given)}")
    actions = read_actions(args.from_csv)
    schedule = schedule_of(actions)
    assumed = []
    if hang := hang_of_waiting_sends(actions):
        assumed.append(f"a send does not wait for its receive; where it does, ranks wait in a circle: {hang}")
    is_split = schedule.has(WEIGHT)
    costs = _costs(args, schedule.n_devices, is_split)
    return schedule, stage_times(schedule.devices, *costs, split_backward=is_split), assumed


def _schedule(args: argparse.Namespace, order: Order) -> tuple[Schedule, StageTimes]:
    training = args.mode == "training"
    default_chunks = 2 if spec_of(order).in_groups else 1
    n_chunks = args.chunks or default_chunks
    mapping = poplar_mapping(args) if args.pipeline else args.stage_to_device
    if mapping:
        require_mapping(order, mapping, training)
        # In training the mapping has the backward stages, too.
        n_stages = len(mapping) // 2 if training else len(mapping)
        if args.stages not in (None, n_stages):
            raise BadInput(f"--stages {args.stages} and devices for {n_stages} stages contradict each other; give one")
    else:
        n_stages = args.stages or DEFAULT_STAGES
    check_size(order, n_stages * n_chunks, args.n_micro_batches)
    devices = mapping[:n_stages] if mapping else stage_devices_of(order, n_stages, n_chunks)
    is_split = spec_of(order).splits_backward
    times = stage_times(devices, *_costs(args, max(devices) + 1, is_split), split_backward=is_split)
    schedule = make_schedule(
        order,
        n_stages,
        args.n_micro_batches,
        n_chunks=n_chunks,
        times=times,
        training=training,
        stage_devices=mapping,
        max_in_flight=args.max_in_flight,
    )
    return with_bubble_checks(schedule, times) if args.bubble_checks else (schedule, times)


def _costs(args: argparse.Namespace, n_devices: int, is_split: bool) -> tuple[Cycles, Cycles, Cycles, Cycles]:
    """Cycles of forward, backward, weight gradient and communication, each with one number per device."""
    forward = _per_device("--forward-cycles", args.forward_cycles, n_devices)
    backward = _per_device("--backward-cycles", args.backward_cycles, n_devices)
    comm = _per_device("--comm-cycles", args.comm_cycles, n_devices)
    weight: Cycles = (Fraction(0),) * n_devices
    if args.weight_cycles is not None:
        weight = _per_device("--weight-cycles", args.weight_cycles, n_devices)
    elif is_split:  # the given backward is both gradients together
        weight = backward = tuple(cycles / 2 for cycles in backward)
    if one_switch(args, "recompute"):
        backward = tuple(f + b for f, b in zip(forward, backward, strict=True))
    return forward, backward, weight, comm


def _per_device(option: str, values: Cycles, n_devices: int) -> Cycles:
    if len(values) not in (1, n_devices):
        raise BadInput(f"{option} takes one number or one for each of {n_devices} devices, got {len(values)}")
    return values if len(values) == n_devices else values * n_devices


def _write(args: argparse.Namespace, timeline: Timeline) -> None:
    if args.html:
        from autoauto.report.html import timeline_page, write_page

        write_page(timeline_page(timeline, stash_entries(timeline.schedule)), args.html)
    if args.trace:
        write_chrome_trace(timeline, args.trace)
    if args.csv:
        write_schedule_csv(timeline.schedule, args.csv)


def _show(timeline: Timeline) -> None:
    from rich.console import Console

    from autoauto.report.tables.plans import timeline_table

    picture = timeline_picture(timeline, Console().width)
    show(picture, timeline_table(timeline, stash_entries(timeline.schedule)))


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

    takers = [order for order in Order if spec_of(order).takes_stage_devices]
    if args.schedule not in takers:
        raise BadInput(f"--pipeline is for popart, {', '.join(takers)}, got {args.schedule}")
    check_accumulation(args.n_micro_batches)
    return poplar_devices(read_pipeline(read_json(args.pipeline)), training=args.mode == "training")


def _pipeline(args: argparse.Namespace) -> PopartPipeline:
    """The layers of a file, or one per device, as PopART pipelines them."""
    from autoauto.programs.popart.input import read_pipeline, simple_pipeline
    from autoauto.records.files.json import read_json

    if args.schedule != Order.POPART:
        raise BadInput(f"--program and --view need --schedule popart, got {args.schedule}")
    graph = read_pipeline(read_json(args.pipeline)) if args.pipeline else simple_pipeline(args.stages or DEFAULT_STAGES)
    recompute = one_switch(args, "recompute")
    return transform(graph, args.n_micro_batches, training=args.mode == "training", recompute=recompute)
