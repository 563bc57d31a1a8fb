"""Profiles that ONNX Runtime takes here, joined with the models that they are of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest

from autoauto.evaluate.imported import profiled_model
from autoauto.evaluate.open import open_problem
from autoauto.graph.cut import onnx_source
from autoauto.graph.load import load_graph
from autoauto.profile.importers.onnxruntime_trace import read_onnxruntime
from autoauto.records.errors import BadInput
from autoauto.records.installation import data_dir
from autoauto.records.layers import LayerRange
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs
from autoauto.space.requests.problem import Problem, ProfileFiles
from studies.mutations import mutated_structure, small_trace
from tests.profile.importers.test_mutations import check_one_line

onnxruntime = pytest.importorskip("onnxruntime")
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
SQUEEZENET = LIGHT / "light_squeezenet.onnx"
RECORDED = data_dir() / "profiles" / "recorded"
PROFILE = RECORDED / "squeezenet.onnxruntime.json"
LEVELS = ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"]
Record = Callable[..., Path]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Run a model with profiling on; the file that ONNX Runtime writes."""

    def run(model: Path, level: str = "ORT_ENABLE_ALL", n_runs: int = 3) -> Path:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.collect_node_memory_stats_to_file", str(tmp_path / "memory.csv"))
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        inputs = {
            port.name: np.ones([n if isinstance(n, int) else 1 for n in port.shape], np.float32)
            for port in session.get_inputs()
        }
        for _ in range(n_runs):
            session.run(None, inputs)
        return Path(session.end_profiling())

    return run


def files(*profile: Path | str, details: Path | None = None) -> ProfileFiles:
    second = () if details is None else (str(details),)
    return ProfileFiles(tuple(map(str, profile)), "onnxruntime", second, 2, 1.0, 10.0)


def layers_of(model: Path, profile: Path | str, details: Path | None = None) -> Any:
    recorded = profiled_model(files(profile, details=details), str(model), Precision.FP32).target.recorded
    return recorded.layers_at[recorded.batch_sizes[0]]


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_of_optimisation_is_joined_with_the_file(record: Record, level: str, tmp_path: Path) -> None:
    profile = record(SQUEEZENET, level)
    layers = layers_of(SQUEEZENET, profile, tmp_path / "memory.csv")
    graph = load_graph(SQUEEZENET)
    assert [layer.name for layer in layers] == [layer.name for layer in graph.layers]
    nodes = read_onnxruntime(profile).nodes
    # At the lowest level the nodes that make the constants of this file run, too; here they are weights.
    total_s = sum(node.seconds for node in nodes if node.op != "ConstantOfShape")
    assert sum(layer.forward_s for layer in layers) == pytest.approx(total_s)
    # Every product has a node, or is tied to the layer that has it.
    tied = {layer.tied for layer in layers if layer.forward_s > 0}
    products = [each for layer, each in zip(graph.layers, layers, strict=True) if layer.op == "Conv"]
    assert all(each.forward_s > 0 or each.tied in tied for each in products)
    assert any(each.tied for each in products) == (level in LEVELS[2:])


def test_the_nodes_of_a_transformer_that_the_optimiser_made_have_their_layers(record: Record, tmp_path: Path) -> None:
    graph = load_graph("bert-base-128")
    start = next(i for i, layer in enumerate(graph.layers) if layer.name.startswith("bert.encoder.layer.0."))
    stop = next(i for i, layer in enumerate(graph.layers) if layer.name.startswith("bert.encoder.layer.1."))
    model = tmp_path / "encoder.onnx"
    model.write_bytes(onnx_source("bert-base-128").cut(graph, LayerRange(start, stop), 1).content)
    profile = record(model)
    by_name = {layer.name: layer for layer in layers_of(model, profile)}
    nodes = {node.name: node.seconds for node in read_onnxruntime(profile).nodes}
    norm = by_name["bert.encoder.layer.0.output.LayerNorm.LayerNormalization"]
    product = by_name["bert.encoder.layer.0.intermediate.dense.MatMul"]
    assert norm.forward_s >= min(seconds for name, seconds in nodes.items() if name.startswith("SkipLayerNorm"))
    assert product.forward_s >= nodes["bert.encoder.layer.0.intermediate.dense.MatMul/MatMulAddFusion"]
    assert sum(layer.forward_s for layer in by_name.values()) == pytest.approx(sum(nodes.values()))


def test_nodes_without_names_are_known_by_their_index(record: Record, tmp_path: Path) -> None:
    model = onnx.load(SQUEEZENET)
    for node in model.graph.node:
        node.name = ""
    path = tmp_path / "nameless.onnx"
    onnx.save(model, path)
    layers = layers_of(path, record(path, "ORT_ENABLE_BASIC"))
    assert all(layer.forward_s > 0 for layer in layers if not layer.tied)
    assert sum(bool(layer.tied) for layer in layers) < 10


def test_the_last_runs_count_by_their_median() -> None:
    events = json.loads(PROFILE.read_text())
    runs = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] == "model_run")
    first = [
        e["dur"] for start, stop in runs[1:] for e in events
        if e["name"] == "r1_nchwc_kernel_time" and start <= e["ts"] <= stop
    ]  # fmt: skip
    nodes = read_onnxruntime(PROFILE).nodes
    assert nodes[0].name == "r1_nchwc"
    assert nodes[0].seconds == pytest.approx(sum(first) / 2 / 1e6)
    assert len(nodes) == 40


def test_nodes_of_a_loop_are_part_of_it_and_calls_of_a_gpu_are_noted(tmp_path: Path) -> None:
    run = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 100}
    node = {"cat": "Node", "args": {"op_name": "Loop", "provider": "CUDAExecutionProvider", "output_size": "8"}}
    events = [
        {**node, "name": "body_kernel_time", "ts": 20, "dur": 10},
        {**node, "name": "loop_kernel_time", "ts": 10, "dur": 50},
        {**node, "name": "after_kernel_time", "ts": 60, "dur": 5},
        run,
    ]
    path = tmp_path / "loop.json"
    path.write_text(json.dumps(events))
    records = read_onnxruntime(path)
    assert [(each.name, each.seconds) for each in records.nodes] == [("loop", 50e-6), ("after", 5e-6)]
    assert "one run, its first" in records.notes[0]
    assert "CUDAExecutionProvider may compute after the host's call" in records.notes[1]


@pytest.mark.parametrize("second", ["weight", "activation"])
def test_weights_that_are_packed_are_noted_in_a_line(record: Record, second: str, tmp_path: Path) -> None:
    """A profile lacks the bytes of weights that ONNX Runtime packed for its products."""
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [64, 64]) for name in ("x", "w", "y")]
    packed = second == "weight"
    weights = [onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")] if packed else []
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    graph = onnx.helper.make_graph(nodes, "packed", ports[:1] if packed else ports[:2], ports[2:], weights)
    path = tmp_path / "packed.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    profiled = profiled_model(files(f"64={record(path)}"), None, Precision.FP32)
    notes = " ".join(profiled.target.recorded.notes)
    assert ("lacks the packed weights of 1 nodes, which count as 0 bytes" in notes) is packed


def test_the_memory_of_nodes_is_joined_by_name(tmp_path: Path) -> None:
    memory = tmp_path / "memory.csv"
    header = "#name,input_sizes,initializers_sizes,total_dynamic_sizes,total_temp_allocations"
    memory.write_text(f"{header}\nr1_nchwc_123,1,2,3,4096\n")
    with_memory, without = (layers_of(SQUEEZENET, PROFILE, details) for details in (memory, None))
    more = [a.temporary_bytes - b.temporary_bytes for a, b in zip(with_memory, without, strict=True)]
    assert more == [0, 4096, *[0] * 63]
    for text, message in (
        (f"{header}\nx,1,2", "line 2: a node has a name and four numbers"),
        ("x", "line 1: the memory"),
    ):
        memory.write_text(text)
        with pytest.raises(BadInput, match=message):
            read_onnxruntime(PROFILE, memory)


def test_a_plan_by_the_profile_has_the_sizes_of_the_file() -> None:
    flow = open_problem(Problem(str(SQUEEZENET), profile=files(PROFILE)))
    plan = flow.predict(Knobs(n_ipu=2, memory_proportion=1.0, batch_size=1))
    graph = load_graph(SQUEEZENET)
    cut = plan.partition[1]
    alive = [t for t in graph.tensors if t.producer < cut <= t.last_use and t.producer >= 0]
    n_bytes = sum(t.n_bytes(1, Precision.FP32) for t in {t.name: t for t in alive}.values())
    profile = flow.profile(flow.options(Knobs(n_ipu=2, memory_proportion=1.0, batch_size=1)))
    assert profile.layers[cut].input_bytes == n_bytes
    weights = sum(layer.exclusive["parameter"] for layer in profile.layers)
    assert weights == graph.n_weight_bytes(Precision.FP32)


@pytest.mark.parametrize("model", [LIGHT / "light_resnet50.onnx", Path("bert-base-128"), LIGHT / "light_vgg19.onnx"])
def test_a_profile_of_another_model_is_refused(model: Path) -> None:
    with pytest.raises(BadInput, match="is of another model") as refused:
        layers_of(model, PROFILE)
    check_one_line(refused.value)


def test_a_profile_of_a_shorter_model_is_refused(tmp_path: Path) -> None:
    events = json.loads(PROFILE.read_text())
    names = ("r48", "r50", "r52", "n53", "r55", "r57", "r59", "n60")
    path = tmp_path / "shorter.json"
    path.write_text(json.dumps([e for e in events if not e["name"].startswith(names)]))
    with pytest.raises(BadInput, match=r"has too few products before 'n6\d' of light_squeezenet"):
        layers_of(SQUEEZENET, path)


def test_runs_of_several_batch_sizes_are_refused(tmp_path: Path) -> None:
    def run(start: int, size: int) -> list[dict[str, Any]]:
        args = {"op_name": "MatMul", "node_index": "0", "output_type_shape": [{"float": [size, 4]}]}
        node = {"cat": "Node", "name": "mm_kernel_time", "ts": start + 1, "dur": 5, "args": args}
        return [{"cat": "Session", "name": "model_run", "ts": start, "dur": 9}, node]

    path = tmp_path / "two.json"
    path.write_text(json.dumps([*run(0, 8), *run(10, 16)]))
    with pytest.raises(BadInput, match=r"of one batch size, node 'mm' writes \[8, 4\] and \[16, 4\]; record a profile"):
        profiled_model(files(path), None, Precision.FP32)


def test_another_batch_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is of another model or batch size: node 'n9' has the output"):
        layers_of(SQUEEZENET, f"4={PROFILE}")
    with pytest.raises(BadInput, match="every batch size has one profile, got several of 1"):
        profiled_model(files(PROFILE, PROFILE), str(SQUEEZENET), Precision.FP32)
    with pytest.raises(BadInput, match="every --profile-details is of one --profile"):
        profiled_model(ProfileFiles((f"1={PROFILE}",), "onnxruntime", (str(PROFILE),)), str(SQUEEZENET), Precision.FP32)


def test_mostly_new_nodes_are_refused(tmp_path: Path) -> None:
    events = json.loads(PROFILE.read_text())
    for event in events:
        if event["name"] not in ("r1_nchwc_kernel_time", "r64_nchwc_kernel_time", "n9_kernel_time"):
            event["dur"] /= 1 if event["name"] == "model_run" else 50
        else:
            event["name"], event["args"]["op_name"] = "Attention_kernel_time", "Attention"
    path = tmp_path / "new.json"
    path.write_text(json.dumps(events))
    with pytest.raises(BadInput, match="graph_optimization_level = ORT_ENABLE_BASIC"):
        layers_of(SQUEEZENET, path)


def test_a_file_without_a_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_text("[]")
    with pytest.raises(BadInput, match="needs a model_run with its nodes"):
        layers_of(SQUEEZENET, path)


@pytest.mark.slow
def test_mutations_joined_with_the_model_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    content, random, path = small_trace(PROFILE.read_bytes()), Random(3), tmp_path / "mutated.json"
    model, n_refused = str(SQUEEZENET), 0
    for _ in range(100):
        document = json.loads(content)
        for _ in range(3):
            document = mutated_structure(document, random)
        path.write_text(json.dumps(document))
        try:
            open_problem(Problem(model, profile=files(path))).predict(
                Knobs(n_ipu=2, memory_proportion=1.0, batch_size=1)
            )
        except BadInput as error:
            check_one_line(error)
            n_refused += 1
    assert n_refused > 0


def test_a_stored_problem_opens_the_same_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(RECORDED)
    problem = Problem(str(SQUEEZENET), profile=files(PROFILE.name))
    again = Problem.read(problem.plain, "a problem")
    assert again.profile == files(PROFILE)
    monkeypatch.chdir(tmp_path)
    assert open_problem(again).fingerprint()["model"] == "light_squeezenet"


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Problem(None, profile=ProfileFiles(("a",), "csv")), "a profile needs its devices"),
        (Problem(None, cluster="host", profile=files("a")), "a profile needs its devices"),
        (Problem(None, target="host", profile=files("a")), "nothing is compiled or run, got --target host"),
        (Problem("x", profile=ProfileFiles(("a",), "csv", (), 1, 1.0, 1.0)), "a profile of csv has no MODEL"),
        (
            Problem(None, profile=ProfileFiles(("a",), "pdf", (), 1, 1.0, 1.0)),
            "the format of a profile is one of csv, .* got 'pdf'",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(problem: Problem, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_problem(problem)
    with pytest.raises(BadInput, match="go together; give all three"):
        ProfileFiles(("a",), "csv", (), 2)
