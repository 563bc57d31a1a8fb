"""The trade of cycles against temporary memory: the same program at every memory proportion."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from autoauto.records.errors import BadInput, OutOfMemory
from autoauto.records.layers import LayerRange

if TYPE_CHECKING:
    from rich.table import Table

    from autoauto.evaluate.flow import Flow
    from autoauto.records.knobs import Knobs
    from autoauto.records.layers import LayerGraph
    from autoauto.records.profile import CompiledRange

PROPORTIONS = (0.02, 0.05, *(tenth / 10 for tenth in range(1, 11)))


class Swept(NamedTuple):
    """One memory proportion: what all layers and one of them take, and how many products did not meet the bound.

    Bytes and cycles of all layers are None when they need more code than a tile can run.
    """

    memory_proportion: float
    cycles: int | None
    temporary_bytes: int | None
    n_unbounded: int
    layer_cycles: int
    layer_tile_bytes: int
    layer_is_bounded: bool


def sweep(flow: Flow, knobs: Knobs, index: int) -> list[Swept]:
    """The whole model and its layer `index` compiled at every proportion, neighbours of the layer aside."""
    return [_at(flow, replace(knobs, memory_proportion=proportion), index) for proportion in PROPORTIONS]


def _at(flow: Flow, knobs: Knobs, index: int) -> Swept:
    from autoauto.targets.ipu.target import IpuTarget, works_of

    assert isinstance(flow.target, IpuTarget)
    layers, device = LayerRange(0, len(flow.graph)), flow.cluster.devices[0]
    options = flow.options(knobs)
    whole: CompiledRange | None
    try:
        whole = flow.target.compile(flow.graph, layers, device, options)
    except OutOfMemory:
        whole = None
    works = works_of(flow.graph, layers, device, options, flow.target.settings)
    return Swept(
        memory_proportion=knobs.memory_proportion,
        cycles=whole.forward_cycles if whole else None,
        temporary_bytes=whole.temporary_bytes if whole else None,
        n_unbounded=sum(not work.within_bound for work in works),
        layer_cycles=works[index].cycles,
        layer_tile_bytes=works[index].working_bytes // works[index].n_tiles,
        layer_is_bounded=works[index].within_bound,
    )


def layer_index(graph: LayerGraph, name: str | None) -> int:
    """The layer called `name`; without a name the product that reads the largest weights.

    Raises:
        BadInput: no layer is called so.
    """
    if name is None:
        return max(range(len(graph)), key=lambda index: _weight_elements(graph, index))
    found = [index for index, layer in enumerate(graph.layers) if layer.name == name]
    if not found:
        raise BadInput(f"--layer must name a layer of {graph.name}, got {name!r}; `autoauto profile` prints names")
    return found[0]


def _weight_elements(graph: LayerGraph, index: int) -> int:
    layer = graph.layers[index]
    is_product = layer.op in {"Conv", "Gemm", "MatMul"}
    return is_product * sum(graph.tensors[weight].n_elements(1) for weight in layer.weights)


def sweep_record(swept: list[Swept], layer: str) -> dict[str, Any]:
    """A sweep as plain values."""
    return {"layer": layer, "sweep": [row._asdict() for row in swept]}


def sweep_table(swept: list[Swept], layer: str) -> Table:
    """One row a proportion; a star marks products that no plan within the bound exists for."""
    from autoauto.records.units import format_bytes
    from autoauto.report.style import plain_table

    columns = ["memory\nproportion", "all layers\ncycles", "temporary", "layer\ncycles", "temporary\na tile"]
    table = plain_table(f"The bound on temporary memory, all layers and {layer}", columns, columns)
    for row in swept:
        table.add_row(
            f"{row.memory_proportion:g}",
            "no fit" if row.cycles is None else f"{row.cycles:,}",
            ("-" if row.temporary_bytes is None else format_bytes(row.temporary_bytes))
            + (f" {row.n_unbounded}*" if row.n_unbounded else ""),
            f"{row.layer_cycles:,}",
            format_bytes(row.layer_tile_bytes) + ("" if row.layer_is_bounded else " *"),
        )
    if any(row.n_unbounded for row in swept):
        table.caption = "N*: N products for which no plan meets the bound, planned without it as Poplar does"
    return table
