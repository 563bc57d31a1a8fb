"""The knobs of the runtime "llamacpp": `LlamaCppSession`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from autoauto.engines.llama_cpp import CacheType, FlashAttention, LlamaServerOptions, context_tokens
from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.options import DeviceType, Session, TargetWords
from autoauto.records.errors import BadInput
from autoauto.records.knob import Knob, whole, words
from autoauto.targets.host.runtimes.session import CORES_PER_DEVICE, MAX_CORES, RuntimePackage

_MAX_TOKENS = 2**20
DEFAULT_BATCH, DEFAULT_UBATCH = 2048, 512

PROMPT_THREADS = Knob(
    "prompt_threads",
    whole(MAX_CORES, 0),
    0,
    "threads of llama.cpp for prompts; 0: as many as for decoding",
    "0,8",
    ("0", "0"),
)
N_BATCH = Knob(
    "n_batch",
    whole(_MAX_TOKENS),
    DEFAULT_BATCH,
    "tokens that a step of llama.cpp gets at most",
    "512,2048",
    (str(DEFAULT_BATCH), str(DEFAULT_BATCH)),
)
N_UBATCH = Knob(
    "n_ubatch",
    whole(_MAX_TOKENS),
    DEFAULT_UBATCH,
    "of these tokens those that llama.cpp computes at once",
    "128,512",
    (str(DEFAULT_UBATCH), "128,512 of a GGUF file"),
)
FLASH_ATTENTION = Knob(
    "flash_attention",
    words(FlashAttention, tuple(FlashAttention), tuple(FlashAttention)),
    FlashAttention.AUTO,
    "attention of llama.cpp block by block",
    ",".join(FlashAttention),
    (FlashAttention.AUTO, FlashAttention.AUTO),
)
CACHE_TYPE = Knob(
    "cache_type",
    words(CacheType, tuple(CacheType), tuple(CacheType)),
    CacheType.F16,
    "the format of keys and values in llama.cpp; fewer bits change answers",
    ",".join(CacheType),
    (CacheType.F16, CacheType.F16),
)
_NAMES = (("n_ipu", "stages"), ("cores_per_device", "cores"), ("n_batch", "n_batch"), ("n_ubatch", "n_ubatch"))


@dataclass(frozen=True, slots=True)
class LlamaCppSession(Session):
    """A server of llama.cpp."""

    runtime: ClassVar[str] = "llamacpp"
    package: ClassVar[RuntimePackage] = RuntimePackage("xllamacpp", "xllamacpp", "llamacpp")
    device_type: ClassVar[DeviceType] = DeviceType.CPU
    words: ClassVar[TargetWords] = TargetWords("server", "core", False, "on", _NAMES, has_auto_pipeline=False)
    knobs: ClassVar[tuple[Knob, ...]] = (
        CORES_PER_DEVICE,
        PROMPT_THREADS,
        N_BATCH,
        N_UBATCH,
        FLASH_ATTENTION,
        CACHE_TYPE,
    )
    cores_per_device: int = 1
    prompt_threads: int = 0
    n_batch: int = DEFAULT_BATCH
    n_ubatch: int = DEFAULT_UBATCH
    flash_attention: FlashAttention = FlashAttention.AUTO
    cache_type: CacheType = CacheType.F16

    def __post_init__(self) -> None:
        if min(self.cores_per_device, self.n_batch, self.n_ubatch) < 1 or self.prompt_threads < 0:
            raise BadInput(f"threads and tokens must be 1 or more, got {self.values}")

    @property
    def conflict(self) -> str:
        """Why sizes of steps, or the cache and attention, do not go together; empty if they do."""
        if self.n_ubatch > self.n_batch:
            return f"n_ubatch must be at most n_batch, got {self.n_ubatch} and {self.n_batch}"
        if self.cache_type not in (CacheType.F16, CacheType.BF16) and self.flash_attention is FlashAttention.OFF:
            return f"a cache of {self.cache_type} needs flash attention, got off; try auto"
        return ""

    @property
    @override
    def group_size(self) -> int:
        return self.cores_per_device

    @property
    @override
    def common(self) -> LlamaCppSession:
        return LlamaCppSession(self.cores_per_device, self.prompt_threads)

    def options(self, model: str, n_slots: int, workload: Workload, port: int | None = None) -> LlamaServerOptions:
        """The options of a server for the file `model`, with room for one request in each of its `n_slots` slots."""
        return LlamaServerOptions(
            model,
            n_slots,
            self.cores_per_device,
            self.prompt_threads or self.cores_per_device,
            self.n_batch,
            self.n_ubatch,
            context_tokens(n_slots, workload),
            self.flash_attention,
            self.cache_type,
            port=port,
        )
