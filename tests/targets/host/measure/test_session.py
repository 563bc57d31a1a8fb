"""Sessions: their memory by category, tensors without copies, and failures for lack of memory."""

import os
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoauto.records.costs.options import SessionOptions
from autoauto.records.errors import OutOfMemory
from autoauto.records.layers import LayerRange, Port, SubModel
from autoauto.records.units import MIB
from autoauto.targets.host.measure import session
from autoauto.targets.host.measure.examples import example
from autoauto.targets.host.measure.session import OpenModel, idle_model
from autoauto.targets.host.memory_budget import ENVIRONMENT, data_bytes, shared_array
from autoauto.targets.host.processes import Workers
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.registry import runtime_named
from autoauto.targets.host.transport.shared_memory import SubModelFile

Models = Callable[[int, int], Any]


def load_and_measure(connection: Connection, file: SubModelFile, sub_model: SubModel, arena: bool) -> None:
    loaded = OpenModel(file, sub_model.inputs, sub_model.outputs, SessionOptions(1, OnnxRuntimeSession()), arena)
    connection.send((loaded.parameter_bytes, loaded.peak_bytes()))
    connection.recv()


def measured(sub_model: SubModel, arena: bool = True) -> Any:
    """Parameter and peak bytes of a sub-model, in a worker with the environment of workers."""
    file = SubModelFile(sub_model.content)
    with Workers(ENVIRONMENT) as workers:
        workers.start("session", load_and_measure, file, replace(sub_model, content=b""), arena)
        result = workers.receive(0)
    file.close()
    return result


def test_parameters_are_the_weights_and_a_little_more(residual_model: Models) -> None:
    model = residual_model(4, 1024)  # 4 x 4 MiB
    parameter_bytes, _ = measured(model.source.cut(model.graph, LayerRange(0, 9), 1))
    assert 16 * MIB <= parameter_bytes <= 20 * MIB


@pytest.mark.parametrize("arena", [False, True])
def test_the_peak_is_the_memory_of_tensors_between_layers_without_inputs_and_outputs(
    arena: bool, residual_model: Models
) -> None:
    model = residual_model(2, 256)
    tensor_bytes = 16 * MIB  # 16384 x 256 floats, as the input and the output have
    _, peak = measured(model.source.cut(model.graph, LayerRange(0, 5), 16_384), arena)
    assert tensor_bytes <= peak + MIB  # at least one tensor between layers
    assert peak <= 2 * tensor_bytes + 2 * MIB


def test_a_run_reads_its_inputs_and_writes_its_outputs_without_copies(residual_model: Models) -> None:
    model = residual_model(1, 8)
    sub_model = model.source.cut(model.graph, LayerRange(0, 3), 2)
    file = SubModelFile(sub_model.content)
    loaded = OpenModel(file, sub_model.inputs, sub_model.outputs, SessionOptions(1, OnnxRuntimeSession()))
    file.close()
    inputs, outputs = {"x": example(sub_model.inputs[0])}, {"y": shared_array(sub_model.outputs[0])}
    loaded.model.run(inputs, outputs)
    np.testing.assert_allclose(outputs["y"], model.outputs(inputs, 2)[0], rtol=1e-5)
    inputs["x"][...] = 0  # the next run reads the same array
    loaded.model.run(inputs, outputs)
    assert not outputs["y"].any()


def test_the_file_of_a_sub_model_has_no_name() -> None:
    file = SubModelFile(b"model")
    assert Path(file.path).read_bytes() == b"model"
    assert "(deleted)" in os.readlink(file.path)
    file.close()


def test_example_inputs_are_the_same_each_time_and_do_not_count_as_private_memory() -> None:
    port = Port("x", (4, 2**20), "float32")
    before = data_bytes()
    array = example(port)
    assert data_bytes() - before < 8 * MIB  # of 16
    assert array.std() > 0.9
    np.testing.assert_array_equal(array, example(port))
    assert example(Port("scalar", (), "float64")).shape == ()
    assert example(Port("nothing", (0, 3), "float32")).shape == (0, 3)
    assert not example(Port("index", (3,), "int64")).any()
    assert example(Port("mask", (3,), "bool")).all()


class Fake(OpenModel):
    def __init__(self) -> None:
        self.runtime = runtime_named("onnxruntime")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("std::bad_alloc"), RuntimeError("Failed to allocate 8")])
def test_a_failed_allocation_while_a_stage_runs_is_out_of_memory(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    limits: list[int] = []
    monkeypatch.setattr(session, "set_limit", limits.append)
    with pytest.raises(OutOfMemory) as failure, session.memory_errors(Fake(), LayerRange(2, 5), {"parameter": 7}):
        raise error
    assert failure.value.layers == LayerRange(2, 5)
    assert len(limits) == 1  # lifted, so that the worker can report it


def test_other_failures_are_raised_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "set_limit", lambda _: None)
    with pytest.raises(ValueError, match="no such input"), session.memory_errors(Fake(), LayerRange(0, 1), {}):
        raise ValueError("no such input")


def test_the_idle_model_copies_its_input() -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the host target runs ONNX Runtime")
    model = idle_model()
    idle = runtime.InferenceSession(model.content, providers=["CPUExecutionProvider"])
    x = np.array([3], model.inputs[0].dtype)
    assert idle.run([model.outputs[0].name], {model.inputs[0].name: x}) == [x]
