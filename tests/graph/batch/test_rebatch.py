from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autoauto.graph.batch.rebatch import rebatch, resolve_batch
from autoauto.graph.inputs.batch_axes import Batch
from autoauto.graph.load import load_graph
from autoauto.graph.plain import flatten
from autoauto.records.errors import BadInput
from autoauto.records.installation import builtin_models

DEEPER_OR_LONGER = {
    *("bert-base-256", "bert-base-384-mlm", "bert-base-512-mlm"),
    *("bert-large-128", "bert-large-128-mlm", "bert-large-384-mlm", "bert-large-512-mlm"),
}
"""Built-in models with the nodes of another, only more often or for more tokens."""

LIGHT = "alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet vgg19 zfnet512"


def randomise(model: onnx.ModelProto) -> onnx.ModelProto:
    """Random weights for a light model, and what enters its last softmax as output: samples give different results."""
    generator = np.random.default_rng(0)
    sizes = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights, nodes = [], []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            nodes.append(node)
            continue
        shape = tuple(int(length) for length in sizes[node.input[0]])
        scale = prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.1
        value = generator.standard_normal(shape, np.float32) * np.float32(scale)
        weights.append(numpy_helper.from_array(value if len(shape) > 1 else np.abs(value) + 1, node.output[0]))
    assert nodes[-1].op_type == "Softmax"
    output = onnx.helper.make_tensor_value_info(nodes[-1].input[0], onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph(
        nodes[:-1], "random", model.graph.input, [output], [*model.graph.initializer, *weights]
    )
    return onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=4)


@pytest.mark.parametrize("name", ["shufflenet", "squeezenet", pytest.param("resnet50", marks=pytest.mark.slow)])
def test_a_real_file_that_fixes_the_batch(name: str, light: Callable[[str], Any], check: Callable[..., None]) -> None:
    model = randomise(onnx.load(light(name)))
    check(flatten(model), 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT.split())
def test_every_light_model_runs_at_batch_three(name: str, light: Callable[[str], Any], check: Any) -> None:
    check(flatten(onnx.load(light(name))), differ=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*builtin_models()} - DEEPER_OR_LONGER))
def test_every_builtin_model_runs_at_batch_one_and_two(
    name: str, builtin: Callable[[str], onnx.ModelProto], execute: Callable[..., Any]
) -> None:
    model = builtin(name)
    for batch_size in (1, 2):
        feeds = {
            entry.name: np.ones(
                [dim.dim_value or batch_size for dim in entry.type.tensor_type.shape.dim],
                np.int64 if entry.type.tensor_type.elem_type == onnx.TensorProto.INT64 else np.float32,
            )
            for entry in model.graph.input
        }
        results, again = execute(model, feeds), execute(rebatch(model, batch_size), feeds)
        assert all(np.isfinite(result).all() and len(result) == batch_size for result in results)
        assert all(np.array_equal(a, b) for a, b in zip(results, again, strict=True))


def test_the_reshape_of_the_light_resnet_grows(light: Callable[[str], Any]) -> None:
    shapes = {
        (node.input[1], tuple(numpy_helper.to_array(tensor)))
        for model in [rebatch(onnx.load(light("resnet50")), 5)]
        for node in model.graph.node
        for tensor in model.graph.initializer
        if node.op_type == "Reshape" and tensor.name == node.input[1]
    }
    assert [shape for _, shape in shapes] == [(5, 2048)]


def test_an_open_batch_needs_only_the_number(make: Any) -> None:
    model = make("Relu x > y", {"x": ["n", 3]}, "y")
    assert resolve_batch(model).batch == Batch((("x", 0),), None)
    batched = rebatch(model, 6)
    ends = [*batched.graph.input, *batched.graph.output]
    assert [[dim.dim_value for dim in end.type.tensor_type.shape.dim] for end in ends] == [[6, 3], [6, 3]]
    assert resolve_batch(model).own.model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1


def test_its_own_batch_needs_no_proof(make: Any) -> None:
    model = make("Softmax x > y axis=0", {"x": [4, 3]}, "y")
    assert rebatch(model, 4).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 4
    with pytest.raises(BadInput, match="works along the batch axis"):
        rebatch(model, 2)
    with pytest.raises(BadInput, match="at least 1, got 0"):
        rebatch(model, 0)


def test_rebatching_twice_is_rebatching_once(make: Any) -> None:
    model = make("Reshape x s > r; Softmax r > y", {"x": [1, 2, 3]}, "y", {"s": [2, 3]})
    twice = rebatch(rebatch(model, 2), 6)
    onnx.checker.check_model(twice, full_check=True)
    assert [tuple(numpy_helper.to_array(tensor)) for tensor in twice.graph.initializer] == [(2, 3), (12, 3)]


def test_open_inputs_of_a_fixed_file_give_the_same_layers_at_any_batch(make: Any, save: Any) -> None:
    constants = {"s": [1, 24], "w": np.ones((24, 2), np.float32), "c": np.ones((1, 2), np.float32)}
    program = "Reshape x s > r; MatMul r w > m; Concat m c > y axis=1"
    graph = load_graph(save(make(program, {"x": ["n", 4, 6]}, "y", constants)))
    assert [layer.op for layer in graph.layers] == ["MatMul", "Tile", "Concat"]
    assert graph.fixed_batch is None


def test_inputs_of_another_first_length_are_shared(make: Any, check: Callable[..., None]) -> None:
    model = make("Add x z > y", {"x": [1, 3], "z": [3]}, "y")
    assert resolve_batch(model).batch == Batch((("x", 0),), 1)
    assert rebatch(model, 2).graph.input[1].type.tensor_type.shape.dim[0].dim_value == 3


def test_another_open_axis_is_one_clear_line(make: Any, save: Callable[..., str]) -> None:
    path = save(make("Relu x > y", {"x": ["batch", "sequence", 3]}, "y"))
    with pytest.raises(BadInput, match=r"'x' \[batch, sequence, 3\]; .*; try --shape sequence=128"):
        load_graph(path)


def test_an_input_without_axes_is_refused(make: Any) -> None:
    model = make("Relu x > y", {"x": [1]}, "y")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(BadInput, match="number of axes of input 'x' is not in the file; try --shape x="):
        rebatch(model, 2)


def test_results_that_interleave_samples_are_refused(make: Any) -> None:
    model = make("Transpose x > t; Reshape t s > y", {"x": [1, 4]}, "y", {"s": [2, 2]})
    with pytest.raises(BadInput, match="output 'y' interleaves samples"):
        rebatch(model, 2)


def test_a_constant_that_two_nodes_read_is_copied_for_each(make: Any, check: Callable[..., None]) -> None:
    nodes = "Concat c x > j axis=1; Concat c j > y axis=1"
    check(make(nodes, {"x": [1, 2, 3]}, "y", {"c": np.ones((1, 1, 3), np.float32)}))
