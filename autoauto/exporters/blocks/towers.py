"""The parts of a model beside its list of blocks that are lists of blocks themselves: `towers_beside`.

An encoder and a decoder, or a vision and a language model in one file, are two towers. `LayerGraph.blocks` is the list
of one of them, and its first and last block have all layers of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import onnx

from autoauto.graph.blocks import ScopedOperator, blocks_of, scoped_operator
from autoauto.records.layers import Block, LayerGraph

MATRICES_OF_A_HEAD = 3
"""How many layers with a matrix of weights may lie beside the blocks of a model of one tower, if a block has fewer."""


class Tower(NamedTuple):
    """A list of blocks that are none of `LayerGraph.blocks`.

    Attributes:
        name: its blocks in words.
        layers: the numbers of its layers in the graph.
        is_before: whether it lies before the blocks of the graph.
        reaches_far: whether other blocks than the first of these read what it computes, as cross-attention does.
    """

    name: str
    layers: tuple[int, ...]
    is_before: bool
    reaches_far: bool


def list_name(blocks: Sequence[Block]) -> str:
    """A list of blocks in words.

    >>> from autoauto.records.layers import LayerRange
    >>> list_name([Block(f"layers.{i}", LayerRange(i, i + 1)) for i in range(3)])
    'layers.0 to layers.2'
    """
    return f"{blocks[0].module} to {blocks[-1].module}" if len(blocks) > 1 else blocks[0].module


def towers_beside(graph: LayerGraph) -> tuple[Tower, ...]:
    """The towers before and behind the blocks of a graph.

    They are known by the modules in the names of layers. Where names have none, a tower is groups of layers that
    repeat, or has more matrices of weights than a block and than a head.
    """
    operators = [scoped_operator(onnx.NodeProto(op_type=layer.op, name=layer.name), ()) for layer in graph.layers]
    is_named = any(operator.module for operator in operators)
    towers = []
    for is_before, beside in ((True, _before(graph, operators)), (False, _behind(graph, operators))):
        part = _named(graph, operators, beside) if is_named else _unnamed(graph, beside)
        if part is not None:
            name, layers = part
            towers.append(Tower(name, layers, is_before, is_before and _reaches_far(graph, layers, beside)))
    return tuple(towers)


def _before(graph: LayerGraph, operators: Sequence[ScopedOperator]) -> list[int]:
    """The layers of the first block that are not of its module."""
    block = graph.blocks[0]
    start = block.layers.stop - _length(graph)
    return [i for i in range(*block.layers) if _is_beside(block, operators[i], is_outside=i < start)]


def _behind(graph: LayerGraph, operators: Sequence[ScopedOperator]) -> list[int]:
    """The layers of the last block that are not of its module."""
    block = graph.blocks[-1]
    stop = block.layers.start + _length(graph)
    return [i for i in range(*block.layers) if _is_beside(block, operators[i], is_outside=i >= stop)]


def _length(graph: LayerGraph) -> int:
    """The layers of the shortest block, which has nothing beside its module."""
    return min(block.layers.stop - block.layers.start for block in graph.blocks)


def _is_beside(block: Block, operator: ScopedOperator, *, is_outside: bool) -> bool:
    if not operator.module:
        return is_outside
    return operator.module != block.module and not operator.module.startswith(f"{block.module}.")


def _named(
    graph: LayerGraph, operators: Sequence[ScopedOperator], beside: Sequence[int]
) -> tuple[str, tuple[int, ...]] | None:
    """A list of blocks by the names of its modules, each with a matrix of weights."""
    blocks = blocks_of([operators[i] for i in beside])
    layers = [[beside[i] for i in range(*block.layers)] for block in blocks]
    if not blocks or not all(any(_has_matrix(graph, i) for i in part) for part in layers):
        return None
    return list_name(blocks), tuple(i for part in layers for i in part)


def _unnamed(graph: LayerGraph, beside: Sequence[int]) -> tuple[str, tuple[int, ...]] | None:
    """A tower whose modules have no names, found by its layers: groups of like layers that follow each other."""
    n_matrices = sum(_has_matrix(graph, i) for i in beside)
    of_block = min(sum(_has_matrix(graph, i) for i in range(*block.layers)) for block in graph.blocks)
    if n_matrices > max(of_block, MATRICES_OF_A_HEAD):
        return f"{n_matrices} matrices from {graph.layers[beside[0]].name} on", tuple(beside)
    return _repeated(graph, beside)


def _repeated(graph: LayerGraph, beside: Sequence[int]) -> tuple[str, tuple[int, ...]] | None:
    """Two groups of layers that follow each other and are alike, with a matrix of weights; the rest of `beside` too."""
    kinds = [graph.layers[i].kind for i in beside]
    for length in range(2, len(kinds) // 2 + 1):
        for start in range(len(kinds) - 2 * length + 1):
            middle, stop = start + length, start + 2 * length
            group = beside[start:middle]
            if kinds[start:middle] == kinds[middle:stop] and any(_has_matrix(graph, i) for i in group):
                return f"equal blocks from {graph.layers[group[0]].name} on", tuple(beside[start:])
    return None


def _has_matrix(graph: LayerGraph, index: int) -> bool:
    tensors = (graph.tensors[i] for i in graph.layers[index].weights)
    return any(len(tensor.shape) > 1 and tensor.n_elements(1) > 1 for tensor in tensors)


def _reaches_far(graph: LayerGraph, tower: Sequence[int], beside: Sequence[int]) -> bool:
    """Whether other blocks than the first read what a tower computes.

    What the first block makes of it, as an exporter does once for all blocks, counts where the third or a later one
    reads it: the second one reads the output of the first in any case.
    """
    made = _made_of(graph, tower)
    made_beside = made.intersection(tensor for i in beside for tensor in graph.layers[i].outputs)
    second, *third = (block.layers.start for block in graph.blocks[1:3])
    after_first = {tensor for layer in graph.layers[second:] for tensor in layer.inputs}
    after_second = {tensor for start in third for layer in graph.layers[start:] for tensor in layer.inputs}
    return bool(made_beside & after_first or made & after_second)


def _made_of(graph: LayerGraph, tower: Sequence[int]) -> set[int]:
    """The tensors that a tower writes, and those that layers up to the end of the first block make of them."""
    inside, made = {*tower}, set[int]()
    for index in range(*graph.blocks[0].layers):
        layer = graph.layers[index]
        if index in inside or made.intersection(layer.inputs):
            made.update(layer.outputs)
    return made
