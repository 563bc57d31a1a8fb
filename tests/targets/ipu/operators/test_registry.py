from collections.abc import Callable
from typing import Any

import pytest

from autoauto.records.units import Precision
from autoauto.targets.ipu.entry import IPU
from autoauto.targets.ipu.operator_cost import OperatorContext
from autoauto.targets.ipu.operators.registry import COST_RULES, TABLES, forward_cost

MakeContext = Callable[..., OperatorContext]


@pytest.mark.parametrize("op", [*COST_RULES, "NoSuchOperator"])
@pytest.mark.parametrize("precision", IPU.precisions)
def test_every_operator_takes_time_and_more_of_it_for_a_larger_batch(
    context_of: MakeContext, node: Any, example: Any, op: str, precision: Precision
) -> None:
    operands, shape, attributes = example(op)
    single, many = (
        forward_cost(context_of(node(op, operands, shape, **attributes), n, precision=precision)) for n in (1, 64)
    )
    assert single.compute_cycles > 0
    assert single.cycles <= many.cycles
    assert single.codelets
    assert 0 < single.n_tiles <= 1472
    assert isinstance(single.exchange_cycles, int)
    assert isinstance(single.compute_cycles, int)
    assert single.working_bytes >= 0


@pytest.mark.parametrize("op", ["Relu", "Add", "Softmax", "ReduceSum", "Gather", "Transpose", "MatMul", "Mystery"])
def test_empty_tensors_have_a_cost(context_of: MakeContext, node: Any, op: str) -> None:
    assert forward_cost(context_of(node(op, ["x:1x0x4", "x:1x0x4"], (1, 0, 4)))).cycles > 0


def test_every_operator_is_in_one_table() -> None:
    assert len(COST_RULES) == sum(map(len, TABLES))
