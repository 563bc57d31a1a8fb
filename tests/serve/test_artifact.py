"""Exported folders as what is served."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from autoauto.records.costs.options import SessionOptions
from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerGraph, LayerRange, Source
from autoauto.records.target import Origin
from autoauto.records.units import GIB, Precision
from autoauto.serve import artifact as artifact_module
from autoauto.serve.artifact import Artifact
from autoauto.serve.pipeline_file import read_pipeline_file
from autoauto.targets.host import devices as host_devices
from autoauto.targets.host.gpu.gpus import Gpu
from autoauto.targets.host.runtimes import registry
from autoauto.targets.host.runtimes.cuda.session import CudaSession
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.openvino.session import OpenVinoSession
from autoauto.targets.host.runtimes.registry import SESSIONS
from tests.serve.conftest import WIDTH, write_folder


def test_a_folder_is_a_model_with_its_plan(tmp_path: Path) -> None:
    model = Artifact(write_folder(tmp_path / "folder", cuts=(0, 2, 4), batch_size=3, replicas=2)).model
    assert (model.name, model.batch_size, model.n_pipelines, model.n_processes) == ("lookup", 3, 2, 2)
    assert [(port.name, port.shape, port.dtype, port.batch_axis) for port in (*model.inputs, *model.outputs)] == [
        ("ids", (3,), "int64", 0),
        ("x", (3, WIDTH), "float32", 0),
        ("y", (3, WIDTH), "float32", 0),
    ]
    assert (model.samples_per_s, model.origin, model.merges) == (1000.0, Origin.MEASURED, True)
    assert model.sample_bytes == 8 + 4 * WIDTH


def sessions(folder: Path) -> set[SessionOptions]:
    return {resources.session for pipeline in Artifact(folder)._resources() for resources in pipeline}


def test_a_stage_is_served_as_it_was_measured_and_in_onnx_runtime_where_the_file_is_older(tmp_path: Path) -> None:
    session = OpenVinoSession(precision=Precision.BF16)
    folder = write_folder(tmp_path / "folder", session=session)
    assert sessions(folder) == {SessionOptions(1, session)}

    def as_before(content: dict[str, Any]) -> None:
        for stage in content["pipelines"][0]["stages"]:
            del stage["runtime"], stage["precision"]

    assert sessions(changed(folder, as_before)) == {SessionOptions(1, OnnxRuntimeSession())}


def on_devices(*names: str, runtime: str = "onnxruntime") -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        content["devices"] = names
        content["pipelines"][0]["placement"] = [[[0, 0], [0, 1]]]
        content["pipelines"][0]["stages"][1]["runtime"] = runtime

    return change


def test_stages_are_served_on_the_devices_that_the_folder_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "installed", lambda: tuple(SESSIONS))
    monkeypatch.setattr(host_devices, "gpus_named", lambda text: (Gpu(0, "GPU-a", "H100", GIB, 0.0, (9, 0), "580"),))
    artifact = Artifact(changed(write_folder(tmp_path / "folder"), on_devices("cpu:1", "cuda:0", runtime="cuda")))
    [[on_core, on_gpu]] = artifact._resources()
    assert on_core.session == SessionOptions(1, OnnxRuntimeSession())
    assert on_gpu.session == SessionOptions(1, CudaSession(), gpu="GPU-a")


def changed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    path = folder / "pipeline.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return folder


def test_a_tensor_without_an_axis_of_samples_makes_requests_whole_micro_batches(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    model = Artifact(changed(folder, lambda content: content["outputs"][0].update(batch_axis=None))).model
    assert not model.merges


def test_an_output_whose_lengths_depend_on_data_makes_requests_whole_micro_batches(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder", (0, 1, 2), 3, program="Relu x > a; NonZero a > y", inputs=NONZERO)
    model = Artifact(folder).model
    assert not model.merges
    assert model.outputs[0].metadata == {"name": "y", "datatype": "INT64", "shape": [-1, -1]}


NONZERO: dict[str, Sequence[Any]] = {"x": ["n", 4]}


def of_another_target(content: dict[str, Any]) -> None:
    content["cluster"] = "bow-2000"
    content["pipelines"][0]["stages"][0]["intra_op_threads"] = 0


def of_many_cores(content: dict[str, Any]) -> None:
    content["pipelines"][0]["stages"][0]["intra_op_threads"] = 10_000


def of_two_machines(content: dict[str, Any]) -> None:
    content["pipelines"][0]["placement"] = [[[0, 0], [1, 0]]]


def of_unlike_replicas(content: dict[str, Any]) -> None:
    content["pipelines"] *= 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of_another_target, "has one for bow-2000; try one with --target host"),
        (of_many_cores, "needs 10000 cores, this process may use"),
        (of_two_machines, "a plan of processes of one machine can be served, .* has one for 2; search without --dask"),
        (of_unlike_replicas, "must be alike, .* has 2 plans"),
        (on_devices("cpu:1"), "must name all its devices, got cpu:1"),
        (on_devices("cpu:1", "cpu:x"), "folder is for cpu:1, cpu:x: --device takes cpu or cpu:N"),
        (on_devices("cpu:1", "cpu:10000"), "needs 10001 cores, this process may use"),
        (lambda content: content.pop("schema"), "schema must be 1, got none"),
        (lambda content: content.pop("outputs"), "must have the field outputs"),
    ],
)
def test_a_folder_that_cannot_be_served_is_refused(
    change: Callable[[dict[str, Any]], Any], message: str, tmp_path: Path
) -> None:
    folder = changed(write_folder(tmp_path / "folder"), change)
    with pytest.raises(BadInput, match=message):
        Artifact(folder)


def test_a_folder_without_one_of_its_files_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    (folder / "stage1.onnx").unlink()
    with pytest.raises(BadInput, match=r"stage1.onnx is missing"):
        Artifact(folder)
    (folder / "stage0.onnx.data").touch()
    with pytest.raises(BadInput, match=r"stage0.onnx has its weights beside it"):
        Artifact(folder)
    with pytest.raises(BadInput, match=r"has pipeline.json, .* does not"):
        Artifact(tmp_path)


def test_inputs_in_the_folder_are_those_of_a_micro_batch(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder", batch_size=3)
    np.savez(folder / "inputs.npz", ids=np.arange(3), x=np.zeros((3, WIDTH), np.float32))
    assert Artifact(folder).model.batch_size == 3
    np.savez(folder / "inputs.npz", ids=np.arange(2), x=np.zeros((3, WIDTH), np.float32))
    with pytest.raises(BadInput, match=r"input ids in .*inputs.npz must be int64 of shape \[3 x samples\]"):
        Artifact(folder)


def in_stage(number: int, name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["pipelines"][0]["stages"][number].update({name: value})


def in_pipeline(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["pipelines"][0].update({name: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (in_pipeline("placement", [[[0, 0]]]), r"placement\[0\] must have 2 devices, one for each stage, got 1"),
        (in_pipeline("placement", []), "placement must have 2 replicas, got 1"),
        (in_pipeline("placement", [[[0, 0], [0, -1]]]), r"numbers of devices from 0, got \[0, -1\]"),
        (in_pipeline("stages", []), "stages must be 1 or more, got none"),
        (in_pipeline("period_s", 0), "period_s must be a finite number above 0, got 0"),
        (in_pipeline("n_replicas", 0), r"pipelines\[0\].n_replicas must be a number from 1 to 65,536, got 0"),
        (in_stage(0, "sends", ["stage0.onnx"]), r"stages\[0\].sends must be tensors that .*, got 'stage0.onnx'"),
        (in_stage(0, "sends", []), r"stages\[1\].inputs must be tensors that reach the stage"),
        (in_stage(1, "sends", []), "must send all outputs of the model, 'y' is missing"),
        (in_stage(1, "layers", [0, 2]), r"stages\[1\].layers must be a range that begins at"),
        (in_stage(0, "file", "../stage0.onnx"), "must be the name of a file in the folder, got '../stage0.onnx'"),
        (
            in_stage(0, "inputs", [{"shape": [1], "name": "x", "dtype": "f4"}]),
            "a port must have the fields",
        ),
        (in_stage(0, "inputs", [{"name": "x", "shape": "y", "dtype": "f4"}]), "a port: .* must be a list"),
        (in_stage(0, "options", {"spinning": 2}), r"stages\[0\]: options.spinning must be true or false, got 2"),
        (in_stage(0, "options", {"colour": 2}), r"stages\[0\]: options.colour must be left out, got 2"),
        (in_stage(0, "options", {"streams": 2}), r"stages\[0\]: streams is for openvino, got onnxruntime"),
        (in_stage(0, "runtime", "tvm"), r"stages\[0\]: runtime is one of onnxruntime, openvino, cuda, got 'tvm'"),
        (in_stage(0, "precision", "fp8"), r"stages\[0\]: onnxruntime must compute in fp8, with a thread or more"),
        (in_stage(0, "n_replicas", -1), r"stages\[0\].n_replicas must be a number from 1"),
        (in_stage(0, "limit_bytes", -1), "limit_bytes must be above 0, got -1"),
        (lambda content: content.update(batch_size=0), "batch_size must be 1 or more, got 0"),
        (lambda content: content["inputs"][0].update(batch_axis=7), r"inputs\[0\].batch_axis must be an axis of"),
        (lambda content: content["inputs"][0].update(shape=[2**60]), r"inputs\[0\].shape must be lengths"),
        (lambda content: content["inputs"][0].update(dtype="float77"), "dtype must be a type of NumPy, got 'float77'"),
    ],
)
def test_what_does_not_hold_together_is_one_line_that_names_the_field(
    change: Callable[[dict[str, Any]], Any], message: str, tmp_path: Path
) -> None:
    folder = changed(write_folder(tmp_path / "folder", cuts=(0, 2, 4)), change)
    if message.startswith("placement must have 2 replicas"):
        changed(folder, lambda content: content["pipelines"][0].update(placement=[[[0, 0], [0, 1]]], n_replicas=2))
    with pytest.raises(BadInput, match=message) as refused:
        Artifact(folder)
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith("; export it again")


class _Recorded(NamedTuple):
    """The arguments of `Pipelines`."""

    graph: LayerGraph
    source: Source
    stages: list[LayerRange]
    batch_size: int
    resources: list[list[Any]]
    counts: list[int]
    serves: bool
    given: Any


def test_pipelines_have_the_files_of_the_stages_and_what_passes_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first stage looks up `ids` and takes the larger of 0; x is carried past it."""
    folder = write_folder(tmp_path / "folder", cuts=(0, 2, 4), batch_size=3, replicas=2)
    monkeypatch.setattr(artifact_module, "Pipelines", _Recorded)
    artifact = Artifact(folder)  # its files are open as long as it lives
    made = cast("_Recorded", artifact.pipelines())
    assert (made.stages, made.batch_size, made.counts) == ([LayerRange(0, 2), LayerRange(2, 4)], 3, [1, 1])
    assert (made.graph.name, made.serves, made.given) == ("lookup", True, None)
    assert [len(pipeline) for pipeline in made.resources] == [2, 2]
    parts = [made.source.cut(made.graph, layers, 3) for layers in made.stages]
    assert [part.content for part in parts] == [(folder / f"stage{i}.onnx").read_bytes() for i in range(2)]
    assert [[port.name for port in part.inputs] for part in parts] == [["ids"], ["r", "x"]]
    assert [[port.name for port in part.outputs] for part in parts] == [["r"], ["y"]]
    carried = [made.source.carried(made.graph, cut, 3) for cut in (0, 2, 4)]
    assert [sorted(port.name for port in ports) for ports in carried] == [["ids", "x"], ["r", "x"], ["y"]]
    assert {port.name: port.shape for port in carried[1]} == {"r": (3, WIDTH), "x": (3, WIDTH)}


def in_file(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update({name: value})


def in_port(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["inputs"][1].update({name: value})


@pytest.mark.parametrize(
    ("change", "lowest", "most", "message"),
    [
        (partial(in_file, "batch_size"), 1, None, "batch_size must be 1 or more"),
        (partial(in_file, "samples_per_s"), 1e-9, 1e300, "samples_per_s must be a finite number above 0"),
        (partial(in_pipeline, "period_s"), 1e-9, 1e300, "period_s must be a finite number above 0"),
        (partial(in_pipeline, "n_replicas"), 1, 65_536, "n_replicas must be a number from 1 to 65,536"),
        (partial(in_stage, 1, "n_replicas"), 1, 65_536, "n_replicas must be a number from 1 to 65,536"),
        (partial(in_stage, 1, "intra_op_threads"), 0, 65_536, "intra_op_threads must be 0 or more"),
        (partial(in_stage, 1, "limit_bytes"), 1, 2**62, "limit_bytes must be above 0"),
        (partial(in_port, "batch_axis"), 0, 1, "batch_axis must be an axis of"),
    ],
)
def test_numbers_of_a_folder_have_ends(
    change: Callable[[Any], Any], lowest: Any, most: Any, message: str, tmp_path: Path
) -> None:
    """The lengths of all ports are multiples of 4, and there are 8 columns."""
    folder = write_folder(tmp_path / "folder")
    whole = (folder / "pipeline.json").read_text()
    whole = json.dumps({**json.loads(whole), "pipelines": [{**json.loads(whole)["pipelines"][0], "placement": []}]})
    ends = [lowest, *([] if most is None else [most])]
    beyond = [lowest - 1, *([most + 1] if isinstance(most, int) else [])]
    for value, is_wrong in (*((end, False) for end in ends), *((end, True) for end in beyond)):
        (folder / "pipeline.json").write_text(whole)
        changed(folder, change(value))
        if is_wrong:
            with pytest.raises(BadInput, match=f"{message}.*, got {value}; export it again"):
                read_pipeline_file(folder)
        else:
            read_pipeline_file(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (in_file("pipelines", []), "pipelines must be 1 or more, got none"),
        (in_file("samples_per_s", -1.0), "samples_per_s must be a finite number above 0, got -1"),
        (in_port("batch_axis", 2), r"inputs\[1\].batch_axis must be an axis of \[4, 8\] with samples, got 2"),
        (in_port("shape", [6, 8]), r"inputs\[1\].batch_axis must be an axis of \[6, 8\] with samples, got 0"),
        (in_port("name", "ids"), "inputs must have names of their own, got"),
        (in_port("shape", [4, -1]), r"inputs\[1\].shape must be lengths from 0 that can be held"),
        (in_port("shape", [4] + [1] * 32), r"inputs\[1\].shape must be lengths from 0 that can be held"),
        (in_port("shape", [4, 2**47]), r"inputs\[1\].shape must be lengths from 0 that can be held"),
        (in_pipeline("placement", [[[0, 0], [65_536, 0]]]), "placement must have numbers of devices from 0"),
        (in_stage(1, "layers", [2, 2]), r"stages\[1\].layers must be a range that begins at 2, got \[2, 2\]"),
        (in_stage(1, "layers", [3, 4]), r"stages\[1\].layers must be a range that begins at 2, got \[3, 4\]"),
        (in_stage(0, "file", "a\0b"), r"stages\[0\].file must be the name of a file in the folder"),
        (in_stage(0, "sends", ["ids", "x"]), r"stages\[1\].inputs must be tensors that reach the stage .*, got 'r'"),
    ],
)
def test_ends_of_ports_placement_and_stages(
    change: Callable[[dict[str, Any]], Any], message: str, tmp_path: Path
) -> None:
    folder = changed(write_folder(tmp_path / "folder"), change)
    with pytest.raises(BadInput, match=message):
        read_pipeline_file(folder)


def test_ports_that_can_just_be_held_are_served(tmp_path: Path) -> None:
    """32 axes, a length of 0, and 2**50 bytes; tensors that the first stage does not read may be carried past it."""
    folder = write_folder(tmp_path / "folder")
    for shape in ([4] + [1] * 31, [4, 0], [4, 2**46]):
        changed(folder, in_port("shape", shape))
        assert [*read_pipeline_file(folder).inputs[1].shape] == shape


def test_samples_are_probed_where_requests_share_micro_batches(tmp_path: Path) -> None:
    """A micro-batch of one sample is no request's but one; nor is one of a tensor without an axis of samples."""
    probe = Artifact(write_folder(tmp_path / "three" / "folder", batch_size=3)).probe()
    assert probe is not None
    assert (probe.batch_size, probe.precision, probe.given) == (3, Precision.FP32, None)
    assert [tuple(each) for each in probe.inputs] == [("ids", (3,), "int64", 0), ("x", (3, WIDTH), "float32", 0)]
    assert [tuple(each) for each in probe.outputs] == [("y", (3, WIDTH), "float32", 0)]
    assert Artifact(write_folder(tmp_path / "one" / "folder", batch_size=1)).probe() is None
    whole = write_folder(tmp_path / "whole" / "folder")
    changed(whole, lambda content: content["outputs"][0].update(batch_axis=None))
    assert Artifact(whole).probe() is None


def test_the_coarsest_format_of_the_stages_is_probed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder", session=OpenVinoSession(precision=Precision.FP32))
    changed(folder, in_stage(1, "precision", "bf16"))
    probe = Artifact(folder).probe()
    assert probe is not None
    assert probe.precision is Precision.BF16
