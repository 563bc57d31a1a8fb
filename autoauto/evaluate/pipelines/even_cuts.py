"""Cuts as people write them by hand, which compete with the planned ones: `even_partitions`, `block_cuts`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from autoauto.records.costs.cost import CostTable
from autoauto.records.layers import Block, LayerGraph
from autoauto.records.units import IntArray

Partition = tuple[int, ...]


def block_cuts(graph: LayerGraph) -> list[int]:
    """The cuts between embedding, encoder layers and head: where blocks begin, and where the last one ends."""
    if not graph.blocks:
        return []
    first, last = graph.blocks[0], graph.blocks[-1]
    stop = last.layers.stop - last.n_behind
    return [first.layers.start + first.n_before, *(block.layers.start for block in graph.blocks[1:]), stop]


def even_partitions(table: CostTable, blocks: Sequence[Block], n_stages: int) -> Iterator[Partition]:
    """Cuts into stages that compute about equally long, anywhere and at blocks, or have about as many blocks each.

    Blocks that are left over are spread, or those of the last stages, as in [optimum-graphcore]. Every partition is the
    boundaries from 0 to the number of layers; none where there are too few legal cuts.
    """
    anywhere = np.flatnonzero(table.cut_allowed)[1:-1]
    compute = table.compute_prefix_cycles
    shares = compute[-1] * np.arange(1, n_stages) / n_stages
    for cuts in (anywhere, _at_blocks(table, blocks)):
        inner = _nearest(cuts, compute, shares)
        if len(inner) == n_stages - 1:
            yield (0, *inner.tolist(), table.n_layers)
    yield from partitions_by_count(table, blocks, n_stages)


def partitions_by_count(table: CostTable, blocks: Sequence[Block], n_stages: int) -> Iterator[Partition]:
    """Yield the partitions of `even_partitions` whose stages have about as many blocks each."""
    at_blocks = _at_blocks(table, blocks)
    stages, n_blocks = np.arange(1, n_stages), len(at_blocks) + 1
    n_each, n_more = divmod(n_blocks, n_stages)
    if n_each:
        spread = stages * n_blocks // n_stages - 1
        at_the_end = stages * n_each + np.maximum(0, stages - (n_stages - n_more)) - 1
        for chosen in (spread, at_the_end):
            yield (0, *at_blocks[chosen].tolist(), table.n_layers)


def _at_blocks(table: CostTable, blocks: Sequence[Block]) -> IntArray:
    """The starts of all blocks but the first, where a cut is legal."""
    starts = np.array([block.layers.start for block in blocks[1:]], dtype=np.int64)
    return starts[table.cut_allowed[starts]]


def _nearest(cuts: IntArray, compute: IntArray, shares: IntArray) -> IntArray:
    """The cuts before which the compute is nearest to the shares, each once."""
    if not len(cuts):
        return cuts
    return np.unique(cuts[abs(compute[cuts] - shares[:, None]).argmin(axis=1)])
