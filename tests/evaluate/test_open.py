"""Models and clusters by name, by file, and as values."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from autoauto.evaluate.open import load_flow, read_cluster
from autoauto.graph.load import load_graph
from autoauto.records.costs.profile import CompiledRange, ProgramStep
from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerGraph
from autoauto.records.plans.plan import Plan
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs
from autoauto.targets.clusters import builtin_clusters, load_cluster
from autoauto.targets.ipu.target import IpuTarget

END = {"recvGBps": 7, "recvIdleCycle": 50000, "sendGBps": 70, "sendIdleCycle": 3000}
START = {"recvGBps": 70, "recvIdleCycle": 3000, "sendGBps": 7, "sendIdleCycle": 50000}
PAIR: dict[str, Any] = {"clock": 1850000000, "memory": 894, "connection": [END, START]}


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))


def small_model() -> onnx.ModelProto:
    """Two products of 2,000 x 300 and 300 x 10."""
    shapes = {"w0": (2000, 300), "w1": (300, 10)}
    weights = [helper.make_tensor(name, TensorProto.FLOAT, shape, bytes(4 * shape[0] * shape[1]), raw=True)
               for name, shape in shapes.items()]  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w0"], ["h"]), helper.make_node("MatMul", ["h", "w1"], ["y"])],
        "two products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2000])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


class Clock:
    """A target that needs a cycle a layer and a sample."""

    version = "clock 1"

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        return (batch_size,)

    def depends_on(self, device: object, options: object) -> object:
        return options

    def compile(self, graph: object, layers: Any, device: object, options: Any) -> CompiledRange:
        return CompiledRange((ProgramStep("all", (layers.stop - layers.start) * options.batch_size, 1),), 0, {}, {})


def test_a_model_by_name_has_a_default_cluster_and_target() -> None:
    flow = load_flow("resnet50")
    assert (flow.graph.name, flow.cluster.name, flow.setting.precision) == ("resnet50", "bow-2000", Precision.FP16)
    assert flow.target == IpuTarget()
    assert not flow.traits.runs_plans


def test_a_model_may_be_a_graph_a_file_or_onnx(tmp_path: Path, chain: Callable[..., LayerGraph]) -> None:
    model = small_model()
    whole = model.SerializeToString()
    path = tmp_path / "two.onnx"
    onnx.save(model, path)
    assert load_flow(chain("abc")).graph == chain("abc")
    from_file, from_memory = load_flow(path).graph, load_flow(model).graph
    assert (from_file.name, from_memory.name) == ("two", "two products")
    assert from_file.layers == from_memory.layers
    assert from_file.content == from_memory.content
    assert model.SerializeToString() == whole  # the caller's model still has its weights


def test_a_cluster_may_be_a_file_a_dictionary_or_a_value(tmp_path: Path) -> None:
    bow = builtin_clusters()["bow-2000"]
    (tmp_path / "pair.json").write_text(json.dumps(PAIR))
    for cluster in (bow, str(bow), load_cluster("bow-2000"), "bow-2000"):
        assert load_flow("resnet50", cluster).cluster == load_cluster("bow-2000")
    for info in (PAIR, tmp_path / "pair.json"):
        pair = load_flow("resnet50", info).cluster
        assert pair.receive_links == load_cluster("seed-2-ipu").receive_links


def test_a_cluster_may_be_an_ipu_cluster_info(tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    path.write_text(json.dumps(PAIR))
    imported, ours = read_cluster(str(path)), read_cluster("seed-2-ipu")
    assert (imported.receive_links, imported.send_links) == (ours.receive_links, ours.send_links)
    assert [device.memory_bytes for device in imported.devices] == [device.memory_bytes for device in ours.devices]


def test_a_target_of_ones_own_measures(chain: Callable[..., LayerGraph]) -> None:
    flow = load_flow(chain("abcd"), "c600", Clock())
    trial = flow.evaluate(Knobs(n_ipu=1, memory_proportion=1.0, batch_size=8))
    assert isinstance(trial.measured, Plan)
    assert trial.measured.stages[0].forward_cycles == 4 * 8


@pytest.mark.parametrize(
    ("cluster", "target", "problem"),
    [
        ("bow-2000", "tpu", "a target is ipu, gpu, host or an object that compiles layers, got 'tpu'"),
        ("bow-2000", "host", "for --target host, bow-2000 is for 'ipu'"),
        (None, Clock(), "a target of your own needs a cluster"),
        ("no-such", "ipu", "no-such"),
        ({"clock": 1}, "ipu", "IPUClusterInfo"),
    ],
)
def test_clusters_and_targets_that_do_not_match_are_refused(cluster: Any, target: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        load_flow("resnet50", cluster, target)


def test_a_host_needs_a_file(chain: Callable[..., LayerGraph]) -> None:
    with pytest.raises(BadInput, match="the host runs a model's file"):
        load_flow(chain("ab"), None, "host")
    assert load_graph("resnet50").name == load_flow("resnet50", None, "host").graph.name
