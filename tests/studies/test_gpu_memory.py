"""The study of memory prints a line a group, or an object a row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("aiconfigurator_core", reason="it has the systems and the models")
LOGS = Path(__file__).parents[1] / "targets" / "gpu" / "kv_cache_logs.csv"


def test_it_prints_groups_or_rows(run_script: Callable[..., list[str]], tmp_path: Path) -> None:
    columns, first, *_ = LOGS.read_text().splitlines()
    unknown = first.replace("h200_sxm", "k80").replace("049928ed", "unknown")
    rows = tmp_path / "rows.csv"
    rows.write_text("\n".join((columns, first, unknown)))
    known, refused = json.loads("".join(run_script("gpu_memory", "--rows", str(rows), "--json")))
    assert known["kv_cache_tokens"] == pytest.approx(1_475_472, rel=0.02)
    assert refused["reason"].startswith("a GPU must be ")
    rows.write_text("\n".join((columns, first, first)))
    group, every = run_script("gpu_memory", "--rows", str(rows))
    assert group.startswith("Qwen3-235B-A22B-FP8-dynamic fp8-dynamic h200_sxm TP 4 0.11.2")
    assert every.split()[:3] == ["all", "2", "rows"]
