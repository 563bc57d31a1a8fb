"""Profile every kind of layer of a model.

At one batch size; or one layer at many: `sweep`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from autoauto.cli.options.model import add_knobs, add_model, open_flow, requested_knobs
from autoauto.cli.output.lines import add_json, print_assumed, print_json, show, warn
from autoauto.cli.output.plans import warn_unbounded
from autoauto.records.errors import BadInput, OutOfMemory
from autoauto.records.layers import LayerRange
from autoauto.records.units import format_bytes
from autoauto.report.text import progress_bar
from autoauto.targets.ipu.session import memory_proportion

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.records.costs.profile import CompiledRange
    from autoauto.records.layers import LayerGraph
    from autoauto.report.tables.table import Table
    from autoauto.space.knobs import Knobs
    from autoauto.targets.ipu.target import IpuTarget


EXAMPLE = "profile resnet50 --batch-size 16 --output profile.json --format upstream"
PROPORTIONS = (0.02, 0.05, *(tenth / 10 for tenth in range(1, 11)))


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
    from autoauto.profile.codec import profile_record, save_profile
    from autoauto.records.files.json import write_json
    from autoauto.report.tables.listings import profile_table
    from autoauto.targets.host.measure.worker import spread_line
    from autoauto.targets.host.target import HostTarget

    _check(args)
    flow = open_flow(args)
    flow.setting.check_one_kind("a profile")
    knobs = requested_knobs(args, flow)
    if args.sweep:
        return _sweep(args, flow, knobs)
    warn_unbounded(flow, knobs)
    with progress_bar("profile", "kinds") as progress:
        profile = flow.profile(flow.options(knobs), progress)
    if isinstance(flow.target, HostTarget) and flow.target.measurements:
        warn(spread_line(flow.target.measurements))  # how much repeated measurements on this machine differ
    if args.output and args.format == "upstream":
        write_json(profile_to_auto_pipeline(profile), args.output)
    elif args.output:
        save_profile(profile, args.output)
    if args.json:
        print_json(profile_record(profile))
    else:
        show(profile_table(profile, flow.traits.origin, clock_hz=flow.setting.shown_clock_hz))
        print_assumed(flow.setting.notes)
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.sweep and args.output:
        raise BadInput(f"--output writes a profile, and a sweep has none, got {args.output}; try --json > FILE")
    if args.layer is not None and not args.sweep:
        raise BadInput(f"--layer is for --sweep memory-proportion, got {args.layer!r} without it")
    if args.format != "autoauto" and not args.output:
        raise BadInput(f"--format is that of --output FILE, got {args.format} without a file")


def _sweep(args: argparse.Namespace, flow: Flow, knobs: Knobs) -> int:
    from autoauto.targets.ipu.target import IpuTarget

    if not isinstance(flow.target, IpuTarget):
        target = flow.cluster.target
        raise BadInput(f"a sweep of memory-proportion is for --target ipu, got {target}; leave out --sweep")
    index = layer_index(flow.graph, args.layer)
    name, rows = flow.setting.names[index], sweep(flow, flow.target, knobs, index)
    if args.json:
        print_json({"layer": name, "sweep": [row._asdict() for row in rows]})
    else:
        show(sweep_table(rows, name))
    return 0


class SweepRow(NamedTuple):
    """Costs at one memory proportion.

    Attributes:
        memory_proportion: the bound on temporary memory, as a share of a tile.
        cycles: of all layers; None when they need more code than a tile can run.
        temporary_bytes: of all layers; None likewise.
        n_unbounded: the number of products for which no plan meets the bound.
        layer_cycles: of the layer that is shown by itself.
        layer_tile_bytes: its temporary memory on one tile.
        layer_is_bounded: whether it meets the bound.
    """

    memory_proportion: float
    cycles: int | None
    temporary_bytes: int | None
    n_unbounded: int
    layer_cycles: int
    layer_tile_bytes: int
    layer_is_bounded: bool


def sweep(flow: Flow, target: IpuTarget, knobs: Knobs, index: int) -> list[SweepRow]:
    """The whole model, and layer `index` without the cost of its neighbours' layouts, at every proportion."""
    from autoauto.targets.ipu.target import operator_costs

    rows, layers = [], LayerRange(0, len(flow.graph))
    for proportion in PROPORTIONS:
        options = flow.options(knobs.with_values(memory_proportion=proportion))
        device = flow.setting.device(options)
        whole: CompiledRange | None
        try:
            whole = target.compile(flow.graph, layers, device, options)
        except OutOfMemory:
            whole = None
        costs = operator_costs(flow.graph, layers, device, options, target.settings)
        row = SweepRow(
            memory_proportion=memory_proportion(options),
            cycles=whole.forward_cycles if whole else None,
            temporary_bytes=whole.temporary_bytes if whole else None,
            n_unbounded=sum(not cost.within_bound for cost in costs),
            layer_cycles=costs[index].cycles,
            layer_tile_bytes=costs[index].working_bytes // costs[index].n_tiles,
            layer_is_bounded=costs[index].within_bound,
        )
        rows.append(row)
    return rows


def layer_index(graph: LayerGraph, name: str | None) -> int:
    """The position of the layer called `name`; without a name that of the product with the largest weights."""
    if name is None:
        sizes = []
        for layer in graph.layers:
            weights = layer.weights if layer.op in {"Conv", "Gemm", "MatMul"} else ()
            sizes.append(sum(graph.tensors[weight].n_elements(1) for weight in weights))
        return sizes.index(max(sizes))
    for index, layer in enumerate(graph.layers):
        if layer.name == name:
            return index
    raise BadInput(f"--layer must name a layer of {graph.name}, got {name!r}; `autoauto profile` prints names")


def sweep_table(rows: list[SweepRow], layer: str) -> Table:
    """One row per proportion; a star marks products for which no plan meets the bound."""
    from autoauto.report.tables.table import Column, Table

    columns = (
        Column("memory\nproportion", "memory_proportion"),
        Column("all layers\ncycles", "cycles"),
        Column("temporary", "temporary_bytes"),
        Column("layer\ncycles", "cycles"),
        Column("temporary\na tile", "temporary_bytes"),
    )
    values = []
    for row in rows:
        temporary = "-" if row.temporary_bytes is None else format_bytes(row.temporary_bytes)
        if row.n_unbounded:
            temporary += f" {row.n_unbounded}*"
        of_layer = format_bytes(row.layer_tile_bytes)
        if not row.layer_is_bounded:
            of_layer += " *"
        cycles = "no fit" if row.cycles is None else row.cycles
        values.append((f"{row.memory_proportion:g}", cycles, temporary, row.layer_cycles, of_layer))
    title = f"The bound on temporary memory, all layers and {layer}"
    star = ""
    if any(row.n_unbounded for row in rows):
        star = "N*: N products for which no plan meets the bound, planned without it as Poplar does"
    return Table(title, columns, tuple(values), star)
