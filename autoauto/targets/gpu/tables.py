"""Measured times of GPU kernels, `KernelTables`: the only file that runs code of aiconfigurator-core [aiconfigurator].

A decoder is described to the package as one of its own families, so a name, a folder and a config of the user go one
way. Times are of one GPU of a group; the package gives milliseconds that are summed over the blocks. Where the ranks of
a group have sequences of their own, numbers of sequences and tokens are those of each rank; experts compute them all.

    decode_tokens(b)        a step of b sequences without attention: products, norms, all-reduces
    prompt_tokens(x)        a step over x tokens, those of prompts and sequences together, without attention
    decode_attention(b, s)  of b sequences, each with s cached tokens
    prompt_attention(s, c)  of one prompt of s tokens, behind c that are cached
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version
from itertools import product as choices
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from autoauto.engines.registry import engine_named
from autoauto.engines.rules import GroupSplit
from autoauto.processes.folders import delete_left, temporary_folder
from autoauto.records.costs.blocks import Attention
from autoauto.records.costs.decoder import BlockPart, Decoder, PartFormat, WeightFormat
from autoauto.records.errors import MissingExtra, Unsupported, missing_extra
from autoauto.records.installation import extras, gpu_tables_dir, install_command
from autoauto.records.units import FloatArray, IntArray
from autoauto.targets.gpu.answers import Asked, Size, StoredAnswers, write_all
from autoauto.targets.gpu.configs import Described, Side, sources_of
from autoauto.targets.gpu.operations import EMBEDDING, HEAD, Operation, Operations, operations_of, part_of, taken

SUPPORTED = ((0, 11), (0, 13))
"""The first version that is read, and the first that is not."""
_LOG = logging.getLogger(__name__)
_PACKAGE = "aiconfigurator-core"
_GEMM = {
    WeightFormat.BF16: "bfloat16",
    WeightFormat.FP8: "fp8_static",
    WeightFormat.FP8_DYNAMIC: "fp8",
    WeightFormat.FP8_BLOCK: "fp8_block",
    WeightFormat.FP8_W8A16: "int8_wo",  # as many bytes, and products of bf16 too
    WeightFormat.INT8: "int8_wo",
    WeightFormat.INT8_W8A8: "sq",
    WeightFormat.INT4: "int4_wo",
    WeightFormat.NVFP4: "nvfp4",
}
_EXPERTS: Mapping[WeightFormat, tuple[str, ...]] = {
    WeightFormat.FP8: ("fp8",),
    WeightFormat.NVFP4: ("nvfp4", "nvfp4_wo"),  # on GPUs without products of 4 bits in bf16
    WeightFormat.MXFP4: ("w4a8_mxfp4_mxfp8", "w4a16_mxfp4"),
}
"""The names of formats of experts where they differ; the first is taken that was measured."""
_CACHE = {WeightFormat.BF16: "bfloat16", WeightFormat.FP8: "fp8"}
_PRODUCT = "_gemm"
_AVAILABLE = re.compile(r"available: \[([^\]]*)\]")
"""The formats that a system has, in errors of the package."""
_MAX_OPEN_TABLES = 256
_TEMPORARY = "autoauto-decoders-"
"""The beginning of the names of temporary folders."""
_VARIABLES = "AIC"
"""The beginning of the names of variables of the environment that change what the package answers."""
_OWN_FOLDERS = ("AICONFIGURATOR_SYSTEMS_PATH", "AICONFIGURATOR_MODEL_CONFIGS_PATH")
"""Those of these variables that the package sets itself."""
_OF_FAULTS = "os error"
"""In errors that may be others the next time."""
_AS_LONG = -1
"""In place of a number of tokens: as many as the prompts have."""
Opened = tuple[Mapping[WeightFormat, "KernelModel"], Operations]
"""A source of a decoder: models of the package by the format of products, and the operations that are taken."""
Taken = Mapping["KernelModel", Sequence[Operation]]
"""The operations whose times are added up, by model of the package."""


class Serving(NamedTuple):
    """The system, split and formats by which a group of GPUs computes a decoder.

    Attributes:
        system: the GPUs, by the name of the package, for example "h100_sxm".
        tensor_parallel: GPUs that split the attention of a sequence.
        expert_parallel: among how many GPUs of the group experts are dealt whole; the rest splits every expert.
        weights, kv_cache: formats of the matrices of blocks, and of keys and values.
        attention_data_parallel: ranks, each of `tensor_parallel` GPUs with the attention of sequences of its own.
    """

    system: str
    engine: str
    tensor_parallel: int = 1
    expert_parallel: int = 1
    weights: WeightFormat = WeightFormat.BF16
    kv_cache: WeightFormat = WeightFormat.BF16
    attention_data_parallel: int = 1

    @property
    def split(self) -> GroupSplit:
        """The split of the model over the GPUs of a group."""
        return GroupSplit(self.tensor_parallel, self.expert_parallel, self.attention_data_parallel)

    @property
    def n_gpus(self) -> int:
        """GPUs of the group."""
        return self.split.n_gpus


class Times(NamedTuple):
    """Seconds of a step on one GPU, arrays with one entry a number of tokens."""

    block: FloatArray  # of one block
    embedding: FloatArray  # with its all-reduce
    head: FloatArray  # of the logits


@cache
def delete_left_folders() -> None:
    """Delete temporary folders of killed processes; once a process, since one that needs none makes none."""
    delete_left(_TEMPORARY)


def check_installed() -> None:
    """Raise MissingExtra if the package is not there, or not in a version that is read."""
    try:
        given = version(_PACKAGE)
    except PackageNotFoundError:
        raise missing_extra("the target gpu", "gpu") from None
    parts = tuple(int(part) for part in given.split(".")[:2] if part.isdecimal())
    if not SUPPORTED[0] <= parts < SUPPORTED[1]:
        raise MissingExtra(f"the target gpu needs {extras()['gpu'][0]}, got {given}; try: {install_command('gpu')}")


@lru_cache(_MAX_OPEN_TABLES)
def open_tables(decoder: Decoder, serving: Serving) -> KernelTables:
    """The times of a decoder on a group of GPUs; the first of a system and engine reads their tables in about a second.

    Raises:
        MissingExtra: see `check_installed`.
        Unsupported: the group cannot split the model, or the package has no times of what it computes.
    """
    check_installed()
    delete_left_folders()
    write_all()
    if reason := engine_named(serving.engine).takes(decoder, serving.split, serving.weights):
        raise Unsupported(reason)
    models = attention = _compiled(decoder, serving)
    other = engine_named(serving.engine).kernel_exceptions.attention
    if other is not None and other.is_of(decoder, serving.system):
        attention = _compiled(decoder, serving._replace(engine=other.engine))
    return KernelTables(decoder, serving, models, attention)


class KernelModel:
    """A model of the package. It is opened where it is asked what no process asked before."""

    def __init__(self, stored: StoredAnswers, opened: Callable[[], Any]) -> None:
        self._stored, self._opened = stored, opened
        self._decode, self._prompt = stored.decode, stored.prompt
        if not stored.decode:
            # Every operation is asked for once, which gives its name, or why there are no times of it.
            handle = self._handle
            self._decode = operations_of(lambda i: handle.evaluate_generation_ops([i], batch_size=1, s=16))
            self._prompt = operations_of(lambda i: handle.evaluate_context_ops([i], batch_size=1, s=1024))
            if not any(_OF_FAULTS in operation.reason for operation in (*self._decode, *self._prompt)):
                self._stored.describe(handle.spec_bytes, self._decode, self._prompt)

    def operations(self, side: Side, *, dispatch_reduces: bool) -> Operations:
        """The operations of a side of both steps; raises as `taken`."""
        of_steps = (taken(step, side, dispatch_reduces=dispatch_reduces) for step in (self._decode, self._prompt))
        return Operations(*of_steps)

    def seconds(self, asked: Asked, sizes: Sequence[Size]) -> FloatArray:
        """The times of operations at every size, shape (operations, sizes)."""
        known = self._stored.of(asked)
        lacking = [size for size in dict.fromkeys(sizes) if size not in known]
        if lacking:  # `known` has the answers that are added
            self._stored.add(asked, {size: self._ask(asked, size) for size in lacking})
        milliseconds = np.array([known[size] for size in sizes], dtype=np.float64)
        return milliseconds.reshape(len(sizes), len(asked.numbers)).T / 1e3

    def _ask(self, asked: Asked, size: Size) -> tuple[float, ...]:
        if asked.is_prompt:
            n_prompts, length, n_cached, n_tokens = size
            x = None if n_tokens == _AS_LONG else n_tokens
            answers = self._handle.evaluate_context_ops(
                asked.numbers, batch_size=n_prompts, s=length, prefix=n_cached, x=x
            )
        else:
            n_sequences, length = size
            answers = self._handle.evaluate_generation_ops(asked.numbers, batch_size=n_sequences, s=length)
        return tuple(milliseconds for _, milliseconds, _, _ in answers)

    @cached_property
    def _handle(self) -> Any:
        return self._opened()


def _compiled(decoder: Decoder, serving: Serving) -> list[Opened]:
    opened: list[Opened] = []
    with _refusals(decoder, serving):
        formats = list(dict.fromkeys(_product_formats(decoder, serving).values()))
        for source in sources_of(decoder):
            answers = [_answering(decoder, serving, source, product) for product in formats]
            models = {product: model for product, (model, _) in zip(formats, answers, strict=True)}
            opened.append((models, answers[0][1]))  # the formats have the same operations
    return opened


def _product_formats(decoder: Decoder, serving: Serving) -> dict[BlockPart, WeightFormat]:
    """The formats of the matrices of a block except those of experts."""
    formats: dict[BlockPart, WeightFormat] = {}
    for part, stored in decoder.part_formats(serving.weights).items():
        if part is not BlockPart.EXPERTS:
            formats[part] = stored.weights
    if BlockPart.SHARED in formats:  # a dense layer stands for what shared experts are larger than one
        formats |= dict.fromkeys((BlockPart.GATE_UP, BlockPart.DOWN), formats[BlockPart.SHARED])
    if lacking := [each for each in formats.values() if each not in _GEMM]:
        raise KeyError(f"{lacking[0]} is of experts alone")
    return formats or {BlockPart.QKV: WeightFormat.BF16}


def _answering(
    decoder: Decoder, serving: Serving, source: Described, product: WeightFormat
) -> tuple[KernelModel, Operations]:
    """A model with the first formats of experts and of prompt attention that it has times of, and its operations."""
    stored = decoder.part_formats(serving.weights).get(BlockPart.EXPERTS, PartFormat()).weights
    exceptions = engine_named(serving.engine).kernel_exceptions
    able = [*exceptions.of_experts.get(stored, ()), *_EXPERTS.get(stored, (_GEMM.get(stored, ""),))]
    if exceptions.stand_in(serving.system, stored, of_products=False):
        serving = serving._replace(expert_parallel=serving.n_gpus)
    # Of products in the attention over a prompt: an fp8 cache is read as it is, where there is a kernel for it.
    of_prompt = ("fp8", "bfloat16") if serving.kv_cache is WeightFormat.FP8 else ("bfloat16",)
    failures: list[RuntimeError] = []
    for experts, prompt_format in choices(able, of_prompt):
        model = _model(serving, source, product, experts, prompt_format)
        try:
            return model, model.operations(source.side, dispatch_reduces=exceptions.dispatch_reduces)
        except RuntimeError as error:
            failures.append(error)
    raise failures[-1]


def _model(serving: Serving, source: Described, product: WeightFormat, experts: str, prompt_format: str) -> KernelModel:
    config = json.dumps(source.config)
    engine = engine_named(serving.engine)
    kernels = engine.kernel_times
    stand_in = engine.kernel_exceptions.stand_in(serving.system, product, of_products=True)
    if stand_in and stand_in.products:
        product = stand_in.products
    options = {
        "tp_size": serving.tensor_parallel,
        "attention_dp_size": serving.attention_data_parallel,
        "moe_tp_size": serving.n_gpus // serving.expert_parallel,
        "moe_ep_size": serving.expert_parallel,
        "gemm_quant_mode": _GEMM[product],
        "moe_quant_mode": experts,
        "kvcache_quant_mode": _CACHE[serving.kv_cache],
        "fmha_quant_mode": prompt_format,
    }
    stored = StoredAnswers(repr((_package(), config, serving.system, kernels, options)))

    def opened() -> Any:
        """A handle from the specification that is stored, else compiled, which takes a second for the first."""
        from aiconfigurator_core.sdk.engine import EngineHandle

        if stored.specification:
            return EngineHandle(stored.specification)
        with temporary_folder(_TEMPORARY) as folder:
            (folder / "config.json").write_text(config, encoding="utf-8")
            return EngineHandle.compile(str(folder), serving.system, kernels, **options)

    return KernelModel(stored, opened)


@cache
def _package() -> tuple[object, ...]:
    """The version of the package, and the variables of the environment that change what it answers."""
    folder, variables = gpu_tables_dir(), []
    for name, value in sorted(os.environ.items()):
        is_own = name in _OWN_FOLDERS and folder is not None and Path(value).parent == folder
        if name.startswith(_VARIABLES) and not is_own:
            variables.append((name, value))
    return version(_PACKAGE), variables


@contextmanager
def _refusals(decoder: Decoder, serving: Serving) -> Iterator[None]:
    """Turn the errors of the package into one line."""
    logging.getLogger("aiconfigurator_core").setLevel(logging.CRITICAL)
    try:
        yield
    except (ValueError, KeyError, RuntimeError, AssertionError, OSError) as error:
        _LOG.debug("no times of %s: %s", serving, error)
        raise Unsupported(
            f"{serving.system} must have times of {decoder.name} by {serving.engine} with {serving.weights} weights, "
            f"{serving.kv_cache} cache and {serving.n_gpus} GPUs a group; {_missing(decoder, serving, error)}"
        ) from None


def _missing(decoder: Decoder, serving: Serving, error: Exception) -> str:
    text = str(error)
    if "attention data missing" in text:
        n_heads = decoder.kv_heads_per_gpu(serving.tensor_parallel)
        return (
            f"no attention was measured with {n_heads} heads of keys and values of {decoder.head_size} elements on a "
            "GPU; try another tensor_parallel or engine"
        )
    if "MoE data missing" in text and (experts := decoder.experts) is not None:
        return (
            f"no mixture of {experts.n_experts} experts of {experts.intermediate_size} was measured with "
            f"{serving.expert_parallel} of {serving.n_gpus} GPUs that have whole ones; try another "
            "expert_parallel, tensor_parallel, engine or format"
        )
    if "missing system flops" in text:
        return f"{serving.system} computes no products in {serving.weights}; try another precision"
    names = {name: weights for weights, name in _GEMM.items()} | {_GEMM[WeightFormat.FP8_DYNAMIC]: "fp8, fp8-dynamic"}
    listed = _AVAILABLE.search(text)
    if listed:
        known = [names[name] for name in re.findall(r"\w+", listed[1]) if name in names]
        return f"measured formats are {', '.join(known)}; try one of them, or another engine"
    return "they were not measured; try another engine, format or tensor_parallel"


class KernelTables:
    """The times of a decoder on one GPU of a group."""

    def __init__(
        self, decoder: Decoder, serving: Serving, models: Sequence[Opened], attention: Sequence[Opened]
    ) -> None:
        self.decoder = decoder
        self.serving = serving
        self._factors = engine_named(serving.engine).kernel_exceptions.product_factors
        self._formats = _product_formats(decoder, serving)
        most = decoder.kind.attention
        self._window = most.window if isinstance(most, Attention) else None
        self._decode_attention = self._taken(attention, is_prompt=False, of_attention=True)
        self._decode_others = self._taken(models, is_prompt=False, of_attention=False)
        self._prompt_attention = self._taken(models, is_prompt=True, of_attention=True)
        self._prompt_others = self._taken(models, is_prompt=True, of_attention=False)

    def _taken(self, sources: Sequence[Opened], *, is_prompt: bool, of_attention: bool) -> Taken:
        """The operations that depend on the length of sequences, or the others, each in the format of its part."""
        by_model: dict[KernelModel, list[Operation]] = defaultdict(list)
        for models, operations in sources:
            of_steps = operations.prompt if is_prompt else operations.decode
            for operation in of_steps:
                if operation.is_attention != of_attention:
                    continue
                # An operation whose format does not vary is the same in all models.
                model = next(iter(models.values()))
                if operation.part in self._formats:
                    model = models[self._formats[operation.part]]
                by_model[model].append(operation)
        return by_model

    def decode_tokens(self, n_tokens: IntArray) -> Times:
        """A decode step of so many sequences, without attention."""
        return self._decode(self._decode_others, n_tokens, n_cached=1)

    def prompt_tokens(self, n_tokens: IntArray) -> Times:
        """A step over so many tokens of prompts and sequences, without attention; of the shape of `n_tokens`."""
        distinct, indices = np.unique(n_tokens, return_inverse=True)
        sizes = [(1, max(1, n), 0, n) for n in distinct.tolist()]
        times = self._times(self._prompt_others, sizes, is_prompt=True)
        return Times(*(seconds[indices].reshape(n_tokens.shape) for seconds in times))

    def decode_attention(self, n_sequences: IntArray, n_cached: int) -> FloatArray:
        """Seconds of the attention of one block in a decode step, over so many cached tokens of every sequence."""
        n_read = n_cached if self._window is None else min(n_cached, self._window)
        return self._decode(self._decode_attention, n_sequences, n_read).block

    def prompt_attention(self, n_tokens: int, n_cached: int = 0) -> float:
        """Seconds of the attention of one block from so many tokens of a prompt to them and to cached ones before.

        With a window of w tokens every token reads w, and the first w half as many in the mean, so that there is as
        much to do as for 2 n / w - 1 prompts of w tokens, which are asked for together. Fewer than w tokens read w
        cached ones at most.
        """
        n_prompts, length = 1, n_tokens
        if self._window is not None and n_tokens < self._window:
            n_cached = min(n_cached, self._window)  # all that a few new tokens read
        elif self._window is not None and n_tokens + n_cached > self._window:
            before = min(n_cached, self._window) / self._window
            n_prompts = max(1, round(2 * (n_tokens / self._window + before) - 1 - before**2))
            length, n_cached = self._window, 0
        size = (n_prompts, max(1, length), int(n_cached), _AS_LONG)
        return float(self._times(self._prompt_attention, [size], is_prompt=True).block[0])

    def _decode(self, operations: Taken, n_sequences: IntArray, n_cached: int) -> Times:
        sizes = [(max(1, int(n)), max(1, int(n_cached))) for n in n_sequences.tolist()]
        return self._times(operations, sizes, is_prompt=False)

    def _times(self, every: Taken, sizes: Sequence[Size], *, is_prompt: bool) -> Times:
        times = Times(*(np.zeros(len(sizes)) for _ in Times._fields))
        with _refusals(self.decoder, self.serving):
            for model, operations in every.items():
                asked = Asked(is_prompt, tuple(operation.number for operation in operations))
                for operation, seconds in zip(operations, model.seconds(asked, sizes), strict=True):
                    if operation.name in EMBEDDING:
                        times.embedding[:] += seconds
                    elif operation.name in HEAD:
                        times.head[:] += seconds
                    else:
                        factor = 1.0
                        if operation.name.endswith(_PRODUCT):
                            part = part_of(operation.name)
                            weights = self._formats[part] if part else self.serving.weights
                            factor = self._factors.get(weights, 1.0)
                        times.block[:] += seconds * factor
        return times._replace(block=times.block / self.decoder.n_layers)
