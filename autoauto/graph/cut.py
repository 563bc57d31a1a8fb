"""Ranges of layers of an ONNX file as models of their own: `OnnxSource`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from functools import cached_property, lru_cache
from itertools import chain
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper
from typing_extensions import override

from autoauto.graph.batch.rebatch import PlainModel, TracedModel, resolve_batch
from autoauto.graph.load import find_model, load_graph
from autoauto.graph.onnx_file import Weights, all_nodes, fill_value, first_output, read_model, reads
from autoauto.graph.plain import assemble
from autoauto.graph.shapes.trace import READS_SHAPE
from autoauto.graph.shapes.values import Value, is_float
from autoauto.records.errors import BadInput, UnreadableModel, Unsupported
from autoauto.records.layers import AS_IN_FILE, LayerGraph, LayerRange, ModelInputs, Port, Source, SubModel

MAX_WEIGHT_BYTES = (1 << 31) - (1 << 24)
"""An ONNX file holds 2 GiB at most; the nodes need the difference."""
MIN_STAND_IN = 1 << 10
"""The elements from which on a constant of equal elements may stand in for a weight."""
N_BATCH_SIZES = 2
"""How many batch sizes stay in memory, traced."""
MIN_EXTERNAL_BYTES = 1024
PAGE_BYTES = 4096


class Subgraph(NamedTuple):
    """The part of a model that computes some tensors."""

    nodes: list[onnx.NodeProto]  # in order
    inputs: list[str]  # names of the tensors that it reads and does not compute
    constants: list[str]  # names of the constants that it reads


class Part(NamedTuple):
    """A subgraph with its inputs and outputs."""

    subgraph: Subgraph
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def onnx_source(model: str, given: ModelInputs = AS_IN_FILE) -> OnnxSource:
    """A built-in model by name, or an ONNX file by path, to cut layers out of; `given` as in `load_graph`.

    Raises:
        UnreadableModel: there is no such model.
    """
    return OnnxSource(find_model(model), given)


class OnnxSource(Source):
    """An ONNX file that layers can be cut out of.

    A view or a constant is in no layer; every sub-model that reads it computes it again.
    """

    def __init__(self, path: Path, given: ModelInputs = AS_IN_FILE) -> None:
        self._path, self._given = path, given
        self._weights = Weights(path)
        self._batched = lru_cache(maxsize=N_BATCH_SIZES)(self._at)

    def __reduce__(self) -> tuple[type[OnnxSource], tuple[Path, ModelInputs]]:
        """Another process reads the file itself."""
        return OnnxSource, (self._path, self._given)

    @cached_property
    def graph(self) -> LayerGraph:
        """The layers of the whole model, as `load_graph` reads them."""
        return load_graph(str(self._path), self._given)

    @override
    def cut(self, graph: LayerGraph, layers: LayerRange, batch_size: int) -> SubModel:
        """Make a model of `layers`, identified by the tensors that they write: `graph` may be a part of the whole.

        An output of the whole model that exists before `layers`, as an input or an earlier layer's output, is no output
        of the sub-model: it is carried past it. Raises UnreadableModel if the file has changed, its weights are missing
        or too many for one file, and BadInput if the model does not run at `batch_size`.
        """
        batched, part = self._part(graph, layers, batch_size)
        return SubModel(batched.serialise(part, self._weights), part.inputs, part.outputs)

    def save(self, graph: LayerGraph, layers: LayerRange, batch_size: int, path: Path) -> SubModel:
        """Write what `cut` makes to a file, too many weights to "`path`.data", and return it without its content.

        Raises as `cut`.
        """
        batched, part = self._part(graph, layers, batch_size)
        batched.save(part, self._weights, path)
        return SubModel(b"", part.inputs, part.outputs)

    def _part(self, graph: LayerGraph, layers: LayerRange, batch_size: int) -> tuple[BatchedModel, Part]:
        batched = self._batched(batch_size, graph.fixed_batch)
        made = _written(graph, layers, layers.stop)
        outside = _read(graph, layers).difference(_written(graph, layers))
        # The last range of the whole model also returns views and constants, which no layer writes.
        if layers.stop == len(graph) == len(self.graph):
            before = _written(graph, LayerRange(0, layers.start), len(graph))
            outside.update(before, batched.inputs)
            made = [name for name in batched.outputs if name not in outside]
        subgraph = batched.subgraph(made, outside)
        return batched, Part(subgraph, batched.ports(subgraph.inputs), batched.ports(made))

    @override
    def carried(self, graph: LayerGraph, cut: int, batch_size: int) -> tuple[Port, ...]:
        batched = self._batched(batch_size, graph.fixed_batch)
        if cut == 0:
            return batched.ports(batched.inputs)
        if cut == len(graph):
            return batched.ports(batched.outputs)
        every_written = set(_written(graph, LayerRange(0, len(graph))))
        # A tensor travels over the cut if a layer behind it reads it, or if the model returns it.
        read = _read(graph, LayerRange(cut, len(graph)))
        read.update(batched.subgraph(batched.outputs, every_written).inputs)
        fed = [name for name in batched.inputs if name in read]
        return batched.ports(fed + _written(graph, LayerRange(0, cut), cut))

    @cached_property
    def _plain(self) -> PlainModel:
        return resolve_batch(read_model(self._path), self._given)

    def _at(self, batch_size: int, fixed_batch: str | None) -> BatchedModel:
        if fixed_batch is None:
            return BatchedModel(self._plain.at(batch_size))
        if batch_size == 1:
            return BatchedModel(self._plain.own)
        raise BadInput(f"batch_size must be 1, as {fixed_batch}; got {batch_size}")


def _read(graph: LayerGraph, layers: LayerRange) -> set[str]:
    names: set[str] = set()
    for layer in graph.layers[slice(*layers)]:
        names.update(graph.tensors[index].name for index in layer.inputs)
        # A state is a weight of its layer, though it comes from an input of the model.
        names.update(graph.tensors[index].name for index in layer.weights if graph.tensors[index].is_state)
    return names


def _written(graph: LayerGraph, layers: LayerRange, since: int = 0) -> list[str]:
    """Names of the tensors that layers write and that layer `since` or a later one reads."""
    outputs = chain.from_iterable(layer.outputs for layer in graph.layers[slice(*layers)])
    tensors = [graph.tensors[index] for index in outputs]
    return [tensor.name for tensor in tensors if tensor.last_use >= since or tensor.is_state]


class BatchedModel:
    """A plain model at one batch size, for many subgraphs."""

    def __init__(self, traced: TracedModel) -> None:
        model, self._values = traced
        self._model = model
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._nodes: list[onnx.NodeProto] = list(model.graph.node)
        self._writers: dict[str, int] = {}
        for index, node in enumerate(self._nodes):
            self._writers.update(dict.fromkeys(node.output, index))
        self._convolved: set[str] = set()
        for node in all_nodes(model.graph):
            if node.op_type in ("Conv", "ConvTranspose"):
                self._convolved.update(node.input)
        # Runtimes report times by the names of nodes (`layer_seconds`), so every node gets a name of its own.
        named = Counter(node.name for node in self._nodes)
        named.update([*self._writers, ""])
        for node in self._nodes:
            if named[node.name] > 1:
                node.name = first_output(node)
        self.inputs = tuple(entry.name for entry in model.graph.input)
        self.outputs = tuple(entry.name for entry in model.graph.output)

    def subgraph(self, wanted: Iterable[str], outside: Collection[str]) -> Subgraph:
        """The nodes that compute `wanted` from `outside` and inputs of the model.

        A node that reads only a shape that is known becomes a constant: another stage may hold the tensor itself.
        Raises UnreadableModel if nothing writes a tensor.
        """
        waiting, seen = list(wanted), set(wanted)
        nodes, inputs, constants = set(), [], []
        while waiting:  # from the wanted tensors back to what is given or stored
            name = waiting.pop()
            if name in outside or name in self.inputs:
                inputs.append(name)
            elif name in self._constants or self._is_stand_in(name):
                constants.append(name)
            elif self._writer(name).op_type in READS_SHAPE and self._value(name).constant:
                constants.append(name)  # a shape, or a length, that does not depend on data
            else:
                nodes.add(self._writers[name])
                read = set(filter(None, reads(self._writer(name)))) - seen
                waiting.extend(read)
                seen |= read
        return Subgraph([self._nodes[index] for index in sorted(nodes)], sorted(inputs), sorted(constants))

    def ports(self, names: Iterable[str]) -> tuple[Port, ...]:
        """The tensors of these names as inputs or outputs.

        Raises UnreadableModel if nothing writes one, or NumPy has no such elements.
        """
        ports = []
        for name in names:
            value = self._value(name)
            ports.append(Port(name, value.shape, self._dtype(name), value.data_dependent))
        return tuple(ports)

    def serialise(self, part: Part, weights: Weights) -> bytes:
        """An ONNX file of a subgraph, weights inside.

        Raises UnreadableModel if a weight is missing, or all are too large for one file.
        """
        n_bytes = self._weight_bytes(part)
        if n_bytes > MAX_WEIGHT_BYTES:
            raise UnreadableModel(
                f"an ONNX file holds at most {MAX_WEIGHT_BYTES} bytes of weights, a range of layers has {n_bytes}; "
                "try more devices"
            )
        model, stored = self._assembled(part, weights)
        return with_weights(model, stored)

    def save(self, part: Part, weights: Weights, path: Path) -> None:
        """Write the ONNX file of a subgraph; weights that are too many for one file lie beside it.

        Raises UnreadableModel if a weight is missing.
        """
        if self._weight_bytes(part) <= MAX_WEIGHT_BYTES:
            path.write_bytes(self.serialise(part, weights))
            return
        model, stored = self._assembled(part, weights)
        data = path.with_name(f"{path.name}.data")
        with data.open("wb") as file:
            entries = [external(onnx.TensorProto.FromString(each), file) for each in stored]
        path.write_bytes(with_weights(model, [entry.SerializeToString() for entry in entries]))

    def _weight_bytes(self, part: Part) -> int:
        n_bytes = 0
        for name in part.subgraph.constants:
            value = self._values[name]
            n_bytes += prod(value.shape) * helper.tensor_dtype_to_np_dtype(value.dtype).itemsize
        return n_bytes

    def _assembled(self, part: Part, weights: Weights) -> tuple[onnx.ModelProto, list[bytes]]:
        written = {port.name for port in part.outputs}
        copies, stored = [], []
        for name in part.subgraph.constants:
            serialised = self._constant(name, weights)
            if name in written:  # ONNX Runtime does not write a constant to the memory that its output is bound to
                constant = onnx.TensorProto.FromString(serialised)
                constant.name = f"{name}__constant"
                copies.append(helper.make_node("Identity", [constant.name], [name], constant.name))
                serialised = constant.SerializeToString()
            stored.append(serialised)
        nodes = copies + part.subgraph.nodes
        return assemble(self._model, nodes, self._entries(part.inputs), self._entries(part.outputs), []), stored

    def _writer(self, name: str) -> onnx.NodeProto:
        self._value(name)
        return self._nodes[self._writers[name]]

    def _value(self, name: str) -> Value:
        if name not in self._values:
            raise UnreadableModel(f"a layer must be in the file, nothing there writes {name!r}; it may have changed")
        return self._values[name]

    def _is_stand_in(self, name: str) -> bool:
        """True if a constant of equal elements stands in for a weight, as in models without weights.

        A mask, a state or a bias is no weight: it holds zeros, ones, integers or huge numbers, has the shape of another
        tensor, or is a vector.
        """
        if name in self._constants or self._writer(name).op_type != "ConstantOfShape":
            return False
        node, value = self._writer(name), self._values[name]
        if node.input[0] not in self._constants:  # the shape of another tensor
            return False
        is_matrix = len(value.shape) > 1 and prod(value.shape) >= MIN_STAND_IN and is_float(value.dtype)
        return is_matrix and 0 < abs(float(fill_value(node))) < 1

    def _dtype(self, name: str) -> str:
        dtype = helper.tensor_dtype_to_np_dtype(self._values[name].dtype)
        if np.dtype(dtype).kind not in "biufc":
            kind = "strings" if np.dtype(dtype).kind == "O" else dtype
            message = f"what a stage reads and writes must be numbers that NumPy knows, {name!r} holds {kind}"
            if name in self.inputs or name in self.outputs:
                raise UnreadableModel(f"{message}; cut the model there, and leave the rest to what calls it")
            raise Unsupported(f"{message}; try stages that begin elsewhere")
        return str(dtype)

    def _constant(self, name: str, weights: Weights) -> bytes:
        if self._is_stand_in(name):
            shape, dtype = self._values[name].shape, fill_value(self._writer(name)).dtype
            return weights.stand_in(name, shape, dtype, convolves=name in self._convolved)
        if name in self._constants:
            return weights.serialised(self._constants[name])
        data = self._values[name].data
        assert data is not None
        return weights.serialised(numpy_helper.from_array(data, name))

    def _entries(self, ports: Iterable[Port]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(port.name, self._values[port.name].dtype, port.shape) for port in ports]


def external(tensor: onnx.TensorProto, file: BinaryIO) -> onnx.TensorProto:
    """Append the values of a tensor to a data file, aligned to pages, and return the tensor that refers to them.

    A small tensor stays as it is: shape inference reads its values.
    """
    values = numpy_helper.to_array(tensor).tobytes()
    if len(values) < MIN_EXTERNAL_BYTES:
        return tensor
    offset = -(-file.tell() // PAGE_BYTES) * PAGE_BYTES
    file.seek(offset)
    file.write(values)
    entry = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    entry.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", Path(file.name).name), ("offset", offset), ("length", len(values))):
        entry.external_data.add(key=key, value=str(value))
    return entry


def with_weights(model: onnx.ModelProto, weights: Sequence[bytes]) -> bytes:
    """Serialise a model and put `weights`, serialised tensors, behind its other initializers.

    A message within a message is its field number, its number of bytes, and its bytes; the fields of a message may come
    in any order [protobuf]. Here they are in the order of their numbers: OpenVINO reads no file with the versions of
    several sets of operators right before the graph.
    """
    before, behind = deepcopy(model), deepcopy(model)
    for field in model.DESCRIPTOR.fields:
        if field.number >= onnx.ModelProto.GRAPH_FIELD_NUMBER:
            before.ClearField(field.name)
        if field.number <= onnx.ModelProto.GRAPH_FIELD_NUMBER:
            behind.ClearField(field.name)
    inside = [model.graph.SerializeToString()]
    for weight in weights:
        inside += [_header(onnx.GraphProto.INITIALIZER_FIELD_NUMBER, len(weight)), weight]
    # The weights are joined as bytes: protobuf would copy them into one message once more.
    header = _header(onnx.ModelProto.GRAPH_FIELD_NUMBER, sum(map(len, inside)))
    return b"".join([before.SerializeToString(), header, *inside, behind.SerializeToString()])


def varint(number: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first; all but the last have the eighth bit set.

    >>> varint(300).hex()
    'ac02'
    """
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _header(field: int, n_bytes: int) -> bytes:
    """What stands before the bytes of a message in a field; 2 is the wire type of fields with a length [protobuf]."""
    return varint(field << 3 | 2) + varint(n_bytes)
