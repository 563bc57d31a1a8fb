from collections.abc import Callable
from typing import Any

import pytest

from autoauto.records.units import Precision
from autoauto.targets.ipu.kernels.elementwise import ELEMENTWISE
from autoauto.targets.ipu.operator_cost import Family, Site
from autoauto.targets.ipu.operators.registry import WORKS, work

MakeSite = Callable[..., Site]

IMAGE = "x:1x32x28x28"


@pytest.mark.parametrize("op", [*WORKS, "NoSuchOperator"])
@pytest.mark.parametrize("precision", Precision)
def test_every_operator_takes_time_and_more_of_it_for_a_larger_batch(
    site: MakeSite, node: Any, example: Any, op: str, precision: Precision
) -> None:
    operands, shape, attributes = example(op)
    one, many = (work(site(node(op, operands, shape, **attributes), n, precision=precision)) for n in (1, 64))
    assert one.compute_cycles > 0
    assert one.cycles <= many.cycles
    assert one.codelets
    assert 0 < one.n_tiles <= 1472
    assert isinstance(one.exchange_cycles, int)
    assert isinstance(one.compute_cycles, int)
    assert one.working_bytes >= 0


@pytest.mark.parametrize("op", ["Relu", "Add", "Softmax", "ReduceSum", "Gather", "Transpose", "MatMul", "Mystery"])
def test_empty_tensors_are_no_accident(site: MakeSite, node: Any, op: str) -> None:
    assert work(site(node(op, ["x:1x0x4", "x:1x0x4"], (1, 0, 4)))).cycles > 0


def test_a_broadcast_operand_is_exchanged_and_an_equal_one_is_demanded(site: MakeSite, node: Any) -> None:
    broadcast = work(site(node("Add", [IMAGE, (32, 1, 1)], (1, 32, 28, 28))))
    equal = work(site(node("Add", [IMAGE, "x:32x1x28x28"], (1, 32, 28, 28))))
    alone = work(site(node("Relu", [IMAGE], (1, 32, 28, 28))))
    assert broadcast.exchange_cycles > 0 == equal.exchange_cycles == alone.exchange_cycles
    assert [len(done.demands) for done in (broadcast, equal, alone)] == [0, 1, 0]


def test_sums_of_many_take_a_pass_each(site: MakeSite, node: Any) -> None:
    two = work(site(node("Sum", ["x:1x99999", "x:9x11111"], (1, 99999)))).compute_cycles
    three = work(site(node("Sum", ["x:1x99999", "x:9x11111", "x:99x1010"], (1, 99999)))).compute_cycles
    assert three > two


def test_a_constant_power_is_a_multiplication(site: MakeSite, node: Any) -> None:
    constant = work(site(node("Pow", ["x:1x99999", (1,)], (1, 99999)))).cycles
    computed = work(site(node("Pow", ["x:1x99999", "x:9x11111"], (1, 99999)))).cycles
    assert constant < computed / 10


def test_gelu_costs_its_measured_cycles(site: MakeSite, node: Any) -> None:
    assert work(site(node("Gelu", [f"x:1x{1472 * 96}"], (1, 1472 * 96)))).cycles == 792


def test_a_bias_is_added_after_a_convolution(site: MakeSite, node: Any) -> None:
    plain = work(site(node("Conv", [IMAGE, (64, 32, 3, 3)], (1, 64, 28, 28))))
    biased = work(site(node("Conv", [IMAGE, (64, 32, 3, 3), (64,)], (1, 64, 28, 28))))
    assert biased.cycles > plain.cycles
    assert set(biased.codelets) > set(plain.codelets)


def test_attention_is_more_than_its_softmax(site: MakeSite, node: Any) -> None:
    heads = ["x:1x12x128x64"] * 3
    whole = work(site(node("Attention", heads, (1, 12, 128, 64))))
    flat = work(site(node("Attention", ["x:1x128x768"] * 3, (1, 128, 768), q_num_heads=12)))
    softmax = work(site(node("Softmax", ["x:1x12x128x128"], (1, 12, 128, 128))))
    assert whole.family is Family.PRODUCT
    assert whole.cycles == flat.cycles > softmax.cycles


def test_elementwise_operators_follow_the_layout_of_a_whole_operand(site: MakeSite, node: Any) -> None:
    here = site(node("Mul", [(32, 1, 1), IMAGE], (1, 32, 28, 28)))
    assert work(here).follows == here.layer.operands[1]
    assert "Mul" in ELEMENTWISE


def test_a_pooling_window_ends_where_the_field_ends(site: MakeSite, node: Any) -> None:
    whole, beyond = (
        work(site(node("AveragePool", [IMAGE], (1, 32, 1, 1), kernel_shape=kernel, strides=(1, 1))))
        for kernel in ((28, 28), (1280, 1280))
    )
    assert beyond == whole
