"""llama.cpp's server, which serves a GGUF file on this machine: its command line, what it holds and says of itself.

    llama-server -m FILE --parallel 8 --ctx-size 2048 ...       a slot is a sequence in flight; slots share --ctx-size

It is no `Engine` of GPUs: it has no table of kernels and no groups. What a step takes is measured where it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from autoauto.engines.command import CommandOption, CommandSyntax
from autoauto.engines.metrics import MetricNames
from autoauto.records.costs.decoder import Decoder, WeightFormat, Workload

METRICS = MetricNames(
    engine="llama.cpp",
    running=("llamacpp:requests_processing",),
    waiting=("llamacpp:requests_deferred",),
    output_tokens=("llamacpp:tokens_predicted_total",),
)
FIRST_PORT = 8080
"""The engine's default [llama-server]; of several servers each has the next."""
CONTEXT_STEP = 256
"""Tokens by which the context of a slot grows: the engine pads it to a multiple [llama-server]."""


class CacheType(StrEnum):
    """The formats of keys and values that the server takes and that runs here with every head of 32 elements."""

    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
    Q4_0 = "q4_0"

    @property
    def bits(self) -> float:
        """Bits of one element, its share of the scale included.

        >>> CacheType.F16.bits, CacheType.Q8_0.bits
        (16.0, 8.5)
        """
        return {"q8_0": 8.5, "q4_0": 4.5}.get(self, 16.0)


class FlashAttention(StrEnum):
    """Whether attention is computed block by block."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class LlamaServerOptions(NamedTuple):
    """The settings of a server.

    Attributes:
        n_slots: sequences in flight.
        n_threads: of a step that decodes.
        n_prompt_threads: of a step that computes prompts.
        n_batch: tokens that are handed to a step at most.
        n_ubatch: of them those that are computed at once.
        n_ctx: tokens of the KV cache, equal parts for all slots.
        poll: how long threads spin while they wait, 0 to 100.
        port: where it listens; None for the engine's default.
    """

    model: str
    n_slots: int
    n_threads: int
    n_prompt_threads: int
    n_batch: int
    n_ubatch: int
    n_ctx: int
    flash_attention: FlashAttention = FlashAttention.AUTO
    cache_type: CacheType = CacheType.F16
    poll: int = 0
    port: int | None = None


_OPTIONS = (
    ("model", CommandOption("-m")),
    ("n_slots", CommandOption("--parallel", int)),
    ("n_threads", CommandOption("--threads", int)),
    ("n_prompt_threads", CommandOption("--threads-batch", int)),
    ("n_batch", CommandOption("--batch-size", int)),
    ("n_ubatch", CommandOption("--ubatch-size", int)),
    ("n_ctx", CommandOption("--ctx-size", int)),
    ("poll", CommandOption("--poll", int)),
    ("flash_attention", CommandOption("--flash-attn", str, tuple(FlashAttention))),
    ("cache_type", CommandOption("--cache-type-k", str, tuple(CacheType))),
    ("cache_type", CommandOption("--cache-type-v", str, tuple(CacheType))),
    ("port", CommandOption("--port", int)),
)
"""The options that are used here [llama-server], each with its field of `LlamaServerOptions`."""
_DEFAULTS = {"flash_attention": FlashAttention.AUTO, "cache_type": CacheType.F16, "port": None}
"""Defaults of the engine, which a command leaves out."""
SYNTAX = CommandSyntax(("llama-server",), tuple(option for _, option in _OPTIONS), takes_model=False)


def server_command(options: LlamaServerOptions) -> tuple[str, ...]:
    """The words that start the server; what is left out has the engine's default.

    Threads never spin: on a busy machine those that do wait for others that have no core.
    """
    words = list(SYNTAX.program)
    for field, option in _OPTIONS:
        value = getattr(options, field)
        if field not in _DEFAULTS or value != _DEFAULTS[field]:
            words += [option.name, str(value)]
    return tuple(words)


def read_command(words: Sequence[str]) -> LlamaServerOptions:
    """Read a command of `server_command`; raises BadInput if the server would refuse it."""
    given = SYNTAX.parse(words)
    fields: dict[str, Any] = {**_DEFAULTS}
    for field, option in reversed(_OPTIONS):  # so that the cache of keys counts
        if option.name in given:
            fields[field] = given[option.name]
    fields["flash_attention"] = FlashAttention(fields["flash_attention"])
    fields["cache_type"] = CacheType(fields["cache_type"])
    return LlamaServerOptions(**fields)


def context_tokens(n_slots: int, workload: Workload) -> int:
    """The context of so many slots, each with room for a request and one token that the server adds.

    >>> context_tokens(4, Workload(64, 32))
    1024
    """
    return n_slots * CONTEXT_STEP * -(-(workload.max_length + 1) // CONTEXT_STEP)


def kv_cache_bytes(decoder: Decoder, n_ctx: int, cache_type: CacheType) -> int:
    """The keys and values of a context, in all blocks."""
    of_bytes = decoder.cached_bytes(1, WeightFormat.FP8, 1)  # as if each element took one
    return round(n_ctx * of_bytes * cache_type.bits / 8)


def activation_bytes(decoder: Decoder, n_ubatch: int) -> int:
    """About what a step of so many tokens holds, in fp32: logits, and the widest matrices of a block."""
    width = decoder.vocabulary_size + 4 * decoder.hidden_size + 3 * decoder.intermediate_size
    return 4 * n_ubatch * width


MEMORY_WORDS = ("failed to allocate", "out of memory", "bad_alloc", "unable to allocate", "failed to fit")
"""Words of the server's log where memory lacks."""
REASON_WORDS = ("error", "failed", "unsupported", "unknown", "invalid", "exception", *MEMORY_WORDS)
"""Words of the lines of the log that say why a server does not come up."""


def why(log: Sequence[str]) -> str:
    """The line of a log that tells best why a server does not come up, else its last."""
    telling = [line for line in log if any(word in line.lower() for word in REASON_WORDS)]
    return " ".join((telling or log or ["it left no log"])[-1].split())[:200]
