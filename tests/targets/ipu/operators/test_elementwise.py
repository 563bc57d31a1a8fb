from collections.abc import Callable
from typing import Any

import pytest

from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.kernels import LOOPS
from autoauto.targets.ipu.operator_cost import OperatorContext
from autoauto.targets.ipu.operators import elementwise
from autoauto.targets.ipu.operators.registry import forward_cost

MakeContext = Callable[..., OperatorContext]

IMAGE = "x:1x32x28x28"


@pytest.mark.parametrize("op", elementwise.COST_RULES)
def test_every_operator_uses_loops_of_the_table(context_of: MakeContext, node: Any, op: str) -> None:
    layer = context_of(node(op, [IMAGE, "x:1x1x28x28"], (1, 32, 28, 28)))
    assert {*elementwise.loops_of(layer), *elementwise.derivative_loops(layer)} <= LOOPS.keys()


def test_a_broadcast_operand_is_exchanged_and_an_equal_one_laid_out_anew(context_of: MakeContext, node: Any) -> None:
    broadcast = forward_cost(context_of(node("Add", [IMAGE, (32, 1, 1)], (1, 32, 28, 28))))
    equal = forward_cost(context_of(node("Add", [IMAGE, "x:32x1x28x28"], (1, 32, 28, 28))))
    alone = forward_cost(context_of(node("Relu", [IMAGE], (1, 32, 28, 28))))
    assert broadcast.exchange_cycles > 0 == equal.exchange_cycles == alone.exchange_cycles
    assert [len(done.relayouts) for done in (broadcast, equal, alone)] == [0, 1, 0]


def test_sums_of_many_take_a_pass_each(context_of: MakeContext, node: Any) -> None:
    two = forward_cost(context_of(node("Sum", ["x:1x99999", "x:9x11111"], (1, 99999)))).compute_cycles
    three = forward_cost(context_of(node("Sum", ["x:1x99999", "x:9x11111", "x:99x1010"], (1, 99999)))).compute_cycles
    assert three > two


def test_a_constant_power_is_a_multiplication(context_of: MakeContext, node: Any) -> None:
    constant = forward_cost(context_of(node("Pow", ["x:1x99999", (1,)], (1, 99999)))).cycles
    computed = forward_cost(context_of(node("Pow", ["x:1x99999", "x:9x11111"], (1, 99999)))).cycles
    assert constant < computed / 10


def test_gelu_costs_its_measured_cycles(context_of: MakeContext, node: Any) -> None:
    assert forward_cost(context_of(node("Gelu", [f"x:1x{1472 * 96}"], (1, 1472 * 96)))).cycles == 792


def test_elementwise_operators_follow_the_layout_of_a_whole_operand(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Mul", [(32, 1, 1), IMAGE], (1, 32, 28, 28)))
    assert forward_cost(context).follows == context.layer.operands[1]


def test_a_pass_is_one_launch_over_the_fullest_tile(context_of: MakeContext, node: Any) -> None:
    context = context_of(node("Relu", ["x:1x8"], (1, 8)))
    cost = elementwise.one_pass(context, 1472 * 1728, ("add",))
    assert cost.cycles == kernels.elementwise(1728, ("add",), 2, context.precision) == 1800
