from collections.abc import Callable
from typing import Any

from autoauto.records.hardware import Device
from autoauto.records.layers import derivative
from autoauto.targets.ipu.operator_cost import Family, OperatorContext, OperatorCost, Relayout
from autoauto.targets.ipu.operators.backward import Gradients, cycles, for_operand, join, summed
from autoauto.targets.ipu.operators.elementwise import one_pass

MakeContext = Callable[..., OperatorContext]

COST = OperatorCost(Family.MOVE, 2, 5, (), 1, relayouts=(Relayout(0, 10), Relayout(1, 100)))


def test_cycles_count_all_relayouts() -> None:
    assert cycles((COST, COST)) == 2 * 117


def test_parts_are_joined_in_order() -> None:
    other = OperatorCost(Family.POOL, 1, 1, (), 1)
    joined = join(Gradients(inputs=(COST,)), Gradients(), Gradients((other,), (COST,)))
    assert joined == Gradients((COST, other), (COST,))
    assert joined.costs == (COST, other, COST)


def test_a_sum_is_made_where_the_output_repeats_an_operand(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Add", ["x:1x64x64", (64,), (64, 64)], (1, 64, 64)))
    whole, row, equal = context.layer.operands
    assert summed(context, whole) == summed(context, equal) == ()
    assert [cost.family for cost in summed(context, row)] == [Family.REDUCE]


def test_only_gradients_of_parameters_are_summed_over_micro_batches(
    graph_of: Any, node: Any, device: Device, options: Any
) -> None:
    before = node("MatMul", ["x:1x64x64", (64, 64)], (1, 64, 64), "before")
    graph = graph_of([before, node("Sum", ["before", (64, 64), (1,), "x:1x64x64"], (1, 64, 64))])
    context, passes = OperatorContext(graph, graph.layers[1], device, options()), derivative(graph)
    activation, parameter, constant, fed = context.layer.operands
    assert for_operand(context, passes, activation, COST) == Gradients(inputs=(COST,))
    added = one_pass(context, 64 * 64, ("add",))._replace(working_bytes=2 * 64 * 64)
    assert for_operand(context, passes, parameter, COST) == Gradients(weights=(COST, added))
    assert for_operand(context, passes, constant, COST) == for_operand(context, passes, fed, COST) == Gradients()
