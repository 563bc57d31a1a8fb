"""A model repository, read by Triton's own definition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from autoauto.exporters import triton
from autoauto.exporters.exporter import Deployment
from autoauto.exporters.registry import write_artifact
from autoauto.exporters.triton import check
from autoauto.records.costs.options import PlainSession
from autoauto.records.errors import BadInput
from autoauto.records.hardware import MachineDevice
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from tests.exporters.conftest import Deploy, plan_of

pytest.importorskip("onnxruntime", reason="artifacts run in ONNX Runtime")
pytest.importorskip("tritonclient", reason="configurations are read by Triton's definition")
W = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
PROGRAM = "MatMul x w > a; Relu a > z; Tanh z > b; Neg b > c; Add c a > y"


@pytest.fixture
def deployment(deploy: Deploy) -> Deployment:
    inputs = {"x": ["n", 4], "unread": ["n", 2]}
    return deploy(PROGRAM, inputs, "y z", {"w": W}, plan=plan_of((0, 2, 4, 5), (0, 1)), replicas=2)


def config(folder: Path, model: str) -> Any:
    text = (folder / model / triton.CONFIG_FILE).read_text(encoding="utf-8")
    return text_format.Parse(text, triton._definition()())


def test_the_ensemble_carries_tensors_past_stages(deployment: Deployment, tmp_path: Path) -> None:
    checks = write_artifact(deployment, "triton", tmp_path / "artifact", check=True)
    assert all(each.passed for each in checks)
    ensemble = config(tmp_path / "artifact", "small")
    assert (ensemble.platform, ensemble.max_batch_size) == ("ensemble", 2)
    assert [port.name for port in ensemble.input] == ["x"]
    assert [(port.name, [*port.dims]) for port in ensemble.output] == [("y", [4]), ("z", [4])]
    steps = [
        (step.model_name, {*step.input_map.values()}, {*step.output_map.values()})
        for step in ensemble.ensemble_scheduling.step
    ]
    assert steps == [
        ("small_stage0", {"x"}, {"a", "z"}),
        ("small_stage1", {"z"}, {"c"}),
        ("small_stage2", {"a", "c"}, {"y"}),
    ]
    assert (tmp_path / "artifact" / "small" / "1").is_dir()
    stage = config(tmp_path / "artifact", "small_stage0")
    assert (stage.backend, stage.max_batch_size) == ("onnxruntime", 2)
    assert [(group.count, group.kind) for group in stage.instance_group] == [(2, group_kind(stage, "KIND_CPU"))]


def group_kind(stage: Any, name: str) -> int:
    kind: int = stage.instance_group[0].Kind.Value(name)
    return kind


def test_gpus_of_all_replicas_run_a_stage(deployment: Deployment, tmp_path: Path) -> None:
    on_gpus = replace(deployment, knobs=replace(deployment.knobs, session=PlainSession()))
    write_artifact(on_gpus, "triton", tmp_path / "artifact")
    groups = [config(tmp_path / "artifact", f"small_stage{index}").instance_group for index in range(3)]
    assert [[(group.count, [*group.gpus]) for group in stage] for stage in groups] == [
        [(1, [0, 3])], [(1, [1, 4])], [(1, [2, 5])],
    ]  # fmt: skip
    elsewhere = replace(on_gpus.plan, placement=tuple((MachineDevice(n, 0),) * 3 for n in range(2)))
    with pytest.raises(BadInput, match="one machine, the plan has 2; try fewer --replicas"):
        write_artifact(replace(on_gpus, plan=elsewhere), "triton", tmp_path / "other")


def test_threads_of_a_host(deployment: Deployment, tmp_path: Path) -> None:
    on_host = replace(
        deployment,
        cluster=replace(deployment.cluster, target="host"),
        knobs=replace(deployment.knobs, session=OnnxRuntimeSession(3)),
    )
    write_artifact(on_host, "triton", tmp_path / "artifact")
    parameters = config(tmp_path / "artifact", "small_stage0").parameters
    assert parameters["intra_op_thread_count"].string_value == "3"


SEPARATE = {
    "pointwise": "Tanh x > a; Neg a > b; Exp b > c; Tanh c > y",
    "product": "MatMul x w > a; Relu a > b; Neg b > c; Tanh c > y",
    "reshaped": "Tanh x > a; Reshape a s > b; Neg b > c; Reshape c t > y",
    "flattened": "Tanh x > a; Flatten a > b; Exp b > c; Neg c > y",
    "by its shape": "Shape x > u; Tanh x > a; Neg a > b; Exp b > c; Reshape c u > d; Tanh d > y",
    "soft": "Tanh x > a; Softmax a > b; Neg b > c; Exp c > y",
}
MIXED = {
    "by mean": "ReduceMean x > m axes=[0]; Sub x m > a; Tanh a > b; Neg b > c; Exp c > y",
    "by softmax": "Softmax x > a axis=0; Tanh a > b; Neg b > c; Exp c > y",
}


@pytest.mark.parametrize("n_stages", [1, 2, 3, 4])
@pytest.mark.parametrize("name", [*SEPARATE, *MIXED])
def test_requests_of_fewer_samples_are_taken_and_joined_where_no_sample_changes_another(
    deploy: Deploy, tmp_path: Path, name: str, n_stages: int
) -> None:
    constants = {"w": W, "s": np.array([-1, 2, 2]), "t": np.array([-1, 4])}
    program = (SEPARATE | MIXED)[name]
    used = {key: value for key, value in constants.items() if f" {key} >" in program}
    n_layers = len(deploy(program, {"x": ["n", 4]}, "y", used, plan=plan_of((0, 1))).graph)
    if n_stages > n_layers:
        pytest.skip("a stage has a layer")
    plan = plan_of([*range(n_stages), n_layers])
    deployment = deploy(program, {"x": ["n", 4]}, "y", used, plan=plan, batch_size=3)
    checks = write_artifact(deployment, "triton", tmp_path / "artifact", check=True)
    assert all(each.passed for each in checks)
    stages = [config(tmp_path / "artifact", f"small_stage{index}") for index in range(n_stages)]
    is_open = stages[0].max_batch_size == 3
    assert {stage.max_batch_size for stage in stages} == {config(tmp_path / "artifact", "small").max_batch_size}
    if name in SEPARATE:
        assert [[*stage.dynamic_batching.preferred_batch_size] for stage in stages] == [[3]] * n_stages
    else:
        assert not any(stage.HasField("dynamic_batching") for stage in stages)
    alone = [each.detail for each in checks if "of a request of one sample" in each.what]
    assert is_open == bool(alone)
    assert all(detail.startswith("1 sample differs by ") for detail in alone)


def test_a_batch_that_the_file_fixes_stays_a_dimension(deploy: Deploy, tmp_path: Path) -> None:
    inputs = {"x": [2, 4]}
    deployment = deploy("Softmax x > a axis=0; Neg a > y", inputs, "y", plan=plan_of((0, 1, 2)), batch_size=1)
    write_artifact(deployment, "triton", tmp_path / "artifact", check=True)
    ensemble = config(tmp_path / "artifact", "small")
    assert (ensemble.max_batch_size, [*ensemble.input[0].dims]) == (0, [2, 4])


def test_names_are_quoted(deploy: Deploy, tmp_path: Path) -> None:
    name = 'a"b\\c/ü'
    deployment = deploy(f"Tanh x > {name}; Neg {name} > y", {"x": ["n", 4]}, "y", plan=plan_of((0, 1, 2)))
    assert all(each.passed for each in write_artifact(deployment, "triton", tmp_path / "artifact", check=True))


def test_scalars_are_refused(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy("Mul x s > a; Neg a > y", {"x": ["n", 4], "s": []}, "y", plan=plan_of((0, 1, 2)))
    with pytest.raises(BadInput, match=r"one or more dimensions .*'s' is float32 of shape \[\]; try --to onnx$"):
        write_artifact(deployment, "triton", tmp_path / "artifact")
    assert not (tmp_path / "artifact").exists()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('input_map { key: "z" value: "z" }', 'input_map { key: "z" value: "y" }', "small_stage1 reads y as"),
        ('output_map { key: "c" value: "c" }', 'output_map { key: "c" value: "a" }', "small_stage1 makes a again"),
        (
            'name: "x" data_type: TYPE_FP32',
            'name: "x" data_type: TYPE_INT32',
            "stage0 reads x as TYPE_FP32 [-1, 4]",
        ),
        (
            'name: "z" data_type: TYPE_FP32 dims: [4]',
            'name: "z" data_type: TYPE_FP32 dims: [2, 4]',
            "nothing makes output z",
        ),
        ('name: "small"', 'nome: "small"', 'has no field named "nome"'),
        ('output_map { key: "a" value: "a" }', 'output_map { key: "a" value: "o" }', "small_stage2 reads a as"),
    ],
)
def test_a_wrong_configuration_is_seen(
    old: str, new: str, problem: str, deployment: Deployment, tmp_path: Path
) -> None:
    write_artifact(deployment, "triton", tmp_path / "artifact")
    path = tmp_path / "artifact" / "small" / "config.pbtxt"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    failed = [each.detail for each in check(deployment, tmp_path / "artifact") if each.passed is False]
    assert problem in failed[0]


def test_without_tritons_definition_the_steps_still_run(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton, "find_spec", lambda _: None)
    checks = write_artifact(deployment, "triton", tmp_path / "artifact", check=True)
    assert [each.passed for each in checks] == [None, None, *[True] * 5]
    assert "pip install tritonclient" in checks[0].detail
