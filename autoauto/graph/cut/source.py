"""Ranges of layers of an ONNX file as models of their own: `OnnxSource`."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import onnx

from autoauto.graph.cut.subgraph import BatchedModel, Subgraph
from autoauto.graph.load import find_model, load_graph
from autoauto.graph.read.onnx_file import read_model
from autoauto.graph.read.weights import Weights
from autoauto.graph.rebatch.rebatch import Batch, at_batch, at_own_batch, resolve_batch
from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerGraph, LayerRange, Port, SubModel

N_BATCH_SIZES = 2
"""How many batch sizes stay in memory, traced."""


class Part(NamedTuple):
    """A subgraph with its inputs and outputs."""

    subgraph: Subgraph
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def onnx_source(model: str) -> OnnxSource:
    """A built-in model by name, or an ONNX file by path, to cut layers out of.

    Raises:
        UnreadableModel: there is no such model.
    """
    return OnnxSource(find_model(model))


class OnnxSource:
    """An ONNX file that layers can be cut out of; it implements `records.layers.Source`.

    A view or a constant is in no layer; every sub-model that reads it computes it again.

    Args:
        path: of the file; external data lie beside it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._weights = Weights(path)
        self._batched = lru_cache(maxsize=N_BATCH_SIZES)(self._at)

    def __reduce__(self) -> tuple[type[OnnxSource], tuple[Path]]:
        """Another process reads the file itself."""
        return OnnxSource, (self._path,)

    @cached_property
    def graph(self) -> LayerGraph:
        """The layers of the whole model, as `load_graph` reads them."""
        return load_graph(str(self._path))

    def cut(self, graph: LayerGraph, layers: LayerRange, batch_size: int) -> SubModel:
        """Make a model of `layers`, identified by the tensors that they write: `graph` may be a part of the whole.

        An output of the whole model that exists before `layers`, as an input or an earlier layer's output, is no output
        of the sub-model: it is carried past it.

        Raises:
            UnreadableModel: the file has changed, its weights are missing, or they are too many for one file.
            BadInput: the model does not run at `batch_size`.
        """
        batched, part = self._part(graph, layers, batch_size)
        return SubModel(batched.serialise(*part, self._weights), part.inputs, part.outputs)

    def save(self, graph: LayerGraph, layers: LayerRange, batch_size: int, path: Path) -> SubModel:
        """Write what `cut` makes as a file; weights that are too many for it lie in `path` with ".data" behind it.

        Returns:
            The sub-model without its content.

        Raises:
            UnreadableModel: the file has changed, or its weights are missing.
            BadInput: the model does not run at `batch_size`.
        """
        batched, part = self._part(graph, layers, batch_size)
        batched.save(*part, self._weights, path)
        return SubModel(b"", part.inputs, part.outputs)

    def _part(self, graph: LayerGraph, layers: LayerRange, batch_size: int) -> tuple[BatchedModel, Part]:
        batched = self._batched(batch_size, graph.fixed_batch)
        made = _written(graph, layers, layers.stop)
        outside = {*_read(graph, layers)} - {*_written(graph, layers)}
        if layers.stop == len(graph) == len(self.graph):
            before = _written(graph, LayerRange(0, layers.start), len(graph))
            outside.update(before, batched.inputs)
            made = [name for name in batched.outputs if name not in outside]
        subgraph = batched.subgraph(made, outside)
        return batched, Part(subgraph, batched.ports(subgraph.inputs), batched.ports(made))

    def carried(self, graph: LayerGraph, cut: int, batch_size: int) -> tuple[Port, ...]:
        """The tensors that are alive between the layers before `cut` and those from it on, inputs of the model first.

        Raises:
            UnreadableModel: the file has changed.
            BadInput: the model does not run at `batch_size`.
        """
        batched = self._batched(batch_size, graph.fixed_batch)
        if cut == 0:
            return batched.ports(batched.inputs)
        if cut == len(graph):
            return batched.ports(batched.outputs)
        returned = batched.subgraph(batched.outputs, {*_written(graph, LayerRange(0, len(graph)))}).inputs
        read = {*_read(graph, LayerRange(cut, len(graph))), *returned}
        made = _written(graph, LayerRange(0, cut), cut)
        return batched.ports([*(name for name in batched.inputs if name in read), *made])

    @cached_property
    def _plain(self) -> tuple[onnx.ModelProto, Batch]:
        return resolve_batch(read_model(self._path))

    def _at(self, batch_size: int, fixed_batch: str | None) -> BatchedModel:
        plain, batch = self._plain
        if fixed_batch is None:
            return BatchedModel(at_batch(plain, batch, batch_size))
        if batch_size == 1:
            return BatchedModel(at_own_batch(plain, batch))
        raise BadInput(f"batch_size must be 1, as {fixed_batch}; got {batch_size}")


def _read(graph: LayerGraph, layers: LayerRange) -> list[str]:
    """Names of the tensors that layers read."""
    return [graph.tensors[i].name for layer in graph.layers[layers.start : layers.stop] for i in layer.inputs]


def _written(graph: LayerGraph, layers: LayerRange, since: int = 0) -> list[str]:
    """Names of the tensors that layers write and that layer `since` or a later one reads."""
    inside = graph.layers[layers.start : layers.stop]
    tensors = (graph.tensors[i] for layer in inside for i in layer.outputs)
    return [tensor.name for tensor in tensors if tensor.last_use >= since]
