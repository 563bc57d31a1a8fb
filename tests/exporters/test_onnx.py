"""Stage files and the program that runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest

from autoauto.exporters.exporter import Check, Deployment
from autoauto.exporters.onnx_stages import (
    RUNNER,
    TOLERANCES,
    ModelPort,
    _check_independence,
    _first_samples,
    check,
    compared,
    examples,
    made_up,
    whole_model,
)
from autoauto.exporters.pipeline_runner import in_fp16
from autoauto.exporters.registry import _read_me, exporter_named, write_artifact
from autoauto.graph import cut
from autoauto.records.costs.options import DeviceSession, SessionOptions
from autoauto.records.errors import BadInput
from autoauto.records.layers import Port
from autoauto.records.plans.plan import side_by_side
from autoauto.records.schedule import Order
from autoauto.records.units import Precision, relative_error
from autoauto.space.knobs import Knobs
from autoauto.targets.host.runtimes.cuda.session import CudaSession
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.openvino.session import OpenVinoSession
from autoauto.targets.host.runtimes.registry import runtime_named
from autoauto.targets.host.runtimes.session import GraphOptimization, HostSession
from tests.drawn import daily
from tests.exporters.conftest import Deploy, plan_of

onnxruntime = pytest.importorskip("onnxruntime", reason="artifacts run in ONNX Runtime")
W = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
CHAIN = "MatMul x w > a; Tanh a > b; Neg b > c; Add c x > y"
X = {"x": ["n", 4]}


def written(deployment: Deployment, folder: Path, to: str = "onnx") -> list[Check]:
    return write_artifact(deployment, to, folder, check=True)


def run(folder: Path, inputs: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    np.savez(folder / "inputs.npz", **inputs)
    command = [sys.executable, RUNNER, "inputs.npz", "outputs.npz"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


SPECIAL: dict[str, tuple[str, dict[str, Any], str, tuple[int, ...], int]] = {
    "a fixed batch size": (
        "Tanh x > a; Softmax a > b axis=0; Neg b > y",
        {"x": [2, 4]},
        "y",
        (0, 1, 3),
        1,
    ),
    "integer inputs": ("Gather w i > a; Tanh a > b; Neg b > y", {"int:i": ["n", 3]}, "y", (0, 1, 3), 2),
    "an output that an early stage writes": ("Relu x > y; Tanh y > b; Neg b > c; Neg c > z", X, "y z", (0, 1, 2, 4), 2),
    "an output that is an input": ("Tanh x > a; Neg a > y", X, "y x", (0, 1, 2), 2),
    "an input that nothing reads": ("Tanh x > a; Neg a > y", {**X, "u": ["n", 3]}, "y", (0, 1, 2), 2),
    "names of paths and of arguments": ("Tanh /x > /a/b; Neg /a/b > file", {"/x": ["n", 4]}, "file", (0, 1, 2), 2),
    "lengths that depend on data": ("Tanh x > a; Relu a > b; NonZero b > y; Neg b > z", X, "y z", (0, 1, 4), 2),
    "an output that is a constant": ("Tanh x > a; Neg a > y; Identity w > v", X, "y v", (0, 1, 2), 2),
}


@pytest.mark.parametrize("to", daily(["onnx", "onnx-annotated", "triton"]))
@pytest.mark.parametrize("case", SPECIAL)
def test_the_stages_of_a_special_model_are_the_model(case: str, to: str, deploy: Deploy, tmp_path: Path) -> None:
    program, inputs, outputs, cuts, batch_size = SPECIAL[case]
    plan = deploy(program, inputs, outputs, {"w": W}, plan=plan_of(cuts), batch_size=batch_size)
    if (case, to) == ("an output that is an input", "triton"):
        with pytest.raises(BadInput, match=r"makes every output, 'x' is an input; try --to onnx$"):
            written(plan, tmp_path / "artifact", to)
        return
    if (case, to) == ("lengths that depend on data", "triton"):
        with pytest.raises(BadInput, match=r"have fixed shapes, lengths of 'y' depend on data; try --to onnx$"):
            written(plan, tmp_path / "artifact", to)
        return
    checks = written(plan, tmp_path / "artifact", to)
    assert [each for each in checks if each.passed is False] == []
    assert any(f"output {outputs.split()[0]} " in each.what for each in checks)


@pytest.mark.parametrize("session", [OnnxRuntimeSession(), OpenVinoSession()], ids=["onnxruntime", "openvino"])
def test_stages_take_scalars_and_lengths(session: HostSession, deploy: Deploy, tmp_path: Path) -> None:
    pytest.importorskip(session.runtime)
    program = "Mul x rate > a; MatMul a w > b; Cast x_lens > l to=1; Unsqueeze l axis > c; Div b c > y"
    inputs = {**X, "rate": [], "int:x_lens": ["n"]}
    plan = deploy(program, inputs, "y", {"w": W, "axis": np.array([1])}, plan=plan_of((0, 2, 4)), session=session)
    assert [each for each in written(plan, tmp_path / "artifact") if each.passed is False] == []
    n, made = examples(plan, 3)
    assert (n, made["x_lens"].tolist(), made["rate"].shape) == (3, [4] * 6, ())


@pytest.mark.parametrize("session", [OnnxRuntimeSession(), OpenVinoSession()], ids=["onnxruntime", "openvino"])
def test_outputs_whose_lengths_depend_on_data_have_their_own_lengths_and_one_micro_batch(
    session: HostSession, deploy: Deploy, tmp_path: Path
) -> None:
    pytest.importorskip(session.runtime)
    plan = deploy("Relu x > a; NonZero a > y", X, "y", plan=plan_of((0, 1, 2)), session=session)
    written(plan, tmp_path / "artifact")
    assert json.loads((tmp_path / "artifact" / "pipeline.json").read_text())["outputs"] == [
        {"name": "y", "shape": [2, 8], "dtype": "int64", "batch_axis": None, "data_dependent": True}
    ]
    x = np.array([[0, 1, 0, -1], [2, 0, 0, 3]], np.float32)
    assert run(tmp_path / "artifact", {"x": x}).returncode == 0
    with np.load(tmp_path / "artifact" / "outputs.npz") as outputs:
        assert outputs["y"].tolist() == [[0, 1, 1], [1, 0, 3]]
    done = run(tmp_path / "artifact", {"x": np.concatenate([x, x])})
    assert done.stderr == "run_pipeline.py: output 'y' has lengths of its own, so give one micro-batch, got 2\n"


@pytest.mark.parametrize("session", [OnnxRuntimeSession(), OpenVinoSession()], ids=["onnxruntime", "openvino"])
def test_stages_of_a_quantised_model_send_its_integers(session: HostSession, deploy: Deploy, tmp_path: Path) -> None:
    pytest.importorskip(session.runtime)
    constants = {"w": W, "scale": np.array(0.05, np.float32)}
    program = "QuantizeLinear x scale > q; DequantizeLinear q scale > d; MatMul d w > y"
    plan = deploy(program, X, "y", constants, plan=plan_of((0, 1, 3)), session=session)
    checks = written(plan, tmp_path / "artifact")
    assert [each for each in checks if each.passed is False] == []
    [first, _] = json.loads((tmp_path / "artifact" / "pipeline.json").read_text())["pipelines"][0]["stages"]
    assert [port["dtype"] for port in first["outputs"]] == ["uint8"]


@pytest.mark.parametrize("to", ["onnx", "onnx-annotated", "triton"])
def test_weights_that_are_too_many_for_a_file_lie_beside_it(
    to: str, deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = {f"w{i}": np.full((64, 64), 0.1, np.float32) for i in range(2)}
    plan = deploy("MatMul x w0 > a; MatMul a w1 > y", {"x": ["n", 64]}, "y", constants, plan=plan_of((0, 1, 2)))
    monkeypatch.setattr(cut, "MAX_WEIGHT_BYTES", 4096)
    checks = written(plan, tmp_path / "artifact", to)
    assert [each for each in checks if each.passed is False] == []
    sizes = [path.stat().st_size for path in (tmp_path / "artifact").rglob("*.data")]
    assert sizes == ([2 * 64 * 64 * 4] if to == "onnx-annotated" else [64 * 64 * 4] * 2)


def test_replicas_of_different_plans_run_side_by_side(deploy: Deploy, tmp_path: Path) -> None:
    plan = side_by_side([plan_of((0, 1, 4), (0,)), plan_of((0, 3, 4), (1, 2))])
    deployment = deploy(CHAIN, X, "y", {"w": W}, plan=plan, replicas=3)
    assert all(each.passed for each in written(deployment, tmp_path / "artifact"))
    pipelines = json.loads((tmp_path / "artifact" / "pipeline.json").read_text())["pipelines"]
    assert [pipeline["n_replicas"] for pipeline in pipelines] == [1, 2]
    assert [stage["layers"] for pipeline in pipelines for stage in pipeline["stages"]] == [
        [0, 1],
        [1, 4],
        [0, 3],
        [3, 4],
    ]
    for to in ("onnx-annotated", "triton"):
        with pytest.raises(BadInput, match=r"one plan for all replicas, got 2 different ones; try --to onnx$"):
            written(deployment, tmp_path / "other", to)
    assert not (tmp_path / "other").exists()


def test_devices_of_a_stage_take_micro_batches_in_turn(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 1, 4), stage_replicas=2))
    [result, *_] = written(deployment, tmp_path / "artifact")
    assert result.passed
    assert result.detail.startswith("3 micro-batches")
    with pytest.raises(BadInput, match="one device a stage"):
        written(deployment, tmp_path / "other", "onnx-annotated")


@pytest.mark.parametrize("precision", OpenVinoSession.precisions)
def test_the_program_runs_every_stage_as_it_was_measured(precision: Precision, deploy: Deploy, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    if precision not in runtime_named(OpenVinoSession.runtime).precisions():
        pytest.skip(f"this processor has no instructions for {precision}")
    session = OpenVinoSession(precision=precision)
    deployment = deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 1, 4)), session=session)
    [result, *_] = written(deployment, tmp_path / "artifact")
    assert result.passed
    stages = json.loads((tmp_path / "artifact" / "pipeline.json").read_text())["pipelines"][0]["stages"]
    assert {(stage["runtime"], stage["precision"]) for stage in stages} == {("openvino", precision)}
    assert "pip install openvino\n" in (tmp_path / "artifact" / "README.md").read_text()
    with pytest.raises(BadInput, match=rf"does not say what runs a stage, got a plan for openvino in {precision}"):
        written(deployment, tmp_path / "other", "triton")


@dataclass(frozen=True, slots=True)
class OtherSession(OnnxRuntimeSession):
    """A session of a runtime that the program does not know."""

    runtime: ClassVar[str] = "tvm"


def test_a_runtime_that_the_program_does_not_know_is_refused(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 1, 4)), session=OtherSession())
    with pytest.raises(BadInput, match=r"runs stages by onnxruntime, openvino, cuda, got a plan for tvm; try those"):
        written(deployment, tmp_path / "artifact")
    assert not (tmp_path / "artifact").exists()


def on_core_and_gpu(deployment: Deployment) -> Deployment:
    sessions = SessionOptions(3, OnnxRuntimeSession()), SessionOptions(1, CudaSession(), gpu="GPU-a")
    return replace(deployment, devices=tuple(map(DeviceSession, ("cpu:3", "cuda:0"), sessions)))


def test_a_stage_is_written_with_the_session_of_its_device(deploy: Deploy, tmp_path: Path) -> None:
    deployment = on_core_and_gpu(deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 1, 4)), session=OnnxRuntimeSession()))
    write_artifact(deployment, "onnx", tmp_path / "artifact")
    content = json.loads((tmp_path / "artifact" / "pipeline.json").read_text())
    assert content["devices"] == ["cpu:3", "cuda:0"]
    stages = content["pipelines"][0]["stages"]
    assert [(stage["runtime"], stage["intra_op_threads"]) for stage in stages] == [("onnxruntime", 3), ("cuda", 1)]
    assert "pip install 'onnxruntime-gpu[cuda,cudnn]'\n" in (tmp_path / "artifact" / "README.md").read_text()
    with pytest.raises(BadInput, match=r"got a plan for onnxruntime in fp32 on cpu:3, cuda:0; try --to onnx"):
        written(deployment, tmp_path / "other", "triton")


def test_a_stage_in_fp16_keeps_its_file_and_is_converted_by_the_program(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 4)))
    session = SessionOptions(1, CudaSession(precision=Precision.FP16), gpu="GPU-a")
    write_artifact(replace(deployment, devices=(DeviceSession("cuda:0", session),)), "onnx", tmp_path / "artifact")
    assert "pip install 'onnxruntime-gpu[cuda,cudnn]' onnx\n" in (tmp_path / "artifact" / "README.md").read_text()
    file = tmp_path / "artifact" / "stage0.onnx"
    sessions = (onnxruntime.InferenceSession(each) for each in (file, in_fp16(file)))
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    exact, rounded = (session.run(["y"], {"x": x})[0] for session in sessions)
    assert rounded.dtype == np.float32
    assert 0 < relative_error(rounded, exact) < TOLERANCES[Precision.FP16]


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="this onnxruntime is for GPUs"
)
def test_a_stage_for_a_gpu_runs_nowhere_else(deploy: Deploy, tmp_path: Path) -> None:
    deployment = on_core_and_gpu(deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 1, 4)), session=OnnxRuntimeSession()))
    write_artifact(deployment, "onnx", tmp_path / "artifact")
    done = run(tmp_path / "artifact", {"x": np.zeros((2, 4), np.float32)})
    assert done.returncode == 1
    assert done.stderr.startswith("run_pipeline.py: stages for GPUs need onnxruntime-gpu[cuda,cudnn]")


@pytest.mark.parametrize(
    ("session", "options"),
    [
        (OpenVinoSession(2, streams=2), {"streams": 2}),
        (OnnxRuntimeSession(2, spinning=False), {"spinning": False, "graph_optimization": "all"}),
        (
            OnnxRuntimeSession(2, graph_optimization=GraphOptimization.OFF),
            {"spinning": True, "graph_optimization": "off"},
        ),
    ],
)
def test_the_program_runs_every_stage_with_its_options(
    session: HostSession, options: dict[str, Any], deploy: Deploy, tmp_path: Path
) -> None:
    pytest.importorskip(session.runtime)
    deployment = deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 1, 4)), session=session)
    [result, *_] = written(deployment, tmp_path / "artifact")
    assert result.passed
    stages = json.loads((tmp_path / "artifact" / "pipeline.json").read_text())["pipelines"][0]["stages"]
    assert [stage["options"] for stage in stages] == [options] * 2
    assert {tuple(port["shape"]) for stage in stages for port in (*stage["inputs"], *stage["outputs"])} == {(2, 4)}
    with pytest.raises(
        BadInput, match=r"does not say what runs a stage, got a plan for .* with options; try --to onnx"
    ):
        written(deployment, tmp_path / "other", "triton")


def test_micro_batches_are_what_the_whole_model_makes(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 1, 4), (0, 1)), replicas=2)
    written(deployment, tmp_path / "artifact")
    x = np.random.default_rng(2).standard_normal((10, 4)).astype(np.float32)
    done = run(tmp_path / "artifact", {"x": x})
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "artifact" / "outputs.npz") as outputs:
        assert np.allclose(outputs["y"], x - np.tanh(x @ W), atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"z": np.zeros((2, 4), np.float32)}, "the inputs must be ['x'], got ['z']"),
        ({"x": np.zeros((3, 4), np.float32)}, "'x' must be float32 of shape [2, 4], times the number of micro-batches"),
        ({"x": np.zeros((0, 4), np.float32)}, "along axis 0, got float32 of shape [0, 4]"),
        ({"x": np.zeros(4, np.float32)}, "along axis 0, got float32 of shape [4]"),
        ({"x": np.zeros((2, 4))}, "got float64 of shape [2, 4]"),
    ],
)
def test_the_program_refuses_wrong_inputs_in_one_line(
    inputs: dict[str, Any], message: str, deploy: Deploy, tmp_path: Path
) -> None:
    write_artifact(deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 2, 4))), "onnx", tmp_path / "artifact")
    done = run(tmp_path / "artifact", inputs)
    assert done.returncode == 1
    assert done.stderr.startswith("run_pipeline.py: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


def swap(folder: Path) -> None:
    first, second = sorted(folder.rglob("*stage?.onnx")) or sorted(folder.rglob("model.onnx"))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def other_weights(folder: Path) -> None:
    """Scale a weight: everything runs, with another result."""
    path = next(path for path in sorted(folder.rglob("*.onnx")))
    model = onnx.load_model(path)
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0])
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight * 2, model.graph.initializer[0].name))
    onnx.save_model(model, path)


@pytest.mark.parametrize(("to", "damage"), [("onnx", swap), ("triton", swap), *((to, other_weights) for to in
    ("onnx", "onnx-annotated", "triton"))])  # fmt: skip
def test_a_check_fails_when_a_file_is_damaged(
    to: str, damage: Callable[[Path], None], deploy: Deploy, tmp_path: Path
) -> None:
    deployment = deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 1, 4)))
    write_artifact(deployment, to, tmp_path / "artifact")
    damage(tmp_path / "artifact")
    checks = [*exporter_named(to).check(deployment, tmp_path / "artifact")]
    assert any(each.passed is False for each in checks)


@pytest.mark.parametrize("to", ["onnx", "onnx-annotated", "triton"])
def test_a_plan_for_training_is_refused(to: str, deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 2, 4)))
    training = replace(
        deployment, knobs=Knobs(n_ipu=2, memory_proportion=0.6, batch_size=2, schedule=Order.GPIPE, n_micro_batches=4)
    )
    with pytest.raises(BadInput, match="is for inference, got a plan for training; try --mode inference"):
        written(training, tmp_path / "artifact", to)


def test_only_an_empty_folder_is_filled(deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 2, 4)))
    for name in ("full", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "mine").touch()
    for folder in (tmp_path / "full", tmp_path / "full" / "mine"):
        with pytest.raises(BadInput, match="a new or empty folder"):
            write_artifact(deployment, "onnx", folder)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]
    monkeypatch.chdir(tmp_path / "empty")
    assert all(each.passed for each in write_artifact(deployment, "onnx", Path(), check=True))
    assert sorted(path.name for path in Path().iterdir()) == [
        "README.md", "pipeline.json", "run_pipeline.py", "stage0.onnx", "stage1.onnx",
    ]  # fmt: skip


def test_times_are_in_seconds_of_the_reference_clock(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 1, 4)))
    write_artifact(deployment, "onnx", tmp_path / "artifact")
    pipeline = json.loads((tmp_path / "artifact" / "pipeline.json").read_text())
    [stages] = [each["stages"] for each in pipeline["pipelines"]]
    assert [stage["compute_s"] * deployment.cluster.clock_hz for stage in stages] == pytest.approx([9, 9])
    assert pipeline["pipelines"][0]["period_s"] * deployment.cluster.clock_hz == pytest.approx(9 + 2)
    assert (pipeline["samples_per_s"], pipeline["origin"], pipeline["schema"]) == (1234.5, "estimated", 1)
    assert [stage["sends"] for stage in stages] == [["x", "a"], ["y"]]


def test_given_inputs_are_those_of_a_check(deploy: Deploy) -> None:
    def inputs(ports: Sequence[Port]) -> dict[str, Any]:
        return {port.name: np.full(port.shape, 7, port.dtype) for port in ports}

    deployment = replace(deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 1, 4))), inputs=inputs)
    n, arrays = examples(deployment, 3)
    assert (n, arrays["x"].shape, set(arrays["x"].ravel())) == (3, (6, 4), {7.0})


def test_what_is_compared_is_the_whole_model(deploy: Deploy) -> None:
    deployment = deploy(CHAIN, X, "y", {"w": W}, plan=plan_of((0, 4)))
    n, inputs = examples(deployment, 1)
    x = inputs["x"]
    assert n == 1
    assert relative_error(whole_model(deployment, inputs)["y"], x - np.tanh(x @ W)) < 1e-5
    assert check is exporter_named("onnx").check


@pytest.mark.parametrize(
    ("made", "error"), [([1.0, 2.0], 0.0), ([1.0], np.inf), ([1.0, np.nan], np.inf), ([1.0, 1.0], 0.5)]
)
def test_errors_are_relative_to_the_largest_value(made: list[float], error: float) -> None:
    assert relative_error(np.array(made), np.array([1.0, 2.0])) == error


def test_what_differs_is_said_with_the_micro_batches_and_what_is_allowed() -> None:
    """Of 1, 2 and 1, 1 half of the largest value differs."""
    arrays = {"y": np.array([1.0, 2.0])}
    same, missing = compared({"y": np.array([1.0, 2.0])}, arrays | {"z": arrays["y"]}, 1)
    assert (same.what, same.passed) == ("output y equals that of the whole model", True)
    assert same.detail.startswith("1 micro-batch differs by 0.0e+00 of the largest value, at most ")
    assert (missing.passed, "inf" in missing.detail) == (False, True)
    [wrong] = compared({"y": np.array([1.0, 1.0])}, arrays, 3)
    assert wrong.passed is False
    assert wrong.detail.startswith("3 micro-batches differ by 5.0e-01 of the largest value")
    [close] = compared({"y": np.array([1.0, 2.0 * (1 + 2e-3)])}, arrays, 1)
    assert close.passed is False
    [in_bf16] = compared({"y": np.array([1.0, 2.0 * (1 + 2e-3)])}, arrays, 1, Precision.BF16)
    assert in_bf16.passed


@pytest.mark.parametrize(
    ("compute", "is_independent", "detail"),
    [
        (np.tanh, True, "one micro-batch ran with other samples in the other places, and no row changed"),
        (lambda x: x - x.mean(0), False, "a request to a server must hold all samples of a micro-batch, because "),
    ],
)
def test_whether_requests_share_micro_batches_is_a_check_with_its_reason(
    compute: Callable[[Any], Any], is_independent: bool, detail: str, deploy: Deploy
) -> None:
    """A model of two samples, in whose place stands a function of NumPy: a mean over samples mixes them."""

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        parts = np.split(inputs["x"], len(inputs["x"]) // 2)
        return {"y": np.concatenate([compute(part) for part in parts])}

    deployment = deploy("Tanh x > y", X, "y", plan=plan_of((0, 1)), batch_size=2)
    said: list[Any] = []

    def checked() -> Generator[Any, None, None]:
        said.append((yield from _check_independence(deployment, run)))

    [each] = checked()
    assert (each.passed, said) == (True, [is_independent])
    assert each.detail.startswith(detail)
    assert list(_check_independence(deploy("Tanh x > y", X, "y", plan=plan_of((0, 1)), batch_size=1), run)) == []


def test_the_first_samples_are_so_many_along_the_axis_of_each() -> None:
    """Of 4 samples the first is a quarter along its axis, which may hold several places a sample."""
    ports = [
        ModelPort("a", (4, 3), "float32", 0),
        ModelPort("b", (2, 8), "float32", 1),
        ModelPort("c", (5,), "f", None),
    ]
    arrays = {"a": np.arange(12).reshape(4, 3), "b": np.arange(16).reshape(2, 8), "c": np.arange(5)}
    first = _first_samples(arrays, ports, 1, 4)
    assert {name: array.tolist() for name, array in first.items()} == {"a": [[0, 1, 2]], "b": [[0, 1], [8, 9]]}


def test_made_up_inputs_are_noise_indices_and_masks() -> None:
    ports = [Port("x", (64,), "float16"), Port("i", (64,), "int32"), Port("m", (4,), "bool")]
    made = made_up(ports, np.random.default_rng(0))
    assert {name: str(array.dtype) for name, array in made.items()} == {"x": "float16", "i": "int32", "m": "bool"}
    assert {*made["i"].tolist()} == {0, 1}
    assert made["m"].all()
    assert 0.5 < np.std(made["x"].astype(float)) < 1.5


def test_a_read_me_counts_stages_and_replicas_where_there_are_several(deploy: Deploy, tmp_path: Path) -> None:
    for cuts, replicas, text in (
        ((0, 4), 1, "one stage"),
        ((0, 2, 4), 1, "2 stages"),
        ((0, 2, 4), 2, "2 stages, 2 replicas"),
    ):
        deployment = deploy(CHAIN, X, "y", {"w": W}, plan=plan_of(cuts))
        knobs = replace(deployment.knobs, replicas=replicas)
        read_me = _read_me(replace(deployment, knobs=knobs), exporter_named("onnx"))
        assert text in read_me
        assert ("replicas" in read_me) == (replicas > 1)
        assert "micro-batches a step" not in read_me
