"""All operators in one table, `COST_RULES`, and what one layer costs forward: `forward_cost`."""

from __future__ import annotations

from dataclasses import replace

from autoauto.records.units import Precision
from autoauto.targets.ipu.kernels import codelets as kernels
from autoauto.targets.ipu.operator_cost import CostRule, OperatorContext, OperatorCost
from autoauto.targets.ipu.operators import convolutions, data_movement, elementwise, products, rows

TABLES = tuple(module.COST_RULES for module in (convolutions, data_movement, elementwise, products, rows))
COST_RULES: dict[str, CostRule] = {name: rule for table in TABLES for name, rule in table.items()}


def rule_of(operator: str) -> CostRule:
    """The rule of an ONNX operator; one that is not known moves all that it reads and writes."""
    return COST_RULES.get(operator, data_movement.move_everything)


def forward_cost(context: OperatorContext) -> OperatorCost:
    """The cost of one layer."""
    if context.layer.op in context.settings.float_operators and context.precision is not Precision.FP32:
        return _in_single_precision(context)
    return rule_of(context.layer.op)(context)


def _in_single_precision(context: OperatorContext) -> OperatorCost:
    """A layer in fp32 between casts of its first operand and of what it writes; it works on the copy in fp32."""
    single = forward_cost(replace(context, options=replace(context.options, precision=Precision.FP32)))
    sizes = context.n_elements(context.present[0]), context.n_out
    casts = sum(round(kernels.elementwise(-(-n // context.n_tiles), ("cast",), 1, context.precision)) for n in sizes)
    return replace(
        single,
        compute_cycles=single.compute_cycles + casts,
        codelets=(*single.codelets, "cast_fp16"),
        working_bytes=single.working_bytes + Precision.FP32.n_bytes * max(sizes),
    )
