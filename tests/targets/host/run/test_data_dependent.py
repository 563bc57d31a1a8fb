"""Outputs whose lengths depend on data, in real processes of every runtime."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from autoauto.graph.cut import onnx_source
from autoauto.records.costs.options import SessionOptions
from autoauto.records.layers import LayerRange
from autoauto.records.units import MIB
from autoauto.targets.host.machine import cores_of
from autoauto.targets.host.run.pipelines import Pipelines
from autoauto.targets.host.run.stage import StageResources
from autoauto.targets.host.runtimes.registry import SESSIONS
from tests.graph.conftest import make

pytestmark = pytest.mark.slow
ENOUGH = 256 * MIB
NMS = "NonMaxSuppression boxes scores most overlap score > picked"
CONSTANTS = {
    "most": np.array([4]), "overlap": np.array([0.5], np.float32), "score": np.array([0.4], np.float32),
    "flat": np.array([-1]), "zero": np.array(0, np.float32),
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "NonZero": ("Relu x > h; NonZero h > y; Neg h > z", {"x": ["n", 4]}, "z y"),
    "Unique": ("Round x > h; Unique h > y", {"x": ["n", 4]}, "y"),
    "Compress": ("Greater x zero > g; Relu x > h; Reshape g flat > c; Compress h c > y", {"x": ["n", 4]}, "y"),
    "NonMaxSuppression": (
        f"Abs corners > boxes; Sigmoid raw > scores; {NMS}",
        {"corners": ["n", 9, 4], "raw": ["n", 2, 9]},
        "picked scores",
    ),
}


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("name", MODELS)
def test_every_micro_batch_has_the_lengths_of_its_own(name: str, runtime: str, tmp_path: Path) -> None:
    pytest.importorskip(runtime)
    program, inputs, outputs = MODELS[name]
    path = tmp_path / "model.onnx"
    read = {word for part in program.split(";") for word in part.split(">")[0].split()}
    onnx.save(make(program, inputs, outputs, {each: CONSTANTS[each] for each in read & {*CONSTANTS}}), path)
    source = onnx_source(str(path))
    graph, batch_size = source.graph, 1 if source.graph.fixed_batch else 3
    ports = source.carried(graph, 0, batch_size)
    rng = np.random.default_rng(0)
    sent = [{port.name: rng.standard_normal(port.shape, np.float32) + shift for port in ports} for shift in (0, 1, -9)]
    cuts = (0, 1, len(graph))
    stages = [LayerRange(*layers) for layers in pairwise(cuts)]
    resources = [[StageResources(cores_of(0, 1), SessionOptions(1, SESSIONS[runtime]()), ENOUGH) for _ in stages]]
    received: list[dict[str, Any]] = []
    with Pipelines(graph, source, stages, batch_size, resources) as pipelines:
        pipelines.stream(
            iter(sent * 3), lambda _, __, batch: received.append({key: each.copy() for key, each in batch.items()})
        )
    onnxruntime = pytest.importorskip("onnxruntime")
    whole = source.cut(graph, LayerRange(0, len(graph)), batch_size).content
    session = onnxruntime.InferenceSession(whole, providers=["CPUExecutionProvider"])
    assert len(received) == 9
    for batch, got in zip(sent * 3, received, strict=True):
        for output, expected in zip(outputs.split(), session.run(None, batch), strict=True):
            assert got[output].shape == expected.shape
            np.testing.assert_allclose(got[output], expected, rtol=1e-5, atol=1e-6)
    bounded = [port.name for port in source.carried(graph, len(graph), batch_size) if port.data_dependent]
    assert len({got[bounded[0]].shape for got in received}) > 1
