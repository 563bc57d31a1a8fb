"""The knobs of the target "gpu": `GpuSession`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from autoauto.records.costs.decoder import WeightFormat
from autoauto.records.costs.options import Session
from autoauto.records.errors import BadInput
from autoauto.records.knob import Knob, whole, words_or_none

MAX_GROUP = 72
"""GPUs of the largest node that links all of them directly [aiconfigurator]."""
DEFAULT_MAX_BATCHED_TOKENS = 8192
MAX_BATCHED_TOKENS_LIMIT = 2**20
_CACHE_FORMATS = (WeightFormat.BF16, WeightFormat.FP8)


class EngineName(StrEnum):
    """A serving engine."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TRTLLM = "trtllm"
    """TensorRT-LLM."""


ENGINE = Knob(
    "engine",
    words_or_none(tuple(EngineName)),
    EngineName.VLLM,
    f"what serves a decoder on GPUs: {', '.join(EngineName)}",
    ",".join(EngineName),
    (EngineName.VLLM, "all that were measured on the GPUs"),
    absent=None,
    is_shown=True,
)
TENSOR_PARALLEL = Knob(
    "tensor_parallel",
    whole(MAX_GROUP),
    1,
    "GPUs of a group that split every matrix, and are one device of a pipeline",
    "1,2,4,8",
    ("1", "powers of two up to the GPUs of a node"),
    label="TP",
    is_shown=True,
    breaks_ties=True,
)
EXPERT_PARALLEL = Knob(
    "expert_parallel",
    whole(MAX_GROUP),
    1,
    "of a mixture of experts: among how many GPUs of a group experts are dealt whole; the rest splits every expert",
    "1,2,4,8",
    ("1", "of a mixture powers of two up to tensor_parallel, by vllm 1 and all"),
    label="EP",
    breaks_ties=True,
)
PRECISION = Knob(
    "precision",
    words_or_none(tuple(WeightFormat)),
    None,
    "the format of matrices of a decoder on GPUs",
    "bf16,fp8",
    ("that of the checkpoint", "that of the checkpoint"),
    absent=None,
    is_shown=True,
)
KV_CACHE_PRECISION = Knob(
    "kv_cache_precision",
    words_or_none(_CACHE_FORMATS),
    None,
    "the format of keys and values",
    ",".join(_CACHE_FORMATS),
    ("that of the checkpoint", "that of the checkpoint"),
    absent=None,
    label="KV cache",
)
MAX_BATCHED_TOKENS = Knob(
    "max_batched_tokens",
    whole(MAX_BATCHED_TOKENS_LIMIT),
    DEFAULT_MAX_BATCHED_TOKENS,
    "tokens that a step of an engine computes at most, prompts and words together",
    "2048,8192",
    (str(DEFAULT_MAX_BATCHED_TOKENS), str(DEFAULT_MAX_BATCHED_TOKENS)),
    label="tokens a step",
)


@dataclass(frozen=True, slots=True)
class GpuSession(Session):
    """How a group of GPUs serves a decoder.

    Attributes:
        engine: what serves it.
        tensor_parallel: GPUs of the group.
        expert_parallel: among how many of them experts are dealt whole.
        precision: of matrices; None is that of the checkpoint.
        kv_cache_precision: of keys and values; None is that of the checkpoint.
        max_batched_tokens: of a step.
    """

    group: ClassVar[str] = "group of {} GPUs"
    knobs: ClassVar[tuple[Knob, ...]] = (
        *(ENGINE, TENSOR_PARALLEL, EXPERT_PARALLEL),
        *(PRECISION, KV_CACHE_PRECISION, MAX_BATCHED_TOKENS),
    )
    engine: EngineName = EngineName.VLLM
    tensor_parallel: int = 1
    expert_parallel: int = 1
    precision: WeightFormat | None = None
    kv_cache_precision: WeightFormat | None = None
    max_batched_tokens: int = DEFAULT_MAX_BATCHED_TOKENS

    def __post_init__(self) -> None:
        if self.tensor_parallel < 1:
            raise BadInput(f"tensor_parallel must be at least 1, got {self.tensor_parallel}")
        if self.expert_parallel < 1:
            raise BadInput(f"expert_parallel must be at least 1, got {self.expert_parallel}")
        if self.max_batched_tokens < 1:
            raise BadInput(f"max_batched_tokens must be at least 1, got {self.max_batched_tokens}")

    @property
    def conflict(self) -> str:
        """Among how many GPUs the engine deals experts, where it does not deal them so."""
        return experts_conflict(self.engine, self.tensor_parallel, self.expert_parallel)

    @property
    def cores_per_device(self) -> int:
        """The GPUs of the group."""
        return self.tensor_parallel


def experts_conflict(engine: str, tensor_parallel: int, expert_parallel: int) -> str:
    """Why experts cannot be dealt among so many GPUs of a group, or an empty text: vLLM deals to all or to none.

    >>> experts_conflict("sglang", 8, 2), experts_conflict("vllm", 8, 8)
    ('', '')
    >>> print(experts_conflict("vllm", 8, 2))
    vllm deals experts among 1 or 8 of 8 GPUs of a group, got 2
    """
    able = [n for n in range(1, tensor_parallel + 1) if tensor_parallel % n == 0]
    if engine == EngineName.VLLM:
        able = able[:: max(1, len(able) - 1)]  # --enable-expert-parallel has no number [vllm-serve]
    if expert_parallel in able:
        return ""
    counts = " or ".join(map(str, able))
    return f"{engine} deals experts among {counts} of {tensor_parallel} GPUs of a group, got {expert_parallel}"
