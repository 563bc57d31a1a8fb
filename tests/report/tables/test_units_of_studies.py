"""Units of objectives and of stored studies, in the words of their target."""

from __future__ import annotations

import pytest

from autoauto.report.wording import objective_unit, stored_unit
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective


@pytest.mark.parametrize(
    ("objective", "knobs", "unit"),
    [
        (Objective.THROUGHPUT, Knobs(), "samples/s"),
        (Objective.PER_DEVICE, Knobs(), "cycles x n_ipu / sample"),
        (Objective.PER_DEVICE, Knobs(cores_per_device=2), "core ns / sample"),
        (Objective.THROUGHPUT, Knobs(tensor_parallel=2, input_tokens=8, output_tokens=8), "tokens/s"),
        (Objective.PER_DEVICE, Knobs(tensor_parallel=2, input_tokens=8, output_tokens=8), "GPU ns / token"),
        (Objective.LATENCY, Knobs(tensor_parallel=2, input_tokens=8, output_tokens=8), "s"),
    ],
)
def test_an_objective_has_the_unit_of_its_target(objective: Objective, knobs: Knobs, unit: str) -> None:
    assert objective_unit(objective, [knobs]) == unit


@pytest.mark.parametrize(
    ("target", "is_text", "unit"),
    [
        ("ipu-12", False, "cycles x n_ipu / sample"),
        ("host-12, onnxruntime 1.32.0", False, "core ns / sample"),
        ("gpu 2 tables", True, "GPU ns / token"),
        ("paper 1", False, "cycles x n_ipu / sample"),
    ],
)
def test_a_stored_study_has_the_unit_of_its_target(target: str, is_text: bool, unit: str) -> None:
    assert stored_unit("per-device,latency", target, is_text=is_text) == unit
