"""The knobs of the target "gpu": `GpuSession`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autoauto.engines.registry import DEFAULT_ENGINE, ENGINES, engine_named
from autoauto.engines.rules import GroupSplit
from autoauto.records.costs.decoder import WeightFormat
from autoauto.records.costs.options import Session
from autoauto.records.errors import BadInput
from autoauto.records.knob import Knob, whole, words_or_none

MAX_GROUP = 72
"""GPUs of the largest node that links all of them directly [aiconfigurator]."""
DEFAULT_MAX_BATCHED_TOKENS = 8192
MAX_BATCHED_TOKENS_LIMIT = 2**20
_CACHE_FORMATS = (WeightFormat.BF16, WeightFormat.FP8)


ENGINE = Knob(
    "engine",
    words_or_none(ENGINES.names),
    DEFAULT_ENGINE,
    f"what serves a decoder on GPUs: {', '.join(ENGINES.names)}",
    ",".join(ENGINES.names),
    (DEFAULT_ENGINE, "all that were measured on the GPUs"),
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
    "expert-parallel size of a mixture of experts: GPUs of a group among which whole experts are dealt",
    "1,2,4,8",
    ("1", "of a mixture powers of two up to tensor_parallel that the engine takes"),
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
    "tokens that a step of an engine computes at most, those of prompts and of answers together",
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
    engine: str = DEFAULT_ENGINE
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
        return engine_named(self.engine).experts_conflict(GroupSplit(self.tensor_parallel, self.expert_parallel))

    @property
    def cores_per_device(self) -> int:
        """The GPUs of the group."""
        return self.tensor_parallel
