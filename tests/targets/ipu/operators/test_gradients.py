from collections.abc import Callable
from dataclasses import replace
from typing import Any

from autoauto.records.hardware import Device
from autoauto.records.layers import derivative
from autoauto.targets.ipu.kernels import codelets as kernels
from autoauto.targets.ipu.operator_cost import Demand, Family, Site, Work
from autoauto.targets.ipu.operators.gradients import Gradients, cycles, for_operand, join, one_pass, summed

MakeSite = Callable[..., Site]

WORK = Work(Family.MOVE, 2, 5, (), 1, demands=(Demand(0, 10), Demand(1, 100)))


def test_cycles_count_all_demands() -> None:
    assert cycles((WORK, WORK)) == 2 * 117


def test_parts_are_joined_in_order() -> None:
    other = Work(Family.POOL, 1, 1, (), 1)
    joined = join(Gradients(inputs=(WORK,)), Gradients(), Gradients((other,), (WORK,)))
    assert joined == Gradients((WORK, other), (WORK,))
    assert joined.works == (WORK, other, WORK)


def test_a_pass_is_one_launch_over_the_fullest_tile(site: MakeSite, node: Any) -> None:
    here = site(node("Relu", ["x:1x8"], (1, 8)))
    found = one_pass(here, 1472 * 1728, ("add",))
    assert found.cycles == kernels.elementwise(1728, ("add",), 2, here.precision) == 1800


def test_a_sum_is_made_where_the_output_repeats_an_operand(site: MakeSite, node: Any) -> None:
    here = site(node("Add", ["x:1x64x64", (64,), (64, 64)], (1, 64, 64)))
    whole, row, equal = here.layer.operands
    assert summed(here, whole) == summed(here, equal) == ()
    assert [work.family for work in summed(here, row)] == [Family.REDUCE]


def test_only_what_a_parameter_gets_is_added_up(graph_of: Any, node: Any, device: Device, options: Any) -> None:
    before = node("MatMul", ["x:1x64x64", (64, 64)], (1, 64, 64), "before")
    graph = graph_of([before, node("Sum", ["before", (64, 64), (1,), "x:1x64x64"], (1, 64, 64))])
    here, found = Site(graph, graph.layers[1], device, options()), derivative(graph)
    activation, parameter, constant, fed = here.layer.operands
    assert for_operand(here, found, activation, WORK) == Gradients(inputs=(WORK,))
    added = replace(one_pass(here, 64 * 64, ("add",)), working_bytes=2 * 64 * 64)
    assert for_operand(here, found, parameter, WORK) == Gradients(weights=(WORK, added))
    assert for_operand(here, found, constant, WORK) == for_operand(here, found, fed, WORK) == Gradients()
