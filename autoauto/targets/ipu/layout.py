"""Copies that a neighbour spares: a layer writes its output as its readers in the same program want it."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.targets.ipu.operator_cost import Demand, Family, Work

_OUTSIDE = -1
_WRITES_PANELS = frozenset({Family.PRODUCT, Family.POOL, Family.MOVE})


def rearrangements(graph: LayerGraph, layers: LayerRange, works: Sequence[Work]) -> list[int]:
    """Cycles that each layer of the range spends on bringing operands into the layout it wants.

    A layout has a maker, the last layer that chose it, and is handed on by layers that work in place (conv -> relu ->
    conv). A product reads without a copy what a maker within the range wrote in panels; an elementwise layer what has
    the maker of its first operand. A maker can spare its readers no more cycles than it takes itself, so that a range
    never gets cheaper by a layer more.
    """
    maker: dict[int, int] = {}
    left_cycles: dict[int, int] = {}

    def made_by(tensor: int) -> int:
        return maker.get(graph.tensors[tensor].producer, _OUTSIDE) if tensor >= 0 else _OUTSIDE

    def charge(work: Work, demand: Demand) -> int:
        source = made_by(demand.tensor)
        if source == _OUTSIDE or not _suits(work, works[source - layers.start], source == made_by(work.follows)):
            return demand.cycles
        spared = min(demand.cycles, left_cycles[source])
        left_cycles[source] -= spared
        return demand.cycles - spared

    charged = []
    for index, work in zip(range(*layers), works, strict=True):
        charged.append(sum(charge(work, demand) for demand in work.demands))
        maker[index] = made_by(work.follows) if work.follows >= 0 else index
        left_cycles[index] = work.cycles
    return charged


def _suits(reader: Work, source: Work, same_maker: bool) -> bool:
    if reader.family is Family.ELEMENTWISE:
        return same_maker
    return source.family in _WRITES_PANELS
