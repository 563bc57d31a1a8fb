"""Models that every runtime reads, and those that one refuses: files, layers, plans and whole searches."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoauto.evaluate.open import load_flow
from autoauto.graph.cut import onnx_source, with_weights
from autoauto.processes.channel import Channel
from autoauto.profile.cache import ProfileCache
from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import BadInput, Unsupported
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.units import GIB, Precision
from autoauto.report.reasons import why_not
from autoauto.space.objectives import Method
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status
from autoauto.study.run import SearchResult, nothing_fits
from autoauto.study.search import search_flow
from autoauto.targets.host.measure.client import Meter
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.openvino.session import OpenVinoSession
from autoauto.targets.host.target import HostTarget

FLOAT, BFLOAT16 = TensorProto.FLOAT, TensorProto.BFLOAT16
NO_RULE = r"Model wasn't fully converted\. No conversion rule found for operations: Det-17"
BY_ORT, BY_OPENVINO = "onnxruntime", "openvino"


def model_of(nodes: list[onnx.NodeProto], shape: list[Any], output: list[Any], **domains: int) -> onnx.ModelProto:
    """A model from "x" to "y" with a weight "w" of 4 times 4."""
    ends = [helper.make_tensor_value_info(*end) for end in (("x", FLOAT, shape), ("y", FLOAT, output))]
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "model", ends[:1], ends[1:], [weight])
    versions = [("", 17), *((domain.replace("_", "."), version) for domain, version in domains.items())]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in versions], ir_version=8)


def determinants() -> onnx.ModelProto:
    """OpenVINO has no Det."""
    product, det = helper.make_node("MatMul", ["x", "w"], ["h"], "product"), helper.make_node("Det", ["h"], ["y"], "d")
    return model_of([product, det], ["n", 4, 4], ["n"])


def short_sums(input: str = "x") -> list[onnx.NodeProto]:
    """ONNX Runtime adds no numbers of bf16 on a processor."""
    return [
        helper.make_node("Cast", [input], ["short"], "short", to=BFLOAT16),
        helper.make_node("Add", ["short", "short"], ["sum"], "sum"),
        helper.make_node("Cast", ["sum"], ["y"], "long", to=FLOAT),
    ]


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[onnx.ModelProto], Path]:
    def save(model: onnx.ModelProto) -> Path:
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        return path

    return save


def test_openvino_reads_what_is_cut_out_of_a_file_with_several_versions_of_operators(
    saved: Callable[[onnx.ModelProto], Path],
) -> None:
    openvino = pytest.importorskip("openvino")
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], ["n", 4], ["n", 4], ai_onnx_ml=2)
    source = onnx_source(str(saved(model)))
    sub_model = source.cut(source.graph, LayerRange(0, 1), 2)
    assert openvino.Core().read_model(sub_model.content).inputs[0].shape == (2, 4)
    assert with_weights(model, []) == model.SerializeToString()


@pytest.fixture
def opened(saved: Callable[[onnx.ModelProto], Path]) -> Iterator[Callable[[onnx.ModelProto], HostTarget]]:
    """Make targets of models, and close them at the end of the test."""
    pytest.importorskip("openvino")
    pytest.importorskip("onnxruntime")
    targets: list[HostTarget] = []

    def make(model: onnx.ModelProto) -> HostTarget:
        targets.append(HostTarget(onnx_source(str(saved(model)))))
        return targets[-1]

    yield make
    for target in targets:
        target.close()


DEVICE = Device("core", 1e9, GIB, 1, GIB)
CLUSTER = Cluster("host", "host", (DEVICE,) * 2, (Link(1e9, 1),) * 2, (Link(1e9, 1),) * 2)
OPTIONS = CompileOptions(2, Precision.FP32, session=OpenVinoSession())


@pytest.mark.slow
def test_layers_that_a_runtime_does_not_read_are_called_by_their_name_and_asked_for_once(
    opened: Callable[[onnx.ModelProto], HostTarget], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = opened(determinants())
    graph = target._source.graph  # type: ignore[attr-defined]
    for layers, name in ((LayerRange(1, 2), r"layer 'd' \(Det\)"), (LayerRange(0, 2), "this model")):
        with pytest.raises(Unsupported, match=f"^OpenVINO does not read {name}: {NO_RULE}$"):
            target.compile(graph, layers, DEVICE, OPTIONS)
    monkeypatch.setattr(Meter, "measure", None)
    with pytest.raises(Unsupported, match=f"^OpenVINO does not read this model: {NO_RULE}$"):
        target.compile(graph, LayerRange(0, 2), DEVICE, replace(OPTIONS, session=OpenVinoSession(2)))


@pytest.mark.slow
def test_a_model_that_ends_the_process_of_a_runtime_is_one_that_it_does_not_run(
    opened: Callable[[onnx.ModelProto], HostTarget], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = opened(determinants())
    monkeypatch.setattr("autoauto.targets.host.measure.client.serve", _ends_itself)
    reason = "^OpenVINO: this model ends the process that runs it: the meter ended without a message, exit code 7$"
    with pytest.raises(Unsupported, match=reason):
        target.compile(target._source.graph, LayerRange(0, 2), DEVICE, OPTIONS)  # type: ignore[attr-defined]


def _ends_itself(connection: Channel, *_: object) -> None:
    connection.send(None)
    connection.recv()
    os._exit(7)


def plan_of(*starts: int) -> Plan:
    ranges = map(LayerRange, starts, starts[1:])
    return Plan(tuple(Stage(layers, number, 9, 0, 0, 0, {}, 1) for number, layers in enumerate(ranges)))


@pytest.mark.slow
def test_a_stage_that_a_runtime_does_not_read_ends_the_run_with_its_reason(
    opened: Callable[[onnx.ModelProto], HostTarget],
) -> None:
    target = opened(determinants())
    graph = target._source.graph  # type: ignore[attr-defined]
    with pytest.raises(Unsupported, match=rf"^OpenVINO does not read layers \[1, 2\): {NO_RULE}$") as failure:
        target.run(graph, plan_of(0, 1, 2), CLUSTER, OPTIONS, 1)
    assert failure.value.layers == LayerRange(1, 2)
    run = target.run(graph, plan_of(0, 1, 2), CLUSTER, replace(OPTIONS, session=OnnxRuntimeSession()), 1)
    assert run.period_cycles > 0


@pytest.mark.slow
def test_outputs_in_another_format_are_compared_with_the_first_runtime_that_runs_the_model(
    opened: Callable[[onnx.ModelProto], HostTarget],
) -> None:
    target = opened(model_of(short_sums(), ["n", 4], ["n", 4]))
    if Precision.BF16 not in target.precisions():
        pytest.skip("no runtime computes in bf16 here")
    graph = target._source.graph  # type: ignore[attr-defined]
    options = replace(OPTIONS, session=OpenVinoSession(precision=Precision.BF16))
    assert target.run(graph, plan_of(0, len(graph)), CLUSTER, options, 1).output_error == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("method", [Method.GUIDED, Method.GRID_BISECT])
@pytest.mark.parametrize(("refusing", "why"), [(BY_OPENVINO, NO_RULE), (BY_ORT, "Could not find an implementation")])
def test_a_search_goes_on_with_the_runtime_that_runs_the_model(
    refusing: str, why: str, method: Method, saved: Callable[[onnx.ModelProto], Path], tmp_path: Path
) -> None:
    model = determinants() if refusing == BY_OPENVINO else model_of(short_sums(), ["n", 4], ["n", 4])
    result = searched(saved(model), tmp_path, method)
    assert result.best is not None
    assert result.best.knobs.session.runtime not in (None, refusing)
    refused = [trial for knobs, trial in result.trials.items() if knobs.session.runtime == refusing]
    assert refused
    assert {(trial.status, trial.state) for trial in refused} == {(Status.UNSUPPORTED, "PRUNED")}
    assert all(re.search(f"does not read .*{why}", trial.reason) for trial in refused)
    assert result.summary is not None
    assert any(re.search(why, why_not(cell, result.summary)) for cell in result.summary.cells)


@pytest.mark.slow
def test_where_no_runtime_runs_the_model_the_error_has_the_reason_of_each(
    saved: Callable[[onnx.ModelProto], Path], tmp_path: Path
) -> None:
    nodes = [helper.make_node("Det", ["x"], ["d"], "d"), *short_sums("d")]
    error = nothing_fits(searched(saved(model_of(nodes, ["n", 4, 4], ["n"])), tmp_path, Method.GUIDED))
    assert isinstance(error, BadInput)
    for reason in (f"OpenVINO does not read this model: {NO_RULE}", "ONNX Runtime does not read this model: .*'sum'"):
        assert re.match(f"no runtime of the search runs the model: .*{reason}", str(error))


def searched(path: Path, folder: Path, method: Method) -> SearchResult:
    """A search of one device and of two, in both runtimes."""
    pytest.importorskip("openvino")
    pytest.importorskip("onnxruntime")
    flow = load_flow(path, CLUSTER, "host")
    flow = flow.with_setting(cache=ProfileCache(folder / "cache.db"))
    with flow.target:  # type: ignore[attr-defined]
        space = SearchSpace((1,), batch_size=(1, 4), replicas=(1, 2), runtime=(BY_ORT, BY_OPENVINO))
        return search_flow(flow, space, method=method, n_repeats=1)
