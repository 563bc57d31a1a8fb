"""The knobs of the target "gpu": `GpuSession`, and of servers that compute prompts alone: `PrefillPool`.

one pool      |prompts and tokens|prompts and tokens|...         every replica computes both

two pools     |prompts|prompts|...        prefill workers        each with all blocks of the model
                  |  keys and values move over a link
                  v
              |tokens|tokens|tokens|...   replicas, of the knobs without prefix
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from autoauto.engines.registry import DEFAULT_ENGINE, ENGINES, engine_named
from autoauto.engines.rules import GroupSplit
from autoauto.records.costs.decoder import WeightFormat
from autoauto.records.costs.options import Session, TargetWords
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.knob import HasKnobs, Knob, whole, words_or_none
from autoauto.records.units import IntArray

MAX_GROUP = 72
"""GPUs of the largest node that links all of them directly [aiconfigurator]."""
DEFAULT_MAX_BATCHED_TOKENS = 8192
MAX_BATCHED_TOKENS_LIMIT = 2**20
MAX_WORKERS = 4096
MAX_PREFILL_BATCH = 256
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
    "GPUs of a group that split the attention of a sequence; without --attention-data-parallel all of a group",
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
    ("1", "of a mixture powers of two up to the GPUs of a group that the engine takes"),
    label="EP",
    breaks_ties=True,
)
ATTENTION_DATA_PARALLEL = Knob(
    "attention_data_parallel",
    whole(MAX_GROUP),
    1,
    "attention data-parallel size of a mixture of experts: parts of a group, each of which computes the attention of "
    "sequences of its own; experts are those of the whole group",
    "1,2,4,8",
    ("1", "of a mixture powers of two up to the GPUs of a node that the engine takes"),
    label="DP",
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
_CHOSEN_HELP = ("1", "1, or what --pools chooses")
PREFILL_WORKERS = Knob(
    "prefill_workers",
    whole(MAX_WORKERS, minimum=0),
    0,
    "servers that compute prompts alone, each on a group of GPUs of its own; replicas then compute tokens of answers "
    "alone; 0 where replicas compute both",
    "0,1,2",
    ("0", "0, or what --pools chooses"),
    breaks_ties=True,
)


def _of_workers(knob: Knob) -> Knob:
    return replace(
        knob,
        name=f"prefill_{knob.name}",
        help=f"the same as {knob.option} of every prefill worker",
        default_help=_CHOSEN_HELP,
        label=f"prefill {knob.label}",
        is_shown=False,
    )


PREFILL_BATCH_SIZE = Knob(
    "prefill_batch_size",
    whole(MAX_PREFILL_BATCH),
    1,
    "prompts that a prefill worker computes at a time, each rank of its attention so many",
    "1,2,4",
    _CHOSEN_HELP,
    label="prefill batch",
    breaks_ties=True,
)
PREFILL_KIND = Knob(
    "prefill_kind",
    whole(MAX_GROUP),
    1,
    "on GPUs of several kinds that of the prefill workers, by its number in --cluster: of h100_sxm-8+l40s-8, 2 is l40s",
    "1,2",
    _CHOSEN_HELP,
)

_WORDS = TargetWords(
    "group",
    "GPU",
    names=(("n_ipu", "stages"), ("precision", "weights"), ("kv_cache_precision", "KV cache")),
    pipeline_option="--pipeline-parallel",
    has_auto_pipeline=False,
)


@dataclass(frozen=True, slots=True)
class PrefillPool(HasKnobs):
    """Servers that compute prompts alone, each with all blocks of the model on a group of GPUs.

    Attributes:
        workers: number of servers; 0 if they are not on these GPUs (`GpuSession.of_decode`).
        tensor_parallel, expert_parallel, attention_data_parallel: the group of each server, as in `GroupSplit`.
        batch_size: prompts that each rank of the attention computes at a time.
        kind: the number of the kind of their GPUs in a cluster of several kinds, from 1.
    """

    knobs: ClassVar[tuple[Knob, ...]] = (
        PREFILL_WORKERS,
        *map(_of_workers, (TENSOR_PARALLEL, EXPERT_PARALLEL, ATTENTION_DATA_PARALLEL)),
        PREFILL_BATCH_SIZE,
        PREFILL_KIND,
    )
    workers: int = 1
    tensor_parallel: int = 1
    expert_parallel: int = 1
    attention_data_parallel: int = 1
    batch_size: int = 1
    kind: int = 1

    def __post_init__(self) -> None:
        for knob in self.knobs:
            value = getattr(self, knob.field.removeprefix(_PREFIX))
            if value < knob.domain.minimum:
                raise BadInput(f"{knob.name} must be at least {knob.domain.minimum}, got {value}")

    @override
    @property
    def values(self) -> dict[str, Any]:
        return {knob.field: getattr(self, knob.field.removeprefix(_PREFIX)) for knob in self.knobs}

    @staticmethod
    def of(values: Mapping[str, int]) -> PrefillPool | None:
        """The pool of values by the names of knobs; None without workers."""
        if not values.get(PREFILL_WORKERS.name, 0):
            return None
        return PrefillPool(**{name.removeprefix(_PREFIX): value for name, value in values.items()})

    @property
    def split(self) -> GroupSplit:
        """The split of the model over the GPUs of a worker."""
        return GroupSplit(self.tensor_parallel, self.expert_parallel, self.attention_data_parallel)

    @property
    def n_gpus(self) -> int:
        """GPUs of all workers."""
        return self.workers * self.split.n_gpus

    @property
    def n_prompts(self) -> int:
        """Prompts that all ranks of a worker compute at a time."""
        return self.batch_size * self.attention_data_parallel


_POOL_NOTES = (
    "two pools give the rate of the slower; TPOT is that of full batches of replicas that compute no prompts",
    "TTFT of two pools is the wait for a prefill worker, the prompt, the transfer of its KV cache, and a decode step",
    "every GPU sends and receives a KV cache over a link of its own: of the node where all GPUs have room in one, else "
    "of the network, and of two kinds of GPUs the slower network",
)
"""The assumptions of forecasts of two pools, a sentence each."""
_PREFIX = "prefill_"
_ONE_POOL = {knob.field: knob.default for knob in PrefillPool.knobs}
"""The values of knobs of prefill workers where there are none."""


@dataclass(frozen=True, slots=True, init=False)
class GpuSession(Session):
    """The way in which a group of GPUs serves a decoder.

    Beside its fields it takes the knobs of prefill workers by their names: `GpuSession(prefill_workers=2)`.

    Attributes:
        tensor_parallel: GPUs that split the attention of a sequence.
        expert_parallel: GPUs of the group among which experts are dealt whole.
        precision: format of matrices; None is that of the checkpoint.
        kv_cache_precision: format of keys and values; None is that of the checkpoint.
        max_batched_tokens: maximum number of tokens in a step of a rank of the attention.
        attention_data_parallel: ranks of `tensor_parallel` GPUs, each with the attention of sequences of its own.
        prefill: servers that compute prompts for all replicas; None if replicas compute their own.
    """

    words: ClassVar[TargetWords] = _WORDS
    knobs: ClassVar[tuple[Knob, ...]] = (
        ENGINE,
        TENSOR_PARALLEL,
        EXPERT_PARALLEL,
        PRECISION,
        KV_CACHE_PRECISION,
        MAX_BATCHED_TOKENS,
        ATTENTION_DATA_PARALLEL,
        *PrefillPool.knobs,
    )
    engine: str
    tensor_parallel: int
    expert_parallel: int
    precision: WeightFormat | None
    kv_cache_precision: WeightFormat | None
    max_batched_tokens: int
    attention_data_parallel: int
    prefill: PrefillPool | None

    def __init__(
        self,
        engine: str = DEFAULT_ENGINE,
        tensor_parallel: int = 1,
        expert_parallel: int = 1,
        precision: WeightFormat | None = None,
        kv_cache_precision: WeightFormat | None = None,
        max_batched_tokens: int = DEFAULT_MAX_BATCHED_TOKENS,
        attention_data_parallel: int = 1,
        prefill: PrefillPool | None = None,
        **of_prefill: int,
    ) -> None:
        if unknown := of_prefill.keys() - _ONE_POOL.keys():
            raise TypeError(f"a session of GPUs has no {min(unknown)}")
        set_field = object.__setattr__
        set_field(self, "engine", engine)
        set_field(self, "tensor_parallel", tensor_parallel)
        set_field(self, "expert_parallel", expert_parallel)
        set_field(self, "precision", precision)
        set_field(self, "kv_cache_precision", kv_cache_precision)
        set_field(self, "max_batched_tokens", max_batched_tokens)
        set_field(self, "attention_data_parallel", attention_data_parallel)
        set_field(self, "prefill", PrefillPool.of(of_prefill) if of_prefill else prefill)
        for knob in (TENSOR_PARALLEL, EXPERT_PARALLEL, ATTENTION_DATA_PARALLEL, MAX_BATCHED_TOKENS):
            value = getattr(self, knob.field)
            if value < 1:
                raise BadInput(f"{knob.name} must be at least 1, got {value}")

    @override
    @property
    def values(self) -> dict[str, Any]:
        """The value of every knob; the knobs of prefill workers have their defaults if there are none."""
        own = {knob.field: getattr(self, knob.field) for knob in self.knobs if knob.field not in _ONE_POOL}
        if self.prefill is None:
            return own | _ONE_POOL
        return own | self.prefill.values

    @property
    def split(self) -> GroupSplit:
        """The split of the model over the GPUs of a group."""
        return GroupSplit(self.tensor_parallel, self.expert_parallel, self.attention_data_parallel)

    @property
    def conflict(self) -> str:
        """Why the engine does not form such groups; empty if it does."""
        engine = engine_named(self.engine)
        conflict = engine.split_conflict(self.split)
        if not conflict and self.prefill is not None:
            conflict = engine.split_conflict(self.prefill.split)
        return conflict

    @property
    def group_size(self) -> int:
        """The GPUs of the group."""
        return self.tensor_parallel * self.attention_data_parallel

    @property
    def n_beside(self) -> int:
        """The GPUs of prefill workers."""
        return 0 if self.prefill is None else self.prefill.n_gpus

    @override
    @property
    def notes(self) -> tuple[str, ...]:
        """The assumptions of forecasts of two pools, a sentence each; none for one pool."""
        return () if self.prefill is None else _POOL_NOTES

    @override
    def kind_beside(self, cluster: Cluster) -> str:
        """The name of the GPUs of prefill workers if a cluster has several kinds; else empty."""
        if self.prefill is None or not cluster.kinds:
            return ""
        return cluster.kinds[self.prefill.kind - 1].device.name

    @property
    def of_prefill(self) -> GpuSession:
        """The session of a prefill worker; raises BadInput if there are no prefill workers."""
        if self.prefill is None:
            raise BadInput("replicas compute prompts themselves, got no prefill_workers")
        tensor_parallel, expert_parallel, attention_data_parallel = self.prefill.split
        return replace(
            self,
            tensor_parallel=tensor_parallel,
            expert_parallel=expert_parallel,
            attention_data_parallel=attention_data_parallel,
            prefill=None,
        )

    @property
    def of_decode(self) -> GpuSession:
        """The session of replicas whose prompts other servers compute; it is the same whatever these servers are."""
        return replace(self, prefill=PrefillPool(workers=0))

    def of_rank(self, n_sequences: Sequence[int]) -> IntArray:
        """The sequences of the fullest rank of the attention, for numbers of sequences of a group."""
        return self.split.of_rank(np.array(n_sequences))

    @override
    def batch_sizes(self, sizes: Sequence[int]) -> Sequence[int]:
        """The sizes that ranks of the attention can share equally, since otherwise some wait; all sizes if none."""
        equal = [size for size in sizes if size % self.attention_data_parallel == 0]
        return equal or sizes
