"""What of a trial is exported, and what is refused."""

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from autoauto.evaluate.export import deployment
from autoauto.evaluate.load import load_flow
from autoauto.records.costs.profile import HostRuntime
from autoauto.records.errors import BadInput
from autoauto.records.knobs.knobs import Knobs
from tests.targets.host.conftest import residual


def test_a_plan_for_gpus_is_refused_since_no_artifact_runs_there(tmp_path: Path) -> None:
    model = str(tmp_path / "residual.onnx")
    onnx.save(residual(2, 64), model)
    flow = load_flow(model)
    trial = flow.expect(Knobs(1, 0.6, 4))
    assert deployment(flow, model, trial).knobs == trial.knobs
    on_gpu = replace(trial, knobs=replace(trial.knobs, runtime=HostRuntime.CUDA))
    with pytest.raises(BadInput, match="an artifact runs on processors, got a plan for GPUs; run it with"):
        deployment(flow, model, on_gpu)
