"""All operators in one table, `COST_RULES`, and what one layer costs forward: `forward_cost`.

An operator that is in no table is priced by a default, `as_elementwise`, and `default_notes` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autoauto.records.layers import Layer, LayerGraph
from autoauto.records.units import Precision
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.operator_cost import CostRule, OperatorContext, OperatorCost, together
from autoauto.targets.ipu.operators import (
    control_flow,
    convolutions,
    data_movement,
    elementwise,
    products,
    rows,
    sequences,
)

TABLES = tuple(module.COST_RULES for module in (convolutions, data_movement, elementwise, products, rows, sequences))
CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
"""Operators that cost what the layers in their bodies do."""
COST_RULES: dict[str, CostRule] = {name: rule for table in TABLES for name, rule in table.items()}


def rule_of(operator: str) -> CostRule:
    """The rule of an ONNX operator."""
    return COST_RULES.get(operator, as_elementwise)


def as_elementwise(context: OperatorContext) -> OperatorCost:
    """An operator that is not known: all that it reads and writes moves once, and one pass computes the larger."""
    n_elements = max(context.n_out, *map(context.n_elements, context.present), 1)
    return together(data_movement.move_everything(context), elementwise.one_pass(context, n_elements, ("add",)))


def default_notes(graph: LayerGraph) -> tuple[str, ...]:
    """Which operators of a model have no rule of their own, as a sentence; none when all have one."""
    unknown = sorted({layer.op for layer in _all_layers(graph)} - COST_RULES.keys() - CONTROL_FLOW)
    return (f"priced as elementwise: {', '.join(unknown)}",) if unknown else ()


def _all_layers(graph: LayerGraph) -> Iterator[Layer]:
    """The layers of a graph, and those of bodies in it."""
    for layer in graph.layers:
        yield layer
        for body in layer.bodies:
            yield from _all_layers(body.graph)


def forward_cost(context: OperatorContext) -> OperatorCost:
    """The cost of one layer."""
    if context.layer.op in context.settings.float_operators and context.precision is not Precision.FP32:
        return _in_single_precision(context)
    if context.layer.op in CONTROL_FLOW:
        return control_flow.control_flow(context, forward_cost)
    return rule_of(context.layer.op)(context)


def _in_single_precision(context: OperatorContext) -> OperatorCost:
    """A layer in fp32 between casts of its first operand and of what it writes; it works on the copy in fp32."""
    single = forward_cost(replace(context, options=replace(context.options, precision=Precision.FP32)))
    sizes = context.n_elements(context.present[0]), context.n_out
    casts = sum(round(kernels.elementwise(-(-n // context.n_tiles), ("convert",), 1, context.precision)) for n in sizes)
    return replace(
        single,
        compute_cycles=single.compute_cycles + casts,
        codelets=(*single.codelets, "cast_fp16"),
        working_bytes=single.working_bytes + Precision.FP32.n_bytes * max(sizes),
    )
