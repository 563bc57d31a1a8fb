"""The parts of the backward pass of a layer: `Gradients`, and how they are put together."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from autoauto.records.layers import Derivative
from autoauto.targets.ipu.operator_cost import OperatorContext, OperatorCost
from autoauto.targets.ipu.operators.elementwise import one_pass
from autoauto.targets.ipu.operators.rows import reduce_to


class Gradients(NamedTuple):
    """The costs of the gradients of what a layer reads: of its inputs, and of its parameters."""

    inputs: tuple[OperatorCost, ...] = ()
    weights: tuple[OperatorCost, ...] = ()

    @property
    def costs(self) -> tuple[OperatorCost, ...]:
        """Those of the inputs, then those of the parameters."""
        return self.inputs + self.weights


def cycles(costs: tuple[OperatorCost, ...]) -> int:
    """Cycles of passes one after the other; no neighbour saves them a relayout."""
    return sum(cost.cycles + sum(relayout.cycles for relayout in cost.relayouts) for cost in costs)


def join(*parts: Gradients) -> Gradients:
    """Several gradients of one layer, in order."""
    return Gradients(
        tuple(cost for part in parts for cost in part.inputs), tuple(cost for part in parts for cost in part.weights)
    )


def summed(context: OperatorContext, operand: int) -> tuple[OperatorCost, ...]:
    """The sum of dY over all axes along which the output repeats an operand; nothing where it does not."""
    n_elements = max(context.n_elements(operand), 1)
    n_samples = 1 if context.graph.tensors[operand].batch_axis is None else context.options.batch_size
    return (reduce_to(context, context.n_out, n_elements, n_samples=n_samples),) if n_elements < context.n_out else ()


def for_operand(context: OperatorContext, derivative: Derivative, operand: int, *costs: OperatorCost) -> Gradients:
    """The gradient of one operand, which `costs` make; nothing when the operand has no gradient.

    The gradient of a parameter is then added to the sum of earlier micro-batches, and lies beside it until then.
    """
    if not derivative.has_gradient(context.layer, operand):
        return Gradients()
    if derivative.needs_gradient(operand):
        return Gradients(inputs=costs)
    added = one_pass(context, context.n_elements(operand), ("add",))
    return Gradients(weights=(*costs, replace(added, working_bytes=context.n_bytes(operand))))
