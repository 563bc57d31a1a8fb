"""If, Loop and Scan cost all runs of their bodies; an If costs its most expensive branch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

from autoauto.records.layers import Body, LayerGraph
from autoauto.targets.ipu.operator_cost import OperatorContext, OperatorCost, together
from autoauto.targets.ipu.operators.elementwise import one_pass

Price = Callable[[OperatorContext], OperatorCost]


def control_flow(context: OperatorContext, price: Price) -> OperatorCost:
    """The cost of a layer with bodies, whose layers `price` prices; without any, outputs are copied."""
    costs = [_body_cost(context, body, price) for body in context.layer.bodies]
    if not costs:
        return one_pass(context, max(context.n_out, 1), ("add",))
    binding_below_bytes = max(cost.binding_below_bytes for cost in costs)  # another bound may choose another branch
    return max(costs, key=lambda cost: cost.cycles)._replace(binding_below_bytes=binding_below_bytes)


def _body_cost(context: OperatorContext, body: Body, price: Price) -> OperatorCost:
    """All runs of a body, one after the other; its code is there once, and its tensors are alive in one run."""
    inner = [context._replace(graph=body.graph, layer=layer) for layer in body.graph.layers]
    run = together(*map(price, inner))
    n_runs = body.n_runs * (context.options.batch_size if body.runs_per_sample else 1)
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
