"""Relayouts that a neighbour saves, `relayout_cycles`: layers write as their readers in the same program read."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.targets.ipu.operator_cost import Family, OperatorCost, Relayout

_OUTSIDE = -1
_WRITES_PANELS = frozenset({Family.PRODUCT, Family.POOL, Family.MOVE})


def relayout_cycles(graph: LayerGraph, layers: LayerRange, costs: Sequence[OperatorCost]) -> list[int]:
    """Cycles that each layer of the range spends on bringing operands into the layout that it reads.

    The maker of a layout is the last layer that chose it; layers that run in place pass it on:

        conv 1 (maker: 1) -> relu 2 (maker: 1) -> conv 3 reads panels of maker 1: no relayout
        conv 1 (maker: 1) -> relu 2 (maker: 1) -> add 4 of 1 and 2: one maker, no relayout

    A product reads without a relayout what a maker within the range wrote in panels; an elementwise layer what has the
    maker of its first operand. A maker saves its readers at most as many cycles as it takes itself, so that a range
    never gets cheaper by a layer more.
    """
    maker: dict[int, int] = {}
    left_cycles: dict[int, int] = {}

    def made_by(tensor: int) -> int:
        return maker.get(graph.tensors[tensor].producer, _OUTSIDE) if tensor >= 0 else _OUTSIDE

    def charge(cost: OperatorCost, relayout: Relayout) -> int:
        source = made_by(relayout.tensor)
        if source == _OUTSIDE or not _suits(cost, costs[source - layers.start], source == made_by(cost.follows)):
            return relayout.cycles
        saved = min(relayout.cycles, left_cycles[source])
        left_cycles[source] -= saved
        return relayout.cycles - saved

    charged = []
    for index, cost in zip(range(*layers), costs, strict=True):
        charged.append(sum(charge(cost, relayout) for relayout in cost.relayouts))
        maker[index] = made_by(cost.follows) if cost.follows >= 0 else index
        left_cycles[index] = cost.cycles
    return charged


def _suits(reader: OperatorCost, source: OperatorCost, same_maker: bool) -> bool:
    if reader.family is Family.ELEMENTWISE:
        return same_maker
    return source.family in _WRITES_PANELS
