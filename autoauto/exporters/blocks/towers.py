"""The lists of blocks that a model has beside `LayerGraph.blocks`: `towers_beside`.

An encoder and a decoder, or a vision and a language model in one file, are two towers. `LayerGraph.blocks` is the list
of one tower, and its first and last block have all layers of the other tower.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import onnx

from autoauto.graph.blocks import ScopedOperator, blocks_of, scoped_operator
from autoauto.records.layers import Block, LayerGraph, LayerRange

MATRICES_OF_A_HEAD = 3
"""How many layers with a matrix of weights may lie beside the blocks of a model of one tower, if a block has fewer."""


class Tower(NamedTuple):
    """A list of blocks beside `LayerGraph.blocks`."""

    name: str  # its blocks in words
    layers: tuple[int, ...]  # the numbers of its layers in the graph
    is_before: bool  # True if it lies before the blocks of the graph
    reaches_far: bool  # True if a block of the graph after the first one reads its outputs, as cross-attention does


def list_name(blocks: Sequence[Block]) -> str:
    """A list of blocks in words.

    >>> from autoauto.records.layers import LayerRange
    >>> list_name([Block(f"layers.{i}", LayerRange(i, i + 1)) for i in range(3)])
    'layers.0 to layers.2'
    """
    if len(blocks) == 1:
        return blocks[0].module
    return f"{blocks[0].module} to {blocks[-1].module}"


def towers_beside(graph: LayerGraph) -> tuple[Tower, ...]:
    """The towers before and behind the blocks of a graph.

    They are found by the modules in the names of layers. Where no name has a module, a tower is groups of layers that
    repeat, or has more matrices of weights than a block and than a head.
    """
    operators = [scoped_operator(onnx.NodeProto(op_type=layer.op, name=layer.name), ()) for layer in graph.layers]
    # The shortest block has nothing but its module, so the first block has it at its end, and the last at its start.
    length = min(block.layers.stop - block.layers.start for block in graph.blocks)
    first, last = graph.blocks[0], graph.blocks[-1]
    before = LayerRange(first.layers.start, first.layers.stop - length)
    behind = LayerRange(last.layers.start + length, last.layers.stop)
    towers = []
    for is_before, block, outside in ((True, first, before), (False, last, behind)):
        beside: list[int] = []
        for i in range(*block.layers):
            module = operators[i].module
            is_beside = module != block.module and not module.startswith(f"{block.module}.")
            if not module:
                is_beside = i in range(*outside)
            if is_beside:
                beside.append(i)
        if any(operator.module for operator in operators):
            part = _named(graph, operators, beside)
        else:
            part = _unnamed(graph, beside)
        if part is not None:
            name, layers = part
            towers.append(Tower(name, layers, is_before, is_before and _reaches_far(graph, layers, beside)))
    return tuple(towers)


def _named(
    graph: LayerGraph, operators: Sequence[ScopedOperator], beside: Sequence[int]
) -> tuple[str, tuple[int, ...]] | None:
    """A list of blocks by the names of its modules, each with a matrix of weights."""
    blocks = blocks_of([operators[i] for i in beside])
    layers: list[int] = []
    for block in blocks:
        part = beside[slice(*block.layers)]
        if not _n_matrices(graph, part):
            return None
        layers += part
    if not blocks:
        return None
    return list_name(blocks), tuple(layers)


def _unnamed(graph: LayerGraph, beside: Sequence[int]) -> tuple[str, tuple[int, ...]] | None:
    """A tower whose modules have no names, found by its matrices, or by groups of equal layers behind each other."""
    n_matrices = _n_matrices(graph, beside)
    of_block = min(_n_matrices(graph, range(*block.layers)) for block in graph.blocks)
    if n_matrices > max(of_block, MATRICES_OF_A_HEAD):
        return f"{n_matrices} matrices from {graph.layers[beside[0]].name} on", tuple(beside)
    return _repeated(graph, beside)


def _repeated(graph: LayerGraph, beside: Sequence[int]) -> tuple[str, tuple[int, ...]] | None:
    """All layers of `beside` from the first group with a matrix of weights whose kinds the next group repeats."""
    kinds = [graph.layers[i].kind for i in beside]
    # The shortest group that is repeated right behind itself is a block of the tower.
    for length in range(2, len(kinds) // 2 + 1):
        for start in range(len(kinds) - 2 * length + 1):
            middle, stop = start + length, start + 2 * length
            group = beside[start:middle]
            if kinds[start:middle] == kinds[middle:stop] and _n_matrices(graph, group):
                return f"equal blocks from {graph.layers[group[0]].name} on", tuple(beside[start:])
    return None


def _n_matrices(graph: LayerGraph, layers: Iterable[int]) -> int:
    n_matrices = 0
    for index in layers:
        tensors = [graph.tensors[i] for i in graph.layers[index].weights]
        n_matrices += any(len(tensor.shape) > 1 and tensor.n_elements(1) > 1 for tensor in tensors)
    return n_matrices


def _reaches_far(graph: LayerGraph, tower: Sequence[int], beside: Sequence[int]) -> bool:
    """True if a block after the first one reads an output of the tower.

    The first block may derive a tensor from the output, as an exporter does once for all blocks. That tensor counts
    where the third or a later block reads it: the second block reads the output of the first one in any case.
    """
    # What the tower writes, and what layers up to the end of the first block make of it.
    made: set[int] = set()
    inside = set(tower)
    for index in range(*graph.blocks[0].layers):
        layer = graph.layers[index]
        if index in inside or made.intersection(layer.inputs):
            made.update(layer.outputs)
    made_beside: set[int] = set()
    for index in beside:
        made_beside.update(made.intersection(graph.layers[index].outputs))
    third = graph.blocks[2].layers.start if len(graph.blocks) > 2 else len(graph)
    for index in range(graph.blocks[1].layers.start, len(graph)):
        inputs = graph.layers[index].inputs
        if not made_beside.isdisjoint(inputs) or (index >= third and not made.isdisjoint(inputs)):
            return True
    return False
