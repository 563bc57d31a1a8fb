"""Whether and how a model file can be planned, without planning it: `inspect_model`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import onnx

from autoauto.engines.llama_cpp import CacheType, kv_cache_bytes
from autoauto.evaluate.open import open_problem
from autoauto.graph.decoders.gguf import read_gguf
from autoauto.graph.inputs.axes import describe, dims_of
from autoauto.graph.inputs.lengths import OpenAxes
from autoauto.graph.load import find_model, load_graph
from autoauto.graph.onnx_file import read_model
from autoauto.records.costs.decoder import DecoderFile, Workload
from autoauto.records.errors import AutoautoError, DoesNotFit, MissingExtra
from autoauto.records.layers import LayerGraph, LayerRange, ModelInputs
from autoauto.records.model_inputs import read_model_inputs, texts_of
from autoauto.space.knobs import Knobs
from autoauto.space.requests.problem import Problem
from autoauto.targets.host.entry import HOST
from autoauto.targets.host.runtimes.llamacpp.session import LlamaCppSession
from autoauto.targets.host.runtimes.llamacpp.target import LlamaCppTarget
from autoauto.targets.ipu.operators.registry import default_notes, has_rule


class ModelEnd(NamedTuple):
    """An input or output as the file has it: its name, element type and shape, with the names of open axes."""

    name: str
    dtype: str
    shape: str


class OperatorUse(NamedTuple):
    """An operator of a model: how many layers it has, those in bodies too, and whether it has a price on IPUs."""

    name: str
    n_layers: int
    has_rule: bool


class RuntimeAnswer(NamedTuple):
    """A runtime of this machine, and why it does not run the model; "" where it does."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """A model file: its layers, ends and operators, and which runtimes run it.

    Attributes:
        graph: its layers, with what was assumed of them.
        inputs, outputs: as the file has them.
        operators: those of its layers, the most frequent first.
        offered: lengths of open axes that nobody gave, as texts of `--shape`; the layers are those at these lengths.
        counts: what these lengths count, where names of axes and inputs tell.
        notes: what was assumed of the model and, on IPUs, of its prices.
        runtimes: of this machine, as they answered; none where none is installed.
    """

    graph: LayerGraph
    inputs: tuple[ModelEnd, ...]
    outputs: tuple[ModelEnd, ...]
    operators: tuple[OperatorUse, ...]
    offered: tuple[str, ...]
    counts: tuple[str, ...]
    notes: tuple[str, ...]
    runtimes: tuple[RuntimeAnswer, ...]


def inspect_model(model: str, given: ModelInputs, *, runs: bool = True) -> Inspection:
    """Read a model, by its built-in name or its path, at sensible lengths where axes stay open.

    If it `runs`, the runtimes of this machine are asked to run it, which takes seconds. Raises UnreadableModel if there
    is no such model, or it cannot be read.
    """
    proto = read_model(find_model(model))
    stored = {tensor.name for tensor in proto.graph.initializer}
    offered: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()
    try:
        graph = load_graph(model, given)
    except OpenAxes as error:
        if error.offer is None:
            raise
        offered, counts = tuple(error.offers[error.offer]), error.counts
        given = replace(given, shapes=(*given.shapes, *read_model_inputs(offered).shapes))
        graph = load_graph(model, given)
    uses = Counter(layer.op for layer in graph.all_layers())
    notes = graph.notes[1:] if offered else graph.notes  # the first would call the offered lengths given
    return Inspection(
        graph=graph,
        inputs=tuple(_end(entry) for entry in proto.graph.input if entry.name not in stored),
        outputs=tuple(map(_end, proto.graph.output)),
        operators=tuple(OperatorUse(name, n, has_rule(name)) for name, n in uses.most_common()),
        offered=offered,
        counts=counts,
        notes=(*notes, *default_notes(graph)),
        runtimes=tuple(_answers(model, given)) if runs else (),
    )


def command_to_start(model: str, inspection: Inspection) -> list[str]:
    """The command that searches the model, with what was said of its inputs, as words."""
    words = ["autoauto", "search", model]
    for name, texts in texts_of(inspection.graph.inputs).items():
        for text in texts:
            words += [f"--{name.replace('_', '-')}", text]
    return words


def _end(entry: onnx.ValueInfoProto) -> ModelEnd:
    if not entry.type.HasField("tensor_type"):
        return ModelEnd(entry.name, str(entry.type.WhichOneof("value") or "unknown").removesuffix("_type"), "")
    tensor = entry.type.tensor_type
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    return ModelEnd(entry.name, dtype, describe(dims_of(entry)) if tensor.HasField("shape") else "unknown")


def _answers(model: str, given: ModelInputs) -> Iterator[RuntimeAnswer]:
    try:
        flow = open_problem(Problem(model, target=HOST.name, model_inputs=given))
        runtimes = flow.traits.space["runtime"]
        flow.target.version  # noqa: B018 raises where no runtime is installed
        compiler, layers = flow.setting.compiler, LayerRange(0, len(flow.graph))
    except MissingExtra:
        return
    for runtime in runtimes:
        knobs = Knobs(1, 1, runtime=runtime)
        options = flow.options(knobs)
        try:
            compiler.compile(flow.graph, layers, flow.setting.device(options), options)
        except AutoautoError as error:
            yield RuntimeAnswer(str(runtime), str(error))
        else:
            yield RuntimeAnswer(str(runtime), "")


_TOKENS = Workload(8, 8)
"""Tokens of the one request for which a server is started."""


@dataclass(frozen=True, slots=True)
class DecoderInspection:
    """The header of a GGUF file, and whether llama.cpp serves it.

    Attributes:
        model: the file, as it was given.
        file: what its header says.
        answer: why llama.cpp does not come up with it, "" where it does; None where it was not asked.
    """

    model: str
    file: DecoderFile
    answer: str | None

    @property
    def command(self) -> tuple[str, ...]:
        """The words of the command that searches it."""
        start = ("autoauto", "search", self.model, "--target", "host", "--runtime", LlamaCppSession.runtime)
        return (*start, "--input-tokens", "64", "--output-tokens", "32")

    def to_json(self) -> dict[str, Any]:
        """All numbers as JSON has them."""
        decoder = self.file.decoder
        return {
            "model": decoder.name,
            "architecture": decoder.architecture,
            "n_layers": decoder.n_layers,
            "hidden_size": decoder.hidden_size,
            "intermediate_size": decoder.intermediate_size,
            "n_heads": decoder.n_heads,
            "n_kv_heads": decoder.n_kv_heads,
            "head_size": decoder.head_size,
            "vocabulary_size": decoder.vocabulary_size,
            "is_tied": decoder.is_tied,
            "experts": None if decoder.experts is None else decoder.experts._asdict(),
            "max_length": decoder.checkpoint.max_length,
            "weights": self.file.weights,
            "n_bytes": self.file.n_bytes,
            "kv_bytes_per_token": kv_cache_bytes(decoder, 1, CacheType.F16),
            "runtimes": [] if self.answer is None else [{"name": LlamaCppSession.runtime, "reason": self.answer}],
        }


def inspect_decoder(model: str, *, runs: bool = True) -> DecoderInspection:
    """Read the header of a GGUF file, and if it `runs` start llama.cpp with it, which takes as long as reading.

    Raises UnreadableModel if it cannot be read.
    """
    file = read_gguf(Path(model))
    return DecoderInspection(model, file, _answer(file) if runs else None)


def _answer(file: DecoderFile) -> str | None:
    try:
        target = LlamaCppTarget.of(file)
    except MissingExtra:
        return None
    try:
        with target.serve(LlamaCppSession(), 1, _TOKENS):
            return ""
    except DoesNotFit as failure:
        return str(failure)
