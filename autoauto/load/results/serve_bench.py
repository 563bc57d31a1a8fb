"""`--save-result` of [serve-bench], and the same fields where other benchmarks of servers write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoauto.load.results.figures import Fields, LoadFigures, failed_note

PROGRAM = "bench serve"


def is_of(content: Mapping[str, Any]) -> bool:
    """True if a file is of this program."""
    return "completed" in content and ("mean_ttft_ms" in content or "output_throughput" in content)


def read(content: Mapping[str, Any], where: str) -> list[LoadFigures]:
    """The load of a file; raises BadInput if it has no lengths, or a field is no number."""
    fields = Fields(content, where)
    n_answered = fields.length("answers", "completed")
    statistic = "mean" if fields.number("mean_ttft_ms") or not fields.number("median_ttft_ms") else "median"
    return [
        LoadFigures(
            PROGRAM,
            statistic,
            input_tokens=fields.length("prompts", "total_input_tokens") / n_answered,
            output_tokens=fields.length("answers", "total_output_tokens") / n_answered,
            tokens_per_s=fields.number("output_throughput"),
            requests_per_s=fields.number("request_throughput"),
            ttft_s=fields.number(f"{statistic}_ttft_ms", unit_s=1e-3),
            latency_s=fields.number(f"{statistic}_e2el_ms", unit_s=1e-3),
            tpot_s=fields.number(f"{statistic}_tpot_ms", unit_s=1e-3),
            model=fields.value("model_id"),
            concurrency=fields.number("max_concurrency"),
            notes=("throughput includes the begin and the end of the load", *failed_note(fields.number("failed"))),
        )
    ]
