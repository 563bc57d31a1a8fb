"""PopART: attributes of every operator, constants of every stage, options of a session."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from autoauto.exporters.graphcore.popart import IPU, MEMORY, STAGE, separate_constants, stages_of_nodes
from autoauto.exporters.registry import write_artifact
from autoauto.records.schedule import Order
from tests.exporters.graphcore.conftest import Deploy, Recorder, with_cuts

Execute = Callable[..., dict[str, Any]]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute if entry.name.startswith("__")}


def test_every_operator_has_its_ipu_and_stage(deploy: Deploy, tmp_path: Path) -> None:
    folder = tmp_path / "artifact"
    checks = write_artifact(with_cuts(deploy(2), 7), "popart", folder, check=True)
    model = onnx.load(folder / "model.onnx")
    written = {node.name: attributes(node) for node in model.graph.node}
    stages = {name: entry[STAGE] for name, entry in written.items()}
    # The layers are MatMul, Add, Relu of six modules, so stage 1 begins with the Add of the third.
    assert stages["net.blocks.2.dense.MatMul"] == 0
    assert stages["net.blocks.2.dense.Add"] == stages["net.blocks.2.Reshape"] == 1
    assert all(entry[IPU] == entry[STAGE] for entry in written.values())
    assert {name for name, entry in written.items() if MEMORY in entry} == {
        f"net.blocks.{i}.dense.MatMul" for i in range(6)
    }
    assert written["net.blocks.0.dense.MatMul"][MEMORY] == pytest.approx(0.6)
    readers = {
        tensor.name: {stages[node.name] for node in model.graph.node if tensor.name in node.input}
        for tensor in model.graph.initializer
    }
    assert all(len(each) == 1 for each in readers.values()), "PopART copies no variable between IPUs"
    assert {"half", "half__ipu1"} <= set(readers)
    assert [check.passed for check in checks] == [True] * 6 + [None]


#     a ──> view ──> b          stages of a, b, c: 0, 1, 2; the view runs where it is read first,
#              └───> c          and an output that nothing reads where it is made
def test_a_view_runs_in_the_first_stage_that_reads_it() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Identity", ["a"], ["view"]),
        helper.make_node("Identity", ["a"], ["out"]),
        helper.make_node("Relu", ["view"], ["b"]),
        helper.make_node("Add", ["b", "view"], ["c"]),
    ]
    assert stages_of_nodes(nodes, {"a": 0, "b": 1, "c": 2}, 2) == [0, 1, 0, 1, 2]


def test_stages_that_read_a_constant_have_copies() -> None:
    nodes = [helper.make_node("Add", [name, "k"], [f"{name}+"]) for name in "abc"]
    constant = helper.make_tensor("k", onnx.TensorProto.FLOAT, [1], [1.0])
    graph = helper.make_graph(nodes, "sums", [], [], [constant])
    separate_constants(graph, [0, 1, 1])
    assert [node.input[1] for node in graph.node] == ["k", "k__ipu1", "k__ipu1"]
    assert [tensor.name for tensor in graph.initializer] == ["k", "k__ipu1"]


def test_the_options_of_inference(deploy: Deploy, tmp_path: Path, execute: Execute) -> None:
    folder = tmp_path / "artifact"
    write_artifact(deploy(2, replicas=2), "popart", folder)
    popart = Recorder()
    execute(folder / "options.py", popart=popart)["session"]()
    calls = popart._calls
    assert calls["SessionOptions.virtualGraphMode"] == "VirtualGraphMode.Manual"
    assert calls["SessionOptions.enablePipelining"] is True
    assert calls["SessionOptions.replicatedGraphCount"] == 2
    assert calls["SessionOptions.matmulOptions"] == {"availableMemoryProportion": "0.6"}
    assert "GraphTransformer.convertFloatsToHalfs" in calls
    assert calls["DeviceManager.acquireAvailableDevice"] == ([4], {})
    assert calls["DataFlow"][0][0] == 32
    assert calls["InferenceSession"][1] == {"userOptions": "SessionOptions"}


def test_inputs_and_outputs_are_copied_by_io_tiles(deploy: Deploy, tmp_path: Path, execute: Execute) -> None:
    folder = tmp_path / "artifact"
    checks = write_artifact(deploy(2, io_tiles=32), "popart", folder, check=True)
    assert {check.passed for check in checks} == {True, None}
    popart = Recorder()
    execute(folder / "options.py", popart=popart)["session"]()
    assert popart._calls["SessionOptions.numIOTiles"] == 32
    assert popart._calls["SessionOptions.enableExplicitIR"] == ([True], {})
    assert popart._calls["AnchorReturnType"][0] == ["All", "TileSet.IO", "ExchangeStrategy.OverlapInnerLoop"]
    written = {entry.key: entry.value for entry in onnx.load(folder / "model.onnx").metadata_props}
    assert written == {"__tile_set/x": "1", "__exchange_strategy/x": "1"}


@pytest.mark.parametrize(("n_ipu", "recomputed"), [(2, "Pipeline"), (1, "RecomputeAll")])
def test_the_options_of_training(deploy: Deploy, tmp_path: Path, execute: Execute, n_ipu: int, recomputed: str) -> None:
    folder = tmp_path / "artifact"
    plan = deploy(n_ipu, precision="fp32", schedule=Order.POPART, n_micro_batches=8, recompute=True)
    write_artifact(plan, "popart", folder)
    popart = Recorder()
    execute(folder / "options.py", popart=popart)["session"](b"proto", "loss", "optimizer")
    calls = popart._calls
    assert calls["SessionOptions.enablePipelining"] is (n_ipu > 1)
    assert calls["SessionOptions.accumulationFactor"] == 8
    assert calls["SessionOptions.autoRecomputation"] == f"RecomputationType.{recomputed}"
    assert calls["TrainingSession"][0] == [b"proto"]
    assert "GraphTransformer.convertFloatsToHalfs" not in calls
