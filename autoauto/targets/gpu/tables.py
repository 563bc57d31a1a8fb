"""Measured times of GPU kernels, `KernelTables`: the only file that runs code of aiconfigurator-core [aiconfigurator].

A decoder is described to the package as one of its own families, so a name, a folder and a config of the user go one
way. Times are of one GPU of a group; the package gives milliseconds that are summed over the blocks.

    decode_tokens(b)        a step of b sequences without attention: products, norms, all-reduces
    prompt_tokens(x)        a step over x tokens, those of prompts and sequences together, without attention
    decode_attention(b, s)  of b sequences, each with s cached tokens
    prompt_attention(s)     of one prompt of s tokens
"""

from __future__ import annotations

import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import numpy as np

from autoauto.engines.registry import engine_named
from autoauto.engines.rules import GroupSplit
from autoauto.processes.folders import delete_left, temporary_folder
from autoauto.records.costs.decoder import BlockPart, Decoder, PartFormat, WeightFormat
from autoauto.records.errors import MissingExtra, Unsupported, missing_extra
from autoauto.records.installation import cache_dir, extras, install_command
from autoauto.records.units import FloatArray, IntArray

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
_EXPERTS = {WeightFormat.FP8: "fp8"}
"""The names of formats of experts, where they differ."""
_CACHE = {WeightFormat.BF16: "bfloat16", WeightFormat.FP8: "fp8"}
_EMBEDDING, _HEAD, _ATTENTION = ("embedding", "embedding_ar"), ("logits_gemm",), "attention"
_BETWEEN_STAGES, _PRODUCT = "p2p", "_gemm"
_PARTS = {
    "qkv_gemm": BlockPart.QKV,
    "proj_gemm": BlockPart.OUTPUT,
    "gate_ffn1_gemm": BlockPart.GATE_UP,
    "ffn2_gemm": BlockPart.DOWN,
}
"""The products whose format varies. Other ones are of bf16."""
_NORMED_QUERIES = ("Qwen3", "Gemma3")
"""Architectures that normalise queries and keys begin with these."""
_AVAILABLE = re.compile(r"available: \[([^\]]*)\]")
"""The formats that a system has, in errors of the package."""
_MAX_OPEN_TABLES = 256
_SPECIFICATIONS = "gpu-specifications"
"""The folder of the cache with what the package compiled, some kB each."""
_TEMPORARY = "autoauto-decoders-"
"""The beginning of the names of temporary folders."""
Operations = Iterable[tuple[str, float, float, str]]
"""What the package answers, one an operation: name, milliseconds, energy, source."""


class Serving(NamedTuple):
    """What a group of GPUs computes, and how.

    Attributes:
        system: the GPUs, by the name of the package, for example "h100_sxm".
        engine: its name.
        tensor_parallel: GPUs of the group; every matrix is split among them.
        expert_parallel: among how many of them experts are distributed whole; the rest splits every expert.
        weights: the format of the matrices of the blocks.
        kv_cache: that of keys and values.
    """

    system: str
    engine: str
    tensor_parallel: int = 1
    expert_parallel: int = 1
    weights: WeightFormat = WeightFormat.BF16
    kv_cache: WeightFormat = WeightFormat.BF16


class Times(NamedTuple):
    """Seconds of a step on one GPU, each an array with one entry a number of tokens.

    Attributes:
        block: of one block.
        embedding: of the embedding with its all-reduce.
        head: of the logits.
    """

    block: FloatArray
    embedding: FloatArray
    head: FloatArray


@cache
def delete_left_folders() -> None:
    """Delete temporary folders of killed processes; once a process, since one that needs none makes none."""
    delete_left(_TEMPORARY)


def check_installed() -> None:
    """Make sure that the package is there, in a version that is read.

    Raises:
        MissingExtra: it is not, or it is of another version.
    """
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
    split = GroupSplit(serving.tensor_parallel, serving.expert_parallel)
    if reason := engine_named(serving.engine).takes(decoder, split, serving.weights):
        raise Unsupported(reason)
    return KernelTables(decoder, serving, _compiled(decoder, serving))


def _compiled(decoder: Decoder, serving: Serving) -> Mapping[WeightFormat, Any]:
    """The handles of the package that answer, one for every format of products."""
    with _refusals(decoder, serving):
        formats = dict.fromkeys(_product_formats(decoder, serving).values())
        return {product: _answering(decoder, serving, product) for product in formats}


def _product_formats(decoder: Decoder, serving: Serving) -> dict[BlockPart, WeightFormat]:
    """The formats of the matrices of a block except those of experts, which are no `_PARTS`."""
    stored = decoder.part_formats(serving.weights)
    return {part: each.weights for part, each in stored.items() if part is not BlockPart.EXPERTS}


def _answering(decoder: Decoder, serving: Serving, product: WeightFormat) -> Any:
    """A handle with the first format of prompt attention that it has times of."""
    for prompt_format in _prompt_formats(serving):
        handle = _handle(decoder, serving, product, prompt_format)
        if prompt_format == "bfloat16" or _answers(handle):
            return handle
    raise AssertionError


def _handle(decoder: Decoder, serving: Serving, product: WeightFormat, prompt_format: str) -> Any:
    """A handle of the package, from the specification that another process stored, else compiled and stored.

    To compile the first of a system and engine takes the package 1 to 2 seconds, to read a specification none.
    """
    from aiconfigurator_core.sdk.engine import EngineHandle

    config, kernels = json.dumps(config_of(decoder)), engine_named(serving.engine).kernel_times
    experts = decoder.part_formats(serving.weights).get(BlockPart.EXPERTS, PartFormat()).weights
    options = {
        "tp_size": serving.tensor_parallel,
        "moe_tp_size": serving.tensor_parallel // serving.expert_parallel,
        "moe_ep_size": serving.expert_parallel,
        "gemm_quant_mode": _GEMM[product],
        "moe_quant_mode": _EXPERTS.get(experts, _GEMM[experts]),
        "kvcache_quant_mode": _CACHE[serving.kv_cache],
        "fmha_quant_mode": prompt_format,
    }
    key = sha256(repr((version(_PACKAGE), config, serving.system, kernels, options)).encode()).hexdigest()
    stored = cache_dir() / _SPECIFICATIONS / key
    with suppress(OSError, ValueError):  # there is none, or it is broken
        return EngineHandle(stored.read_bytes())
    with temporary_folder(_TEMPORARY) as folder:
        (folder / "config.json").write_text(config, encoding="utf-8")
        handle = EngineHandle.compile(str(folder), serving.system, kernels, **options)
    with suppress(OSError):  # a cache that cannot be written
        _store(stored, handle.spec_bytes)
    return handle


def _store(path: Path, content: bytes) -> None:
    """Write a file that other processes see whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)


def _prompt_formats(serving: Serving) -> tuple[str, ...]:
    """Of products in the attention over a prompt; an fp8 cache is read as it is, where there is a kernel for it."""
    return ("fp8", "bfloat16") if serving.kv_cache is WeightFormat.FP8 else ("bfloat16",)


def _answers(handle: Any) -> bool:
    try:
        handle.predict_prefill_latency(1, 1024)
    except (ValueError, KeyError, RuntimeError):
        return False
    return True


@contextmanager
def _refusals(decoder: Decoder, serving: Serving) -> Iterator[None]:
    """Turn the errors of the package into one line.

    Raises:
        Unsupported: the package has no times of what is asked for.
    """
    logging.getLogger("aiconfigurator_core").setLevel(logging.CRITICAL)
    try:
        yield
    except (ValueError, KeyError, RuntimeError, AssertionError, OSError) as error:
        _LOG.debug("no times of %s: %s", serving, error)
        raise Unsupported(
            f"{serving.system} must have times of {decoder.name} by {serving.engine} with {serving.weights} weights, "
            f"{serving.kv_cache} cache and {serving.tensor_parallel} GPUs a group; {_missing(decoder, serving, error)}"
        ) from None


def _missing(decoder: Decoder, serving: Serving, error: Exception) -> str:
    """What the tables lack, in our words."""
    text = str(error)
    if "attention data missing" in text:
        n_heads = decoder.kv_heads_per_gpu(serving.tensor_parallel)
        return (
            f"no attention was measured with {n_heads} heads of keys and values of {decoder.head_size} elements on a "
            "GPU; try another tensor_parallel or engine"
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
    """The times of a decoder on one GPU of a group.

    Attributes:
        decoder: what is computed.
        serving: where and how.
    """

    def __init__(self, decoder: Decoder, serving: Serving, handles: Mapping[WeightFormat, Any]) -> None:
        self.decoder = decoder
        self.serving = serving
        self._factors = engine_named(serving.engine).product_factors
        self._formats = _product_formats(decoder, serving)
        self._sources: dict[str, float] = defaultdict(float)
        first = next(iter(handles.values()))
        with _refusals(decoder, serving):
            names = [name.removeprefix("generation_") for name, *_ in first.decode_step_per_op(1, 16, 2)]
        self._attention = {first: [i for i, name in enumerate(names) if name == _ATTENTION]}
        self._others: dict[Any, list[int]] = defaultdict(list)
        for index, name in enumerate(names):
            if name not in (_ATTENTION, _BETWEEN_STAGES):
                product = self._formats[_PARTS[name]] if name in _PARTS else None
                self._others[first if product is None else handles[product]].append(index)

    def decode_tokens(self, n_tokens: IntArray) -> Times:
        """A decode step of so many sequences, without attention."""
        return self._times(lambda: [self._decode(self._others, int(n), 1) for n in n_tokens])

    def prompt_tokens(self, n_tokens: IntArray) -> Times:
        """A step over so many tokens of prompts and sequences together, without attention; of the shape of `n_tokens`.

        Many steps are of as many tokens, which are asked for once.
        """
        distinct, indices = np.unique(n_tokens, return_inverse=True)
        times = self._times(lambda: [self._prompt(self._others, n, n) for n in distinct.tolist()])
        return Times(*(seconds[indices].reshape(n_tokens.shape) for seconds in times))

    def decode_attention(self, n_sequences: IntArray, n_cached: int) -> FloatArray:
        """Seconds of the attention of one block in a decode step, over so many cached tokens of every sequence."""
        return self._times(lambda: [self._decode(self._attention, int(n), n_cached) for n in n_sequences]).block

    def prompt_attention(self, n_tokens: int) -> float:
        """Seconds of the attention of one block over a prompt."""
        return float(self._times(lambda: [self._prompt(self._attention, n_tokens, None)]).block[0])

    @property
    def sources(self) -> Mapping[str, float]:
        """What the times so far rest on, as shares of their sum.

        "silicon" is measured, or interpolated between measurements, "empirical" a formula of the package, "mixed" both.
        """
        total = sum(self._sources.values())
        return {name: seconds / total for name, seconds in sorted(self._sources.items())} if total else {}

    def _decode(self, indices: Mapping[Any, Sequence[int]], n: int, n_cached: int) -> Operations:
        """What every handle answers of its operations."""
        n, n_cached = max(1, n), max(1, n_cached)
        return chain.from_iterable(
            handle.evaluate_generation_ops(some, batch_size=n, s=n_cached) for handle, some in indices.items()
        )

    def _prompt(self, indices: Mapping[Any, Sequence[int]], n: int, x: int | None) -> Operations:
        return chain.from_iterable(
            handle.evaluate_context_ops(some, batch_size=1, s=max(1, n), x=x) for handle, some in indices.items()
        )

    def _times(self, ask: Callable[[], Sequence[Operations]]) -> Times:
        with _refusals(self.decoder, self.serving):
            rows = [self._row(operations) for operations in ask()]
        block, embedding, head = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        return Times(block, embedding, head)

    def _row(self, operations: Operations) -> tuple[float, float, float]:
        blocks = embedding = head = 0.0
        for name, milliseconds, _, source in operations:
            seconds, kind = milliseconds / 1e3, name.split("_", 1)[1]
            self._sources[source] += seconds
            if kind in _EMBEDDING:
                embedding += seconds
            elif kind in _HEAD:
                head += seconds
            else:
                blocks += seconds * (self._factor(kind) if kind.endswith(_PRODUCT) else 1.0)
        return blocks / self.decoder.n_layers, embedding, head

    def _factor(self, product: str) -> float:
        """By what the measured times of a product are multiplied."""
        part = _PARTS.get(product)
        return self._factors.get(self._formats[part] if part else self.serving.weights, 1.0)


def config_of(decoder: Decoder) -> dict[str, object]:
    """The config of a decoder as one of the families of the package, without formats, which are said apart."""
    is_normed = decoder.architecture.startswith(_NORMED_QUERIES)
    dense = "Qwen3ForCausalLM" if is_normed else "LlamaForCausalLM"
    experts = "Qwen3MoeForCausalLM" if is_normed else "MixtralForCausalLM"
    entries: dict[str, object] = {
        "architectures": [dense if decoder.experts is None else experts],
        "hidden_size": decoder.hidden_size,
        "num_hidden_layers": decoder.n_layers,
        "num_attention_heads": decoder.n_heads,
        "num_key_value_heads": decoder.n_kv_heads,
        "head_dim": decoder.head_size,
        "intermediate_size": decoder.intermediate_size,
        "vocab_size": decoder.vocabulary_size,
        "tie_word_embeddings": decoder.is_tied,
        "max_position_embeddings": 131_072,
    }
    if decoder.experts is not None:
        entries |= {
            "num_experts": decoder.experts.n_experts,
            "num_experts_per_tok": decoder.experts.n_chosen,
            "moe_intermediate_size": decoder.experts.intermediate_size,
        }
    return entries
