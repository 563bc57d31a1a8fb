"""The backward pass of every operator: `backward`, the passes that its derivative needs, priced like forward passes.

With dY the gradient of what a layer writes, dX of what it reads and dW of its parameters:

    family       dX                                            dW, then added to what earlier micro-batches made
    product      the product of dY and the other factor,       the product of X transposed and dY,
                 transposed                                    both brought into panels of their rows
    add          dY itself, a copy for every further operand   dY summed to the shape of W
    elementwise  one pass: f'(x) dY                            that pass, then as for add
    norm         the forward pass on dY, and x dY in a pass    x dY in a pass, then that and dY summed over the rows
    softmax      y dY, its sum along the rows, y (dY - sum)
    reduce       dY to all that was reduced; where one was
                 chosen, a pass that compares
    pool         every window once more
    gather       zeros, and the rows of dY added to them       the rows of dY added to those that were looked up
    recurrent    step by step the gates and the state, then    two products over all steps
                 all inputs at once
    move, sort   dY back the way it came

Where an operand was repeated along an axis, its gradient is summed over it. An operator whose rule is not in
`_BACKWARD_RULES` takes what it takes forward. Weights change once a step, which is no part of the backward pass
(`weight_update_cycles`).

The parts of the backward pass of a layer: `Gradients`, and how they are put together.

The update of weights at the end of a step of training, `weight_update_cycles`, priced like operators.

With g the gradient summed over micro-batches and replicas, w the weights, and m, v, u of their shape:

    sgd        w -= a g
    momentum   m = b m + g;                           w -= a m
    adam       m = b m + (1 - b) g;  v likewise of g^2;  w -= a m / (sqrt v + e)          [adam]
    lamb       as adam, and the norms of w and of its change scale a                     [lamb]

Every line is a few passes over the elements of each weight tensor, which lie on all tiles; those on states of fp32 run
in fp32, after a cast of g. Master weights are changed in fp32 and then cast. Not counted: setting accumulators to zero,
and loads and stores of states that lie in streaming memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import Optimizer, WeightUpdate
from autoauto.records.hardware import Device
from autoauto.records.layers import Derivative, LayerGraph, derivative
from autoauto.records.units import Precision
from autoauto.targets.ipu.operator_cost import CostRule, OperatorContext, OperatorCost
from autoauto.targets.ipu.operators import convolutions, data_movement, products, rows
from autoauto.targets.ipu.operators.elementwise import PASSES_GRADIENT_ON, derivative_loops, elementwise, one_pass
from autoauto.targets.ipu.operators.products import GradientsOf, matrix_gradients
from autoauto.targets.ipu.operators.registry import forward_cost, rule_of
from autoauto.targets.ipu.operators.rows import reduce_to
from autoauto.targets.ipu.tiling.split import Product

SHARED_NORM_CYCLES = 1_450_000
"""Cycles of a norm that LAMB takes of a tensor that is sharded over replicas on the chip. Fitted to seven runs of
MLPerf's BERT-large with PopART, of 2 to 32 replicas on two generations of devices (docs/training.md)."""


class Gradients(NamedTuple):
    """The costs of the gradients of what a layer reads: of its inputs, and of its parameters."""

    inputs: tuple[OperatorCost, ...] = ()
    weights: tuple[OperatorCost, ...] = ()

    @property
    def costs(self) -> tuple[OperatorCost, ...]:
        """The costs of all gradients, those of inputs first."""
        return self.inputs + self.weights


def cycles(costs: tuple[OperatorCost, ...]) -> int:
    """Cycles of passes one after the other; no neighbour saves them a relayout."""
    return sum(cost.cycles + sum(relayout.cycles for relayout in cost.relayouts) for cost in costs)


def join(*parts: Gradients) -> Gradients:
    """Several gradients of one layer, in order."""
    inputs: tuple[OperatorCost, ...] = ()
    weights: tuple[OperatorCost, ...] = ()
    for part in parts:
        inputs += part.inputs
        weights += part.weights
    return Gradients(inputs, weights)


def summed(context: OperatorContext, operand: int) -> tuple[OperatorCost, ...]:
    """The sum of dY over all axes along which the output repeats an operand; nothing where it does not."""
    n_elements = max(context.n_elements(operand), 1)
    if n_elements >= context.n_out:
        return ()
    n_samples = 1
    if context.graph.tensors[operand].batch_axis is not None:
        n_samples = context.options.batch_size
    return (reduce_to(context, context.n_out, n_elements, n_samples=n_samples),)


def for_operand(context: OperatorContext, derivative: Derivative, operand: int, *costs: OperatorCost) -> Gradients:
    """The gradient of one operand, which `costs` make; nothing when the operand has no gradient.

    The gradient of a parameter is then added to the sum of earlier micro-batches, and lies beside it until then.
    """
    if not derivative.has_gradient(context.layer, operand):
        return Gradients()
    if derivative.needs_gradient(operand):
        return Gradients(inputs=costs)
    added = one_pass(context, context.n_elements(operand), ("add",))
    return Gradients(weights=(*costs, added._replace(working_bytes=context.n_bytes(operand))))


BackwardRule = Callable[[OperatorContext, Derivative], Gradients]


def backward(context: OperatorContext, derivative: Derivative) -> Gradients:
    """The backward pass of one layer that is trained; its codelets are not those of the forward pass."""
    rule = _BACKWARD_RULES.get(rule_of(context.layer.op), _as_forward)
    inputs, weights = rule(context, derivative)
    return Gradients(tuple(map(_with_backward_codelets, inputs)), tuple(map(_with_backward_codelets, weights)))


def _with_backward_codelets(cost: OperatorCost) -> OperatorCost:
    return cost._replace(codelets=tuple(f"{name}_backward" for name in cost.codelets))


def _as_forward(context: OperatorContext, derivative: Derivative) -> Gradients:
    """The backward pass of an operator without a rule: as much as the forward pass, if any gradient is needed."""
    if not any(derivative.needs_gradient(operand) for operand in context.present):
        return Gradients()
    return Gradients(inputs=(forward_cost(context),))


def _elementwise(context: OperatorContext, derivative: Derivative) -> Gradients:
    """A pass for every operand; where dY is passed on, a copy for every operand but the first."""
    parts, n_passed_on = [], 0
    for operand in context.present:
        costs = summed(context, operand)
        if context.layer.op not in PASSES_GRADIENT_ON:
            costs = (one_pass(context, context.n_out, derivative_loops(context)), *costs)
        elif derivative.needs_gradient(operand) and not costs:
            if n_passed_on:  # the first operand takes dY itself, each further one a copy
                costs = (data_movement.move_bytes(context, context.out_bytes, per_element=False),)
            n_passed_on += 1
        parts.append(for_operand(context, derivative, operand, *costs))
    return join(*parts)


def _multiplied(
    context: OperatorContext, derivative: Derivative, gradients_of: GradientsOf, left: int, right: int
) -> Gradients:
    """The gradients of two factors: dY B^T of the left one, A^T dY of the right one.

    dY B^T adds up what dY has together in panels, so that only B is transposed; A^T dY adds up the rows of both.
    """
    output = context.layer.outputs[0]
    of_left, of_right = products.batched_gradients(context, gradients_of)
    parts = []
    if derivative.has_gradient(context.layer, left):
        relayouts = (products.relayout_to_panels(context, output), products.transpose_panels(context, right))
        cost = products.priced(context, of_left)._replace(relayouts=relayouts)
        parts.append(for_operand(context, derivative, left, cost))
    if derivative.has_gradient(context.layer, right):
        relayouts = (products.transpose_panels(context, left), products.transpose_panels(context, output))
        cost = products.priced(context, of_right)._replace(relayouts=relayouts)
        parts.append(for_operand(context, derivative, right, cost))
    return join(*parts)


def _biased(context: OperatorContext, derivative: Derivative, gradients_of: GradientsOf) -> Gradients:
    """The gradients of two factors, and of the operand that is added to their product, if there is one."""
    product = _multiplied(context, derivative, gradients_of, *context.layer.operands[:2])
    if context.tensor(2) is None:
        return product
    bias = context.layer.operands[2]
    return join(product, for_operand(context, derivative, bias, *summed(context, bias)))


def _matmul(context: OperatorContext, derivative: Derivative) -> Gradients:
    gradients_of = matrix_gradients(products.matmul_product)
    return _multiplied(context, derivative, gradients_of, *context.layer.operands[:2])


def _einsum(context: OperatorContext, derivative: Derivative) -> Gradients:
    if len(context.layer.operands) != 2:
        return _as_forward(context, derivative)
    return _multiplied(context, derivative, matrix_gradients(products.einsum_product), *context.layer.operands)


def _attention(context: OperatorContext, derivative: Derivative) -> Gradients:
    """The gradients of both products and of the softmax between them; scores have the layout of the queries."""
    queries, keys, values = context.layer.operands[:3]
    scores = products.attention_scores(context)
    n_rows = scores.groups * scores.width
    return join(
        _multiplied(context, derivative, matrix_gradients(products.attention_output), queries, values),
        Gradients(_along_rows(context, n_rows * scores.outputs, n_rows)),
        _multiplied(context, derivative, matrix_gradients(products.attention_scores), queries, keys),
    )


def _recurrent(context: OperatorContext, derivative: Derivative) -> Gradients:
    steps, batch, _ = products.three_lengths(context.shape(0))
    directions, gates, _ = products.three_lengths(context.shape(2))
    state = products.multiply(context, partial(_recurrent_product, factor="state"))
    nonlinear = one_pass(context, batch * directions * gates, ("sigmoid", "add", "add", "add", "add"))
    step = state._replace(
        exchange_cycles=steps * state.exchange_cycles,
        compute_cycles=steps * (state.compute_cycles + nonlinear.compute_cycles),
        codelets=(*state.codelets, "gates"),
    )
    parts = [Gradients(inputs=(step,))]
    # The operands of a recurrent cell begin with its inputs, the weights of inputs, and the weights of the state.
    for operand, factor in zip(context.layer.operands, ("inputs", "input weights", "state weights"), strict=False):
        product = products.multiply(context, partial(_recurrent_product, factor=factor))
        parts.append(for_operand(context, derivative, operand, product))
    return join(*parts)


def _recurrent_product(context: OperatorContext, factor: str) -> Product:
    """The product that makes the gradient of a factor: of the state in one step, of the others in all steps."""
    steps, batch, inputs = products.three_lengths(context.shape(0))
    directions, gates, hidden = products.three_lengths(context.shape(2))
    rows_inputs_outputs = {
        "state": (batch, gates, hidden),
        "inputs": (steps * batch, gates, inputs),
        "input weights": (inputs, steps * batch, gates),
        "state weights": (hidden, steps * batch, gates),
    }
    return products.matrix_product(context, directions, *rows_inputs_outputs[factor])


def _norm(context: OperatorContext, derivative: Derivative) -> Gradients:
    source, *parameters = context.present
    product = one_pass(context, context.n_out, ("add", "add"))
    parts = [for_operand(context, derivative, source, forward_cost(context), product)]
    for operand in parameters:
        added = one_pass(context, context.n_out, ("add",))
        parts.append(for_operand(context, derivative, operand, added, *summed(context, operand)))
    return join(*parts)


def _softmax(context: OperatorContext, derivative: Derivative) -> Gradients:
    shape = context.shape(0)
    n_keys = 1
    if shape:
        n_keys = max(shape[context.axis(-1, len(shape))], 1)
    costs = _along_rows(context, context.n_out, context.n_out // n_keys)
    return for_operand(context, derivative, context.layer.operands[0], *costs)


def _along_rows(context: OperatorContext, n_elements: int, n_rows: int) -> tuple[OperatorCost, ...]:
    summed_rows = rows.reduce_to(context, n_elements, max(n_rows, 1), n_samples=context.options.batch_size)
    return one_pass(context, n_elements, ("add",)), summed_rows, one_pass(context, n_elements, ("add", "add"))


def _reduction(context: OperatorContext, derivative: Derivative) -> Gradients:
    source = context.present[0]
    costs = [data_movement.move_bytes(context, context.n_bytes(source), per_element=False)]
    if "Max" in context.layer.op or "Min" in context.layer.op:
        costs.append(one_pass(context, context.n_elements(source), ("compare", "add")))
    return for_operand(context, derivative, source, *costs)


def _look_up(context: OperatorContext, derivative: Derivative) -> Gradients:
    table = context.layer.operands[0]
    added = forward_cost(context)
    if derivative.needs_gradient(table):
        return Gradients(inputs=(data_movement.move_bytes(context, context.n_bytes(table), per_element=False), added))
    if derivative.is_parameter(context.layer, table):
        return Gradients(weights=(added,))
    return _as_forward(context, derivative)


def _move(context: OperatorContext, derivative: Derivative) -> Gradients:
    if context.layer.op in ("Expand", "Tile"):
        return for_operand(context, derivative, context.present[0], *summed(context, context.present[0]))
    wanted = [operand for operand in context.present if derivative.needs_gradient(operand)]
    parts = []
    if wanted:
        n_bytes = max(context.out_bytes, sum(map(context.n_bytes, wanted)))
        parts.append(Gradients((data_movement.move_bytes(context, n_bytes, per_element=False),)))
    for operand in context.present:
        if operand not in wanted:
            parts.append(for_operand(context, derivative, operand))
    return join(*parts)


_BACKWARD_RULES: dict[CostRule, BackwardRule] = {
    convolutions.convolution: partial(_biased, gradients_of=convolutions.convolution_gradients),
    convolutions.transposed_convolution: partial(_biased, gradients_of=convolutions.transposed_convolution_gradients),
    data_movement.look_up: _look_up,
    data_movement.update: _look_up,
    data_movement.move: _move,
    elementwise: _elementwise,
    products.attention: _attention,
    products.einsum: _einsum,
    products.gemm: partial(_biased, gradients_of=matrix_gradients(products.gemm_product)),
    products.matmul: _matmul,
    products.recurrent: _recurrent,
    rows.batch_norm: _norm,
    rows.field_norm: _norm,
    rows.group_norm: _norm,
    rows.layer_norm: _norm,
    rows.reduction: _reduction,
    rows.softmax: _softmax,
}


def weight_update_cycles(
    graph: LayerGraph, device: Device, options: CompileOptions, update: WeightUpdate
) -> tuple[int, ...]:
    """Cycles that a device takes to update the weights of every layer; tied weights count for their first reader."""
    passes = derivative(graph)
    updated: set[int] = set()
    cycles = []
    for layer in graph.layers:
        context = OperatorContext(graph, layer, device, options)
        layer_cycles = 0
        for index in passes.parameters(layer):
            if index not in updated:
                n_elements = -(-graph.tensors[index].n_elements(1) // update.n_shards)
                layer_cycles += sum(cost.cycles for cost in _passes(context, n_elements, update))
                # Besides, LAMB takes two norms of a sharded tensor. Where the optimizer state is in streaming memory,
                # they are part of the fitted wait of a transfer.
                if update.optimizer is Optimizer.LAMB and update.n_shards > 1 and not update.streams:
                    layer_cycles += 2 * SHARED_NORM_CYCLES
        updated.update(passes.parameters(layer))
        cycles.append(layer_cycles)
    return tuple(cycles)


def _passes(context: OperatorContext, n_elements: int, update: WeightUpdate) -> Iterator[OperatorCost]:
    single = context._replace(options=replace(context.options, precision=Precision.FP32))
    weights = context
    if update.has_master_weights(context.precision):
        weights = single
    if update.optimizer is Optimizer.MOMENTUM:
        yield one_pass(context, n_elements, ("add", "add"))
    elif update.optimizer is not Optimizer.SGD:
        if context.precision is not Precision.FP32:
            yield one_pass(context, n_elements, ("convert",), 1)
        yield one_pass(single, n_elements, ("add", "add"))
        yield one_pass(single, n_elements, ("square", "add", "add"))
        yield one_pass(single, n_elements, ("sqrt", "add", "divide"))
    if update.optimizer is Optimizer.LAMB:
        for each in (weights, single):
            yield one_pass(each, n_elements, ("square",), 1)
            yield reduce_to(each, n_elements, 1)
    yield one_pass(weights, n_elements, ("add", "add"))
    if update.has_master_weights(context.precision):
        yield one_pass(context, n_elements, ("convert",), 1)
