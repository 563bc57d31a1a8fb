from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from autoauto.records.hardware import Device
from autoauto.records.layers import derivative
from autoauto.records.units import Precision
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.operator_cost import Family, OperatorContext
from autoauto.targets.ipu.operators import products
from autoauto.targets.ipu.operators.backward import Gradients, backward, cycles
from autoauto.targets.ipu.operators.elementwise import PASSES_GRADIENT_ON
from autoauto.targets.ipu.operators.registry import COST_RULES, forward_cost

Make = Callable[..., tuple[OperatorContext, Gradients]]

WITHOUT_PASS = PASSES_GRADIENT_ON | {"Expand", "Tile"}  # dY is passed on, or only summed


@pytest.fixture(scope="session")
def second(graph_of: Any, node: Any, device: Device, options: Any) -> Make:
    """A node that reads "x:..." through a layer with a parameter, and its backward pass."""

    def make(
        op: str, operands: list[Any], shape: Any, batch_size: int = 1, **attributes: Any
    ) -> tuple[OperatorContext, Gradients]:
        fed = [name for name in dict.fromkeys(operands) if isinstance(name, str) and name]
        sizes = {name: tuple(int(n) for n in name[2:].split("x")) for name in fed}
        before = [node("Add", [name, (sizes[name][-1] + 1,)], sizes[name], f"before {name}") for name in fed]
        read = [f"before {name}" if name in sizes else name for name in operands]
        graph = graph_of([*before, node(op, read, shape, op, **attributes)])
        context = OperatorContext(graph, graph.layers[-1], device, options(batch_size))
        return context, backward(context, derivative(graph))

    return make


@pytest.mark.parametrize(
    "op", [*(op for op in COST_RULES if "Integer" not in op and "QLinear" not in op), "NoSuchOperator"]
)
def test_every_operator_has_a_backward_pass_that_grows_with_the_batch(second: Make, example: Any, op: str) -> None:
    operands, shape, attributes = example(op)
    small, large = (second(op, operands, shape, n, **attributes)[1] for n in (1, 64))
    few, more = (sum(made.cycles for made in run.costs if made.family is not Family.REDUCE) for run in (small, large))
    assert few < more or op in WITHOUT_PASS
    assert all(name.endswith("_backward") for made in large.costs for name in made.codelets)


@pytest.mark.parametrize("op", [op for op in COST_RULES if "Integer" not in op and "QLinear" not in op])
def test_neither_temporaries_nor_code_of_any_operator_fall_when_the_batch_grows(
    second: Make, example: Any, op: str
) -> None:
    """So a batch that fits has no smaller one that does not; from two on, one sample may need no sum over samples."""
    operands, shape, attributes = example(op)
    made = [second(op, operands, shape, n, **attributes) for n in (2, 3, 4, 5, 8, 12, 17, 33, 65)]
    for passes in zip(*((forward_cost(context), *gradients.costs) for context, gradients in made), strict=True):
        for few, more in pairwise(passes):
            assert few.working_bytes <= more.working_bytes
            assert few.n_sources <= more.n_sources
            assert few.n_tiles <= more.n_tiles
            assert len(few.codelets) <= len(more.codelets)


def test_a_square_matrix_product_is_made_three_times(second: Make) -> None:
    context, (inputs, weights) = second("MatMul", ["x:1x512x512", (512, 512)], (1, 512, 512))
    forward = forward_cost(context)
    (to_input,), (to_weight, added) = inputs, weights
    assert to_input.cycles == to_weight.cycles == forward.cycles
    share = 512 * 512 // 1472 + 1
    assert added.cycles == kernels.elementwise(share, ("add",), 2, Precision.FP16)
    once = products.relayout_to_panels(context, context.layer.outputs[0]).cycles
    transposed = products.transpose_panels(context, context.layer.outputs[0]).cycles
    assert transposed > once
    assert cycles(inputs) == forward.cycles + once + transposed  # dY, and W transposed
    assert cycles(weights) == forward.cycles + 2 * transposed + added.cycles  # X and dY transposed


def test_dropout_makes_its_mask_again(second: Make) -> None:
    context, (inputs, weights) = second("Dropout", ["x:1x512x512"], (1, 512, 512))
    assert weights == ()
    forward = forward_cost(context)
    assert [made.cycles for made in inputs] == [forward.cycles]
    share = 512 * 512 // 1472 // 8 * 8 + 8
    mask = kernels.elementwise(share, ("dropout",), 1, Precision.FP16)
    assert forward.compute_cycles == mask + 3 * kernels.UNARY_LAUNCH_CYCLES


def test_a_first_layer_makes_no_gradient_of_the_inputs_of_the_model(
    graph_of: Any, node: Any, device: Device, options: Any
) -> None:
    graph = graph_of([node("MatMul", ["x:1x512x512", (512, 512)], (1, 512, 512))])
    context = OperatorContext(graph, graph.layers[0], device, options())
    inputs, weights = backward(context, derivative(graph))
    assert inputs == ()
    assert weights[0].cycles == forward_cost(context).cycles
    assert len(weights[0].relayouts) == 2  # dY and X


def test_two_activations_get_a_gradient_each(second: Make) -> None:
    _, (inputs, weights) = second("MatMul", ["x:1x12x128x64", "x:1x12x64x128"], (1, 12, 128, 128))
    assert len(inputs) == 2
    assert weights == ()


def test_a_convolution_of_one_tap_is_a_matrix_product(second: Make) -> None:
    _, conv = second("Conv", ["x:1x64x32x32", (128, 64, 1, 1)], (1, 128, 32, 32))
    _, dense = second("MatMul", ["x:1x1024x64", (64, 128)], (1, 1024, 128))
    assert [made.cycles for made in conv.costs] == [made.cycles for made in dense.costs]


def test_a_convolution_takes_about_three_times_its_forward_pass(second: Make) -> None:
    context, made = second("Conv", ["x:1x128x28x28", (128, 128, 3, 3)], (1, 128, 28, 28), batch_size=16)
    assert 1.5 < cycles(made.costs) / forward_cost(context).cycles < 2.5


def test_a_bias_gets_the_sum_of_all_gradients(second: Make) -> None:
    _, plain = second("Gemm", ["x:1x64", (64, 32)], (1, 32), batch_size=64)
    _, biased = second("Gemm", ["x:1x64", (64, 32), (32,)], (1, 32), batch_size=64)
    assert cycles(biased.inputs) == cycles(plain.inputs)
    assert [made.family for made in biased.weights[len(plain.weights) :]] == [Family.REDUCE, Family.ELEMENTWISE]


def test_a_chain_of_activations_takes_a_pass_each(second: Make) -> None:
    n = 1472 * 1728
    for op, loops in (("Relu", ("relu", "add")), ("Tanh", ("square", "add", "add")), ("Gelu", ("gelu", "add", "add"))):
        _, (inputs, weights) = second(op, [f"x:1x{n}"], (1, n))
        assert [made.cycles for made in inputs] == [kernels.elementwise(1728, loops, 2, Precision.FP16)]
        assert weights == ()


def test_an_addition_passes_its_gradient_on(second: Make) -> None:
    _, once = second("Add", ["x:1x64x64", (1,)], (1, 64, 64))
    _, twice = second("Add", ["x:1x64x64", "x:1x4096"], (1, 64, 64))
    _, to_row = second("Add", ["x:1x64x64", (64,)], (1, 64, 64))
    assert once.costs == ()
    assert [made.family for made in twice.inputs] == [Family.MOVE]  # the copy for the second
    assert [made.family for made in to_row.weights] == [Family.REDUCE, Family.ELEMENTWISE]


def test_an_embedding_adds_rows_to_its_table(second: Make) -> None:
    context, (inputs, weights) = second("Gather", [(30000, 768), "x:1x128"], (1, 128, 768))
    assert inputs == ()
    assert [made.cycles for made in weights] == [forward_cost(context).cycles]


def test_norm_and_softmax_read_their_rows_again(second: Make) -> None:
    context, norm = second("LayerNormalization", ["x:1x128x768", (768,), (768,)], (1, 128, 768))
    assert cycles(norm.inputs) > forward_cost(context).cycles
    assert [made.family for made in norm.weights] == [Family.ELEMENTWISE, Family.REDUCE, Family.ELEMENTWISE] * 2
    _, softmax = second("Softmax", ["x:1x12x128x128"], (1, 12, 128, 128), axis=-1)
    assert [made.family for made in softmax.inputs] == [Family.ELEMENTWISE, Family.REDUCE, Family.ELEMENTWISE]


def test_attention_is_the_products_and_the_softmax_it_is_made_of(second: Make) -> None:
    _, whole = second("Attention", ["x:1x12x128x64"] * 3, (1, 12, 128, 64))
    _, scores = second("MatMul", ["x:1x12x128x64", "x:1x12x64x128"], (1, 12, 128, 128))
    _, softmax = second("Softmax", ["x:1x12x128x128"], (1, 12, 128, 128))
    _, mixed = second("MatMul", ["x:1x12x128x128", "x:1x12x128x64"], (1, 12, 128, 64))
    parts = [made.cycles for gradients in (mixed, softmax, scores) for made in gradients.costs]
    assert [made.cycles for made in whole.inputs] == parts
