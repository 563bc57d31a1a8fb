"""What the header of a GGUF file says, and whether llama.cpp serves it here: `inspect_decoder`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoauto.engines.llama_cpp import CacheType, kv_cache_bytes
from autoauto.graph.decoders.gguf import read_gguf
from autoauto.records.costs.decoder import DecoderFile, Workload
from autoauto.records.errors import DoesNotFit, MissingExtra
from autoauto.targets.host.runtimes.llamacpp.session import LlamaCppSession
from autoauto.targets.host.runtimes.llamacpp.target import LlamaCppTarget

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
