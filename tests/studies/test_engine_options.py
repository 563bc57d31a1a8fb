"""The program that reads an engine's options from its wheel."""

from __future__ import annotations

from pathlib import Path

from tests.engines.test_options import SGLANG, wheel
from tests.studies.conftest import RunScript


def test_the_program_prints_a_table_with_its_source_in_the_first_row(run_script: RunScript, tmp_path: Path) -> None:
    columns, first, *others = run_script("engine_options", "sglang", str(wheel(tmp_path, SGLANG)))
    assert columns == "name,kind,choices,source"
    assert first == "--config,text,,package package 1.0; Apache-2.0; names and kinds by studies/engine_options.py"
    assert "--quantization,text,fp8 awq," in others
