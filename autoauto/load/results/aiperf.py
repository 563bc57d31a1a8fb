"""AIPerf's summary in JSON [aiperf]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoauto.load.results.figures import Fields, LoadFigures, failed_note
from autoauto.records.errors import BadInput

PROGRAM = "AIPerf"
_UNITS_S = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "us": 1e-6, "ns": 1e-9, None: 1e-3}


def is_of(content: Mapping[str, Any]) -> bool:
    """True if a file is of this program."""
    return isinstance(content.get("request_latency"), Mapping) and "avg" in content["request_latency"]


def read(content: Mapping[str, Any], where: str) -> list[LoadFigures]:
    """The load of a file; raises BadInput if it has no lengths, or a field is no number."""
    fields = Fields(content, where)

    def time_s(name: str) -> float | None:
        unit = fields.value(name, "unit")
        if unit not in _UNITS_S:
            raise BadInput(f"{where}, {name}.unit: must be ms, s, us or ns, got {unit!r:.40}")
        return fields.number(name, "avg", unit_s=_UNITS_S[unit])

    models = fields.value("input_config", "endpoint", "model_names")
    return [
        LoadFigures(
            PROGRAM,
            "mean",
            input_tokens=fields.length("prompts", "input_sequence_length", "avg"),
            output_tokens=fields.length("answers", "output_sequence_length", "avg"),
            tokens_per_s=fields.number("output_token_throughput", "avg"),
            requests_per_s=fields.number("request_throughput", "avg"),
            ttft_s=time_s("time_to_first_token"),
            latency_s=time_s("request_latency"),
            model=models[0] if isinstance(models, list) and len(models) == 1 else None,
            concurrency=fields.number("input_config", "loadgen", "concurrency"),
            notes=fields.spread("prompts", "input_sequence_length")
            + fields.spread("answers", "output_sequence_length")
            + failed_note(fields.number("error_request_count", "avg")),
        )
    ]
