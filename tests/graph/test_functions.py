"""Functions in a model are counted before they are put where they are called."""

from collections.abc import Sequence
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from autoauto.graph.plain import flatten
from autoauto.records.errors import UnreadableModel

node = helper.make_node
SETS = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]


def function(name: str, nodes: Sequence[onnx.NodeProto]) -> onnx.FunctionProto:
    return helper.make_function("local", name, ["a"], ["b"], nodes, SETS)


def call(name: str, read: str = "a", written: str = "b", **attributes: Any) -> onnx.NodeProto:
    return node(name, [read], [written], domain="local", **attributes)


def model_of(functions: Sequence[onnx.FunctionProto], *nodes: onnx.NodeProto) -> onnx.ModelProto:
    first, last = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4])] for name in "xy")
    return helper.make_model(helper.make_graph(nodes, "g", first, last), opset_imports=SETS, functions=functions)


def calling_twice(n: int) -> onnx.ModelProto:
    """Functions f0 to f(n - 1), each of which calls the one before twice: 2**(n - 1) nodes."""
    functions = [function("f0", [node("Relu", ["a"], ["b"])])]
    functions += [function(f"f{i}", [call(f"f{i - 1}", "a", "c"), call(f"f{i - 1}", "c", "b")]) for i in range(1, n)]
    return model_of(functions, call(f"f{n - 1}", "x", "y"))


def in_bodies(n: int) -> onnx.ModelProto:
    """Functions that call each other in the branch of an If each: n - 1 bodies in each other."""
    other = helper.make_graph(
        [node("Relu", ["a"], ["e"])], "e", [], [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)]
    )
    functions = [function("f0", [node("Relu", ["a"], ["b"])])]
    for i in range(1, n):
        ends = [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)]
        taken = helper.make_graph([call(f"f{i - 1}", "a", "t")], "t", [], ends)
        nodes = [node("ReduceSum", ["a"], ["s"], keepdims=0), node("Cast", ["s"], ["c"], to=TensorProto.BOOL)]
        functions.append(function(f"f{i}", [*nodes, node("If", ["c"], ["b"], then_branch=taken, else_branch=other)]))
    return model_of(functions, call(f"f{n - 1}", "x", "y"))


def with_large_attribute() -> onnx.ModelProto:
    """A parameter of 64 kB in every one of 8,192 nodes."""
    model = calling_twice(14)
    values = helper.make_tensor("v", TensorProto.FLOAT, [16_000], [0.0] * 16_000)
    model.graph.node[0].attribute.append(helper.make_attribute("v", values))
    return model


def test_functions_that_call_each_other_are_put_in_place() -> None:
    assert len(flatten(calling_twice(11)).graph.node) == 1_024


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (calling_twice(41), "at most 20,000 nodes, got 1,099,511,627,776; export it without functions"),
        (calling_twice(99), "at most 20,000 nodes, got far more"),
        (model_of([function("f", [call("f")])], call("f", "x", "y")), "must not call itself, also not by others, 'f'"),
        (
            model_of([function("f", [call("g")]), function("g", [call("f")])], node("Relu", ["x"], ["y"])),
            "must not call itself",
        ),
        (model_of([function("f", [node("Relu", ["a"], ["b"])])] * 2, call("f", "x", "y")), "'f' is there twice"),
        (
            model_of(
                [function("f0", [node("Relu", ["a"], ["b"])])]
                + [function(f"f{i}", [call(f"f{i - 1}")]) for i in range(1, 150)],
                call("f149", "x", "y"),
            ),
            "at most 100 functions that call each other, got 150",
        ),
        (in_bodies(30), "at most 20 bodies in each other, got 29"),
        (with_large_attribute(), "at most 268,435,456 bytes"),
    ],
)
def test_what_would_be_too_large_or_without_end_is_one_line(model: onnx.ModelProto, message: str) -> None:
    with pytest.raises(UnreadableModel, match=message) as caught:
        flatten(model)
    assert "\n" not in str(caught.value)


def test_a_function_that_is_given_a_graph_is_refused() -> None:
    body = helper.make_graph([], "body", [], [])
    with pytest.raises(UnreadableModel, match="called without graphs, 'f' is called with one"):
        flatten(model_of([function("f", [node("Relu", ["a"], ["b"])])], call("f", "x", "y", body=body)))
