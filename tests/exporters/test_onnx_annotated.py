"""One file whose nodes say their stage."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from autoauto.exporters import onnx_annotated
from autoauto.exporters.exporter import Check, Deployment
from autoauto.exporters.onnx_annotated import MODEL, SETTINGS, check
from autoauto.exporters.registry import write_artifact
from autoauto.records.costs.options import PlainSession
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from tests.exporters.conftest import Deploy, plan_of

pytest.importorskip("onnxruntime", reason="artifacts run in ONNX Runtime")
W = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
PROGRAM = (
    "MatMul x w > a; Unsqueeze a one > u; Tanh u > b; Transpose w > t; Squeeze b one > c; MatMul c t > d; "
    "MatMul a t > e; Add d e > f; Flatten f > y"
)
"""By layers: MatMul, Tanh | MatMul | MatMul, Add; all others are views or constants."""


@pytest.fixture
def deployment(deploy: Deploy) -> Deployment:
    return deploy(PROGRAM, {"x": ["n", 4]}, "y", {"w": W, "one": [1]}, plan=plan_of((0, 2, 3, 5)))


def stages(folder: Path) -> dict[str, int]:
    model = onnx.load_model(folder / MODEL)
    assert all(
        [entry.configuration_id for entry in node.device_configurations] == ["pipeline"]
        and [entry.value for entry in node.metadata_props] == [f"stage{node.device_configurations[0].pipeline_stage}"]
        for node in model.graph.node
    )
    return {node.output[0]: node.device_configurations[0].pipeline_stage for node in model.graph.node}


def result(checks: list[Check], what: str) -> Check:
    [only] = [each for each in checks if what in each.what]
    return only


def test_views_and_constants_are_in_the_first_stage_that_reads_them(deployment: Deployment, tmp_path: Path) -> None:
    checks = write_artifact(deployment, "onnx-annotated", tmp_path / "artifact", check=True)
    assert stages(tmp_path / "artifact") == {"a": 0, "u": 0, "b": 0, "c": 1, "t": 1, "d": 1, "e": 2, "f": 2, "y": 2}
    assert [each for each in checks if each.passed is False] == []
    [configuration] = onnx.load_model(tmp_path / "artifact" / MODEL).configuration
    assert (configuration.name, configuration.num_devices) == ("pipeline", 3)
    assert [*configuration.device] == ["bow 0", "bow 1", "bow 2"]


def test_a_processor_has_all_stages_and_onnx_runtime_says_so(deployment: Deployment, tmp_path: Path) -> None:
    on_host = replace(deployment, knobs=replace(deployment.knobs, session=OnnxRuntimeSession()))
    checks = write_artifact(on_host, "onnx-annotated", tmp_path / "artifact", check=True)
    options = json.loads((tmp_path / "artifact" / "session_options.json").read_text())
    assert options == {SETTINGS: "cpu(=stage0, =stage1, =stage2)"}
    placement = result(checks, "places every node")
    assert placement.passed is not False
    assert "nodes on CPUExecutionProvider" in placement.detail or placement.passed is None


def test_gpus_have_their_numbers(deployment: Deployment, tmp_path: Path) -> None:
    on_gpus = replace(deployment, knobs=replace(deployment.knobs, session=PlainSession()))
    checks = write_artifact(on_gpus, "onnx-annotated", tmp_path / "artifact", check=True)
    options = json.loads((tmp_path / "artifact" / "session_options.json").read_text())
    assert options == {SETTINGS: "gpu:0(=stage0); gpu:1(=stage1); gpu:2(=stage2)"}
    placement = result(checks, "places every node")
    assert placement.passed is None


def test_a_runtime_without_the_option_does_not_check_it(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_annotated, "_reads_settings", lambda _: False)
    placement = result(write_artifact(deployment, "onnx-annotated", tmp_path / "artifact", check=True), "places")
    assert placement.passed is None
    assert placement.detail.endswith(f" does not know {SETTINGS}")
    accepts_all = SimpleNamespace(SessionOptions=lambda: SimpleNamespace(add_session_config_entry=lambda *_: None))
    accepts_all.InferenceSession = lambda *_, **__: None
    monkeypatch.undo()
    assert not onnx_annotated._reads_settings(accepts_all)


def later(node: onnx.NodeProto) -> None:
    node.device_configurations[0].pipeline_stage = 2
    node.metadata_props[0].value = "stage2"


def disagreeing(node: onnx.NodeProto) -> None:
    node.metadata_props[0].value = "stage1"


@pytest.mark.parametrize("change", [later, disagreeing])
def test_a_node_of_another_stage_is_seen(
    change: Callable[[onnx.NodeProto], None], deployment: Deployment, tmp_path: Path
) -> None:
    write_artifact(deployment, "onnx-annotated", tmp_path / "artifact")
    path = tmp_path / "artifact" / MODEL
    model = onnx.load_model(path)
    change(model.graph.node[0])
    onnx.save_model(model, path)
    checks = [*check(deployment, tmp_path / "artifact")]
    assert result(checks, "in the stage that computes it").detail == "1 of 9 nodes differ, a"
    assert not result(checks, "no stage reads").passed
