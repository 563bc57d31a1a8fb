"""guidellm's summary in JSON [guidellm]: one load or several.

Its time per output token has the first token in it, so it is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autoauto.load.results.figures import Fields, LoadFigures

PROGRAM = "guidellm"


def is_of(content: Mapping[str, Any]) -> bool:
    """True if a file is of this program."""
    return isinstance(content.get("benchmarks"), list)


def read(content: Mapping[str, Any], where: str) -> list[LoadFigures]:
    """The loads of a file; raises BadInput if one has no lengths, or a field is no number."""
    return list(_loads(content["benchmarks"], where))


def _loads(benchmarks: list[Any], where: str) -> Iterator[LoadFigures]:
    for number, benchmark in enumerate(benchmarks):
        metrics = benchmark.get("metrics") if isinstance(benchmark, Mapping) else None
        fields = Fields(metrics or {}, f"{where}, benchmarks[{number}].metrics")
        notes = fields.spread("prompts", "prompt_token_count", "successful")
        notes += fields.spread("answers", "output_token_count", "successful")
        in_flight = fields.number("request_concurrency", "successful", "mean")
        if in_flight:
            notes += ("requests in flight are those of successful requests in the mean",)
        yield LoadFigures(
            PROGRAM,
            "mean",
            input_tokens=fields.length("prompts", "prompt_token_count", "successful", "mean"),
            output_tokens=fields.length("answers", "output_token_count", "successful", "mean"),
            tokens_per_s=fields.number("output_tokens_per_second", "successful", "mean"),
            requests_per_s=fields.number("requests_per_second", "successful", "mean"),
            ttft_s=fields.number("time_to_first_token_ms", "successful", "mean", unit_s=1e-3),
            latency_s=fields.number("request_latency", "successful", "mean"),
            concurrency=in_flight,
            notes=notes,
        )
