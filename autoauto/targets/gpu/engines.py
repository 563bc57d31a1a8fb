"""What serving engines do each in its own way: `ServingEngine`, and those that are known, `ENGINES`.

    vllm, trtllm    a prompt is computed in steps that decode other sequences too   ▒▓░░░░▒▓░░
    sglang          prompts first: all sequences wait for them, then decode         ▓▓▓░░░░░░░

Uneven stages are given by [vllm-pp] [sglang-pp] [tensorrt-llm-pp]; how steps are made, and figures of memory, are those
of [aiconfigurator]. All stages of a replica have groups of one size, since each engine is told one [unequal-groups].
Costs of the processor are fitted, `HOST_COSTS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from autoauto.records.errors import BadInput, did_you_mean
from autoauto.records.units import GIB, MIB


class HostCosts(NamedTuple):
    """What the processor adds to the times of kernels, in seconds.

    Attributes:
        step_s: of every step.
        sequence_s: of every sequence in every step: scheduling, sampling, text of the new word.
        first_word_s: of every request: its prompt becomes words, and an answer begins.
        together: the share of requests that arrive together with all others in flight, and wait for their prompts.
    """

    step_s: float
    sequence_s: float
    first_word_s: float
    together: float


HOST_COSTS: Mapping[str, HostCosts] = {
    "vllm": HostCosts(0.31e-3, 34e-6, 0.05, 0.14),
    "sglang": HostCosts(0.44e-3, 24e-6, 0.26, 0.79),
    "trtllm": HostCosts(0.06e-3, 10e-6, 0.10, 0.16),
}
"""Fitted by `studies/gpu_fit.py` on the even half of the measured rows [aiconfigurator, silicon_sample.csv]."""


@dataclass(frozen=True, slots=True)
class ServingEngine:
    """A serving engine.

    Attributes:
        name: "vllm", "sglang" or "trtllm".
        mixes: whether a step computes prompts and decodes; else prompts come first and decoding waits.
        memory_share: of the memory of a GPU that the engine takes for all, or of what is free once weights are there.
        is_of_free: whether `memory_share` is of what is free.
        counts_activations: whether `memory_share` is for activations and workspace too.
        activation_factors: bytes of activations of a token and element of attention, half of them, by group size.
        min_activation_bytes: that it holds at the least.
        activation_overhead: what it holds besides, as a share of activations.
        other_overhead: what it holds besides, as a share of what CUDA holds.
        host: what the processor adds.
    """

    name: str
    mixes: bool
    memory_share: float
    is_of_free: bool
    counts_activations: bool
    activation_factors: Mapping[int, float]
    min_activation_bytes: int
    activation_overhead: float
    other_overhead: float
    host: HostCosts

    def activation_factor(self, tensor_parallel: int) -> float:
        """Of a group; of a size between two that are known, that of the smaller, which holds more."""
        return self.activation_factors[max(n for n in self.activation_factors if n <= tensor_parallel)]


VLLM = ServingEngine(
    name="vllm",
    mixes=True,
    memory_share=0.92,
    is_of_free=False,
    counts_activations=True,
    activation_factors={1: 11, 2: 6.5, 4: 5, 8: 5},
    min_activation_bytes=70 * MIB,
    activation_overhead=0.0,
    other_overhead=0.0,
    host=HOST_COSTS["vllm"],
)
SGLANG = ServingEngine(
    name="sglang",
    mixes=False,
    memory_share=0.88,
    is_of_free=False,
    counts_activations=False,
    activation_factors={1: 14, 2: 8.5, 4: 6.5, 8: 6.5},
    min_activation_bytes=90 * MIB,
    activation_overhead=0.15,
    other_overhead=0.20,
    host=HOST_COSTS["sglang"],
)
TENSORRT_LLM = ServingEngine(
    name="trtllm",
    mixes=True,
    memory_share=0.9,
    is_of_free=True,
    counts_activations=True,
    activation_factors={1: 11, 2: 6.5, 4: 5, 8: 5},
    min_activation_bytes=70 * MIB,
    activation_overhead=0.0,
    other_overhead=0.0,
    host=HOST_COSTS["trtllm"],
)
ENGINES: Mapping[str, ServingEngine] = {engine.name: engine for engine in (VLLM, SGLANG, TENSORRT_LLM)}


def engine_named(name: str) -> ServingEngine:
    """An engine by its name.

    Raises:
        BadInput: there is none of this name.
    """
    if name not in ENGINES:
        raise BadInput(
            f"an engine is {', '.join(ENGINES)}, got {name!r:.40}; {did_you_mean(name, ENGINES, 'try vllm')}"
        )
    return ENGINES[name]


def equal_groups_note() -> str:
    """What no engine does with unlike GPUs, as a sentence."""
    return f"groups of one size in all stages and replicas, since {', '.join(ENGINES)} are each told one size"


def memory_share(engine: ServingEngine, memory_bytes: int, tensor_parallel: int, n_stages: int) -> float:
    """The share of a GPU's memory for weights, activations and KV cache; SGLang derives its own from the GPU.

    SGLang leaves room for graphs and prompts by the size of the GPU [aiconfigurator].

    >>> round(memory_share(SGLANG, 80 * GIB, 1, 1), 3), memory_share(VLLM, 80 * GIB, 1, 1)
    (0.836, 0.92)
    """
    if engine.name != "sglang":
        return engine.memory_share
    n_prompt_tokens, n_graph_sequences = _sglang_sizes(memory_bytes, tensor_parallel)
    reserved_mib = 512 + 1.5 * n_prompt_tokens + tensor_parallel * n_stages / 8 * 1024 + 2 * n_graph_sequences
    if memory_bytes > 60 * GIB:
        reserved_mib = max(reserved_mib, 10 * 1024)
    return round(1 - reserved_mib * MIB / memory_bytes, 3)


def _sglang_sizes(memory_bytes: int, tensor_parallel: int) -> tuple[int, int]:
    """Tokens of a prompt that SGLang computes at once, and sequences of its largest graph, by the size of a GPU."""
    large_group = tensor_parallel >= 4
    for below_gib, n_tokens, n_small, n_large in _SGLANG_SIZES:
        if memory_bytes < below_gib * GIB:
            return n_tokens, n_large if large_group else n_small
    return 16_384, 512


_SGLANG_SIZES = ((20, 2048, 8, 8), (35, 2048, 24, 80), (60, 4096, 32, 160), (160, 8192, 256, 512))
