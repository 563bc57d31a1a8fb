from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autoauto.graph.load import load_graph
from autoauto.records.costs.options import CompileOptions
from autoauto.records.layers import LayerRange
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.operator_cost import (
    CompilerSettings,
    Family,
    OperatorContext,
    OperatorCost,
    Relayout,
    together,
)
from autoauto.targets.ipu.operators.registry import forward_cost
from autoauto.targets.ipu.target import IpuTarget, operator_costs

MakeContext = Callable[..., OperatorContext]


def test_together_adds_time_and_joins_the_rest() -> None:
    first = OperatorCost(Family.PRODUCT, 10, 20, ("a", "b"), 5, 1, 100, relayouts=(Relayout(0, 7),))
    second = OperatorCost(Family.ELEMENTWISE, 1, 2, ("b", "c"), 8, 2, 50, within_bound=False)
    both = together(first, second)
    assert both == OperatorCost(
        Family.PRODUCT, 11, 22, ("a", "b", "c"), 8, 3, 100, relayouts=(Relayout(0, 7),), within_bound=False
    )
    assert both.cycles == 33


def test_a_context_has_operands_at_the_batch_size(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Conv", ["x:1x3x8x8", (4, 3, 1, 1), ""], (1, 4, 8, 8)), batch_size=5)
    assert context.shape(0) == (5, 3, 8, 8)
    assert context.shape(1) == (4, 3, 1, 1)
    assert context.shape(2) == context.shape(9) == ()
    assert context.tensor(2) is None
    assert context.out_shape == (5, 4, 8, 8)
    assert context.out_bytes == 2 * context.n_out == 2 * 5 * 4 * 8 * 8
    assert [context.is_activation(index) for index in context.present] == [True, False]
    assert context.bound_bytes == 638976 * 0.6


def test_attributes_have_defaults(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Op", ["x:1x3"], (1, 3), axis=-1, axes=(1, 2), mode="linear", scale=1.5))
    assert (context.axis(0, 4), context.integer("scale", 7), context.integers("axes", ()), context.text("mode")) == (
        3,
        7,
        (1, 2),
        "linear",
    )
    assert (context.axis(0, 0), context.integers("none", (9,)), context.integers("axis", ()), context.text("none")) == (
        0,
        (9,),
        (-1,),
        "",
    )


def cycles(context: OperatorContext, settings: CompilerSettings) -> int:
    return forward_cost(OperatorContext(context.graph, context.layer, context.device, context.options, settings)).cycles


def test_settings_are_part_of_the_version() -> None:
    versions = [
        IpuTarget(s).version
        for s in (
            CompilerSettings(),
            CompilerSettings(Precision.FP32),
            CompilerSettings(float_operators=frozenset({"Gelu"})),
            CompilerSettings(erf_gelu=True),
        )
    ]
    assert len(set(versions)) == 4
    assert versions[0] == IpuTarget().version


def test_single_precision_sums_cost_more_in_products_alone(context_of: MakeContext, node: Any) -> None:
    single = CompilerSettings(partials=Precision.FP32)
    product = context_of(node("MatMul", ["x:1x512x768", (768, 768)], (1, 512, 768)))
    other = context_of(node("Relu", ["x:1x512x768"], (1, 512, 768)))
    assert cycles(product, single) > 1.3 * cycles(product, CompilerSettings())
    assert cycles(other, single) == cycles(other, CompilerSettings())


def test_gelu_by_the_error_function_takes_16_cycles_of_a_worker_an_element(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Gelu", ["x:1x2048x768"], (1, 2048, 768)))
    elements_a_tile = 2048 * 768 / context.n_tiles
    exact, by_tanh = (cycles(context, CompilerSettings(erf_gelu=erf)) for erf in (True, False))
    assert 16 * elements_a_tile < exact < 18 * elements_a_tile
    assert by_tanh < exact / 2
    other = context_of(node("Relu", ["x:1x2048x768"], (1, 2048, 768)))
    assert cycles(other, CompilerSettings(erf_gelu=True)) == cycles(other, CompilerSettings())


def in_training(context: OperatorContext) -> OperatorContext:
    return context._replace(options=replace(context.options, training=True))


def test_rows_that_do_not_fill_words_move_element_by_element_in_training(context_of: MakeContext, node: Any) -> None:
    def extra(tokens: int, precision: Precision = Precision.FP16) -> int:
        keys = f"x:1x12x64x{tokens}"
        product = node("MatMul", [f"x:1x12x{tokens}x64", keys], (1, 12, tokens, tokens))
        context = context_of(product, batch_size=4, precision=precision)
        return forward_cost(in_training(context)).cycles - forward_cost(context).cycles

    assert (extra(196), extra(198)) == (0, 0)
    assert extra(197) == 30 * -(-4 * 12 * 197 * 197 // 1472) + 288
    assert extra(197, Precision.FP32) == 0  # a word each


@pytest.mark.parametrize(
    "layer",
    [
        ("MatMul", ["x:1x197x197", (197, 197)], (1, 197, 197)),
        ("MatMul", ["x:1x12x197x197", (12, 197, 197)], (1, 12, 197, 197)),
        ("Conv", ["x:1x96x14x14", (96, 3, 3, 3)], (1, 96, 14, 14), 32),
    ],
)
def test_rows_of_channels_are_not_known_to_need_whole_words(layer: Any, context_of: MakeContext, node: Any) -> None:
    op, operands, shape, *group = layer
    context = context_of(node(op, operands, shape, **({"group": group[0], "kernel_shape": (3, 3)} if group else {})))
    assert forward_cost(in_training(context)).cycles == forward_cost(context).cycles


def test_one_head_of_one_sample_moves_as_many_do(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("MatMul", ["x:1x197x64", "x:1x64x197"], (1, 197, 197)))
    assert forward_cost(in_training(context)).cycles > forward_cost(context).cycles


def test_float_operators_run_between_casts(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Gelu", ["x:1x2048x768"], (1, 2048, 768)), batch_size=4)
    single = context_of(node("Gelu", ["x:1x2048x768"], (1, 2048, 768)), batch_size=4, precision=Precision.FP32)
    between = cycles(context, CompilerSettings(float_operators=frozenset({"Gelu"})))
    assert between > cycles(single, CompilerSettings()) > cycles(context, CompilerSettings())
    assert cycles(single, CompilerSettings(float_operators=frozenset({"Gelu"}))) == cycles(single, CompilerSettings())
    assert cycles(context, CompilerSettings(float_operators=frozenset({"Softmax"}))) == cycles(
        context, CompilerSettings()
    )


@pytest.mark.parametrize("model", ["resnet50", "gpt2-small", "vit-b16-train"])
@pytest.mark.parametrize("training", [False, True])
def test_layers_of_a_range_cost_what_each_costs_in_it(model: str, training: bool) -> None:
    graph, options = load_graph(model), CompileOptions(3, Precision.FP16, training)
    device = load_cluster("bow-2000").devices[0]
    costs = operator_costs(graph, LayerRange(0, len(graph)), device, options)
    assert costs == [forward_cost(OperatorContext(graph, layer, device, options)) for layer in graph.layers]
