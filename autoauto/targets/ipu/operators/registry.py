"""All operators in one table, `COST_RULES`, and what one layer costs forward: `forward_cost`.

An operator that is in no table is priced by a default, `as_elementwise`, and `default_notes` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate

from autoauto.records.layers import Body, LayerGraph
from autoauto.records.units import Precision
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.operator_cost import CostRule, OperatorContext, OperatorCost, together
from autoauto.targets.ipu.operators import (
    classic,
    contrib,
    convolutions,
    data_movement,
    elementwise,
    products,
    quantised,
    rows,
    sequences,
    signals,
)
from autoauto.targets.ipu.tiling.planner import Batched, Bounded, plan_each, reserve_each

_STANDARD = (convolutions, data_movement, elementwise, products, rows, sequences, signals)
TABLES = tuple(module.COST_RULES for module in (*_STANDARD, classic, contrib, quantised))
CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
"""Operators that cost what the layers in their bodies do."""
COST_RULES: dict[str, CostRule] = {name: rule for table in TABLES for name, rule in table.items()}

PRODUCTS = {**convolutions.PRODUCTS, **products.PRODUCTS}
GRADIENTS = {**convolutions.GRADIENTS, **products.GRADIENTS}


def rule_of(operator: str) -> CostRule:
    """The rule of an ONNX operator."""
    return COST_RULES.get(operator, as_elementwise)


def as_elementwise(context: OperatorContext) -> OperatorCost:
    """An operator that is not known: all that it reads and writes moves once, and one pass computes the larger."""
    n_elements = max(context.n_out, *map(context.n_elements, context.present), 1)
    return together(data_movement.move_everything(context), elementwise.one_pass(context, n_elements, ("add",)))


def default_notes(graph: LayerGraph) -> tuple[str, ...]:
    """A sentence that names the operators of a model without a rule of their own; nothing if all have one."""
    unknown = sorted({layer.op for layer in graph.all_layers() if not has_rule(layer.op)})
    if not unknown:
        return ()
    return (f"priced as elementwise: {', '.join(unknown)}",)


def has_rule(operator: str) -> bool:
    """True if an operator has a price of its own."""
    return operator in COST_RULES or operator in CONTROL_FLOW


def prepare(contexts: Iterable[OperatorContext]) -> None:
    """Plan the products of several layers on one device together, which takes less time than one after the other.

    `forward_cost` and the backward pass then find these plans. They would make the same ones without `prepare`.
    """
    asked: dict[int, list[tuple[Batched, float]]] = {}
    for context in contexts:
        if context.layer.op not in context.settings.float_operators:
            for product in _products(context):
                asked.setdefault(context.n_tiles, []).append((product, context.bound_bytes))
    for n_tiles, wanted in asked.items():
        reserves = reserve_each([batched for batched, _ in wanted], n_tiles)
        bounded = []
        for (batched, bound_bytes), reserved in zip(wanted, reserves, strict=True):
            bounded.append(Bounded(batched.product, min(reserved.tile_bytes, bound_bytes)))
        plan_each(bounded, n_tiles)


def _products(context: OperatorContext) -> Iterator[Batched]:
    for product_of in PRODUCTS.get(context.layer.op, ()):
        yield products.batched_product(context, product_of)
    if context.options.training:
        for gradients_of in GRADIENTS.get(context.layer.op, ()):
            yield from products.batched_gradients(context, gradients_of)


def forward_cost(context: OperatorContext) -> OperatorCost:
    """The cost of one layer, which launches one vertex at least, however little there is to compute."""
    if context.layer.op in context.settings.float_operators and context.precision is not Precision.FP32:
        return _in_single_precision(context)
    if context.layer.op in CONTROL_FLOW:
        return control_flow(context, forward_cost)
    cost = rule_of(context.layer.op)(context)
    if not cost.cycles:
        return cost._replace(compute_cycles=kernels.UNARY_LAUNCH_CYCLES)
    return cost


def _in_single_precision(context: OperatorContext) -> OperatorCost:
    """A layer in fp32 between casts of its first operand and of what it writes; it works on the copy in fp32."""
    single = forward_cost(context._replace(options=replace(context.options, precision=Precision.FP32)))
    sizes = context.n_elements(context.present[0]), context.n_out
    casts = 0
    for n_elements in sizes:
        share = -(-n_elements // context.n_tiles)
        casts += round(kernels.elementwise(share, ("convert",), 1, context.precision))
    return single._replace(
        compute_cycles=single.compute_cycles + casts,
        codelets=(*single.codelets, "cast_fp16"),
        working_bytes=single.working_bytes + Precision.FP32.n_bytes * max(sizes),
    )


def control_flow(context: OperatorContext, price: CostRule) -> OperatorCost:
    """The cost of all runs of bodies, an If of its most expensive one; without any of a copy. `price` is of a layer."""
    costs = [_body_cost(context, body, price) for body in context.layer.bodies]
    if not costs:
        return elementwise.one_pass(context, max(context.n_out, 1), ("add",))
    binding_below_bytes = max(cost.binding_below_bytes for cost in costs)  # another bound may choose another branch
    return max(costs, key=lambda cost: cost.cycles)._replace(binding_below_bytes=binding_below_bytes)


def _body_cost(context: OperatorContext, body: Body, price: CostRule) -> OperatorCost:
    """All runs of a body, one after the other; its code is there once, and its tensors are alive in one run."""
    inner = [context._replace(graph=body.graph, layer=layer) for layer in body.graph.layers]
    run = together(*map(price, inner))
    n_runs = body.n_runs
    if body.runs_per_sample:
        n_runs *= context.options.batch_size
    return run._replace(
        exchange_cycles=n_runs * (run.exchange_cycles + sum(relayout.cycles for relayout in run.relayouts)),
        compute_cycles=n_runs * run.compute_cycles,
        working_bytes=run.working_bytes + _most_alive(body.graph, inner[0]),
        follows=-1,
        relayouts=(),
    )


def _most_alive(graph: LayerGraph, context: OperatorContext) -> int:
    """The most bytes that are alive at a time in a body: computed, and not read for the last time.

    The lazy sum of what every layer writes and of what it reads last:

        layer   writes  reads last  alive
        0       a 10                10
        1       b 20                30
        2       c 5     a 10, b 20  35, then 5
    """
    change = [0] * (len(graph) + 2)
    for index, tensor in enumerate(graph.tensors):
        if tensor.producer >= 0:
            change[tensor.producer] += context.n_bytes(index)
            change[tensor.last_use + 1] -= context.n_bytes(index)
    return max(accumulate(change))
