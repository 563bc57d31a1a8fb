"""Windows that are longer than what they read: refused as ONNX Runtime refuses them, and where nothing is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoauto.graph.load import load_graph
from autoauto.graph.shapes.trace import trace
from autoauto.graph.shapes.windows import WindowTooLong
from autoauto.records.model_inputs import read_model_inputs


def weight(*shape: int) -> Any:
    return np.ones(shape, np.float32)


SIGNAL, IMAGE = [1, 1, 8], [1, 1, 4, 4]
CONV = {"w": weight(1, 1, 16)}
REFUSED: dict[str, tuple[Any, ...]] = {
    "convolution": ("Conv x w > y", SIGNAL, CONV),
    "convolution whose steps are as long": ("Conv x w > y strides=16,", SIGNAL, CONV),
    "padding too short by one": ("Conv x w > y pads=4,3", SIGNAL, CONV),
    "dilation": ("Conv x w > y dilations=4,", SIGNAL, {"w": weight(1, 1, 3)}),
    "nothing left": ("ConvTranspose x w > y pads=5,5", SIGNAL, {"w": weight(1, 1, 3)}),
    "maximum": ("MaxPool x > y kernel_shape=8,8", IMAGE, {}),
    "mean": ("AveragePool x > y kernel_shape=8,8", IMAGE, {}),
    "norm": ("LpPool x > y kernel_shape=8,8", IMAGE, {}),
    "negative pads": ("Pad x p > y", SIGNAL, {"p": [0, 0, -5, 0, 0, -4]}),
    "reflection": ("Pad x p > y mode='reflect'", SIGNAL, {"p": [0, 0, 8, 0, 0, 0]}),
    "reflection of what is left": ("Pad x p > y mode='reflect'", SIGNAL, {"p": [0, 0, -1, 0, 0, 7]}),
    "frames": ("STFT x s w > y", [1, 8, 1], {"s": np.array(4), "w": weight(16)}),
    "transform": ("DFT x n > y axis=1", [1, 8, 1], {"n": np.array(0)}),
    "fused": ("com.microsoft.FusedConv x w > y", SIGNAL, CONV),
    "unfolded": ("com.microsoft.UnfoldTensor x > y dim=2 size=9", SIGNAL, {}),
}
COMPUTED: dict[str, tuple[Any, ...]] = {
    "same padding": ("Conv x w > y auto_pad='SAME_UPPER'", SIGNAL, CONV),
    "padding that suffices": ("Conv x w > y pads=4,4", SIGNAL, CONV),
    "a pool whose steps are as long": ("MaxPool x > y kernel_shape=8,8 strides=8,8", IMAGE, {}),
    "a pool in the mode ceil": ("AveragePool x > y kernel_shape=6,6 strides=3,3 ceil_mode=1", IMAGE, {}),
    "longest reflection": ("Pad x p > y mode='reflect'", SIGNAL, {"p": [0, 0, 7, 0, 0, 7]}),
    "edge": ("Pad x p > y mode='edge'", SIGNAL, {"p": [0, 0, 20, 0, 0, 0]}),
    "longer transform": ("DFT x n > y axis=1", [1, 8, 1], {"n": np.array(20)}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_onnx_runtime_refuses_is_refused(name: str, make: Any, execute: Any, sample: Any) -> None:
    nodes, shape, constants = REFUSED[name]
    model = make(nodes, {"x": shape}, "y", constants)
    with pytest.raises(WindowTooLong, match=r"node '.*_0'.*; try a longer input with --shape$") as caught:
        trace(model)
    assert "\n" not in str(caught.value)
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        execute(model, sample(model, np.random.default_rng(0)))


@pytest.mark.parametrize("name", COMPUTED)
def test_what_onnx_runtime_computes_has_its_shape(name: str, make: Any, execute: Any, sample: Any) -> None:
    nodes, shape, constants = COMPUTED[name]
    model = make(nodes, {"x": shape}, "y", constants)
    (result,) = execute(model, sample(model, np.random.default_rng(0)))
    assert trace(model)["y"].shape == result.shape


@pytest.mark.parametrize("nodes", ["MaxPool x > y kernel_shape=5,5", "Pad x p > y"])
def test_a_window_or_pad_that_leaves_nothing_is_refused(nodes: str, make: Any) -> None:
    """ONNX Runtime computes a tensor without elements."""
    constants = {"p": [0, 0, -4, 0, 0, 0, 0, 0]} if "Pad" in nodes else {}
    with pytest.raises(WindowTooLong):
        trace(make(nodes, {"x": IMAGE}, "y", constants))


def test_other_tensors_without_elements_are_said(make: Any) -> None:
    model = make("Slice x a b c > e; Relu e > y", {"x": ["batch", 4]}, "y", {"a": [3], "b": [2], "c": [1]})
    assert "tensors without elements: 'e' [1, 0] of node 'Slice_0' (Slice)" in load_graph(model).notes


def test_a_branch_that_data_may_choose_is_checked(make: Any) -> None:
    from onnx import TensorProto, helper

    def branch(*nodes: Any) -> Any:
        return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)])

    model = make(
        "Relu x > r; ReduceMax x > m keepdims=0; Greater m z > c; Identity r > y",
        {"x": SIGNAL},
        "y",
        CONV | {"z": np.array(0, np.float32)},
    )
    short = branch(helper.make_node("Conv", ["r", "w"], ["out"], "inner"))
    whole = branch(helper.make_node("Identity", ["r"], ["out"], "other"))
    model.graph.node[-1].CopyFrom(helper.make_node("If", ["c"], ["y"], "choice", then_branch=short, else_branch=whole))
    with pytest.raises(WindowTooLong, match=r"node 'inner' \(Conv\) has windows of \[16\] and reads \[8\]"):
        load_graph(model)


def test_lengths_to_try_are_long_enough_for_windows(make: Any) -> None:
    model = make("Conv x w > y", {"x": ["batch", 1, "samples"]}, "y", {"w": weight(1, 1, 20_000)})
    with pytest.raises(Exception, match="try --shape samples=32000"):
        load_graph(model)
    assert load_graph(model, read_model_inputs(["samples=32000"])).tensors[-1].shape[-1] == 12_001
