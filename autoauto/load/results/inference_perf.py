"""inference-perf's metrics of the life of requests, of all or of a stage, in JSON [inference-perf].

Its time per output token counts two events a token, so it is half of the truth, and is not read. Its lengths are those
of the text as its own tokenizer cuts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoauto.load.results.figures import Fields, LoadFigures, failed_note

PROGRAM = "inference-perf"


def is_of(content: Mapping[str, Any]) -> bool:
    """True if a file is of this program."""
    successes = content.get("successes")
    return isinstance(successes, Mapping) and "latency" in successes


def read(content: Mapping[str, Any], where: str) -> list[LoadFigures]:
    """The load of a file; raises BadInput if it has no lengths, or a field is no number."""
    fields = Fields(content["successes"], f"{where}, successes")
    return [
        LoadFigures(
            PROGRAM,
            "mean",
            input_tokens=fields.length("prompts", "prompt_len", "mean"),
            output_tokens=fields.length("answers", "output_len", "mean"),
            tokens_per_s=fields.number("throughput", "output_tokens_per_sec"),
            requests_per_s=fields.number("throughput", "requests_per_sec"),
            ttft_s=fields.number("latency", "time_to_first_token", "mean"),
            latency_s=fields.number("latency", "request_latency", "mean"),
            notes=(
                *fields.spread("prompts", "prompt_len"),
                *fields.spread("answers", "output_len"),
                "lengths in the file are those of text that was tokenized again",
                *failed_note(Fields(content, where).number("failures", "count")),
            ),
        )
    ]
