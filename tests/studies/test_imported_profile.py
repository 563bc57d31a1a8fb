"""A profile of ONNX Runtime beside that of our own profiler."""

from __future__ import annotations

import pytest

from studies import imported_profile as study
from tests.studies.conftest import RunScript


def test_an_error_is_relative_to_the_measurement() -> None:
    assert study.Row("onnxruntime", 3, predicted_ms=1.1, measured_ms=1.0).error == pytest.approx(0.1)


@pytest.mark.slow
def test_both_profiles_are_planned_and_run(run_script: RunScript) -> None:
    header, imported, own = run_script("imported_profile", "squeezenet", "--runs", "3", "--rounds", "1")
    assert header.split()[:3] == ["model", "profile", "cut"]
    assert imported.split()[:2] == ["squeezenet", "onnxruntime"]
    assert own.split()[-1] == "1.00"
