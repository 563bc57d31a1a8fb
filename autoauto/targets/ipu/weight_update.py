"""The update of weights at the end of a step of training, `weight_update_cycles`, priced like operators.

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

from collections.abc import Iterator
from dataclasses import replace

from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, derivative
from autoauto.records.profile import CompileOptions, Optimizer, WeightUpdate
from autoauto.records.units import Precision
from autoauto.targets.ipu.operator_cost import OperatorContext, OperatorCost
from autoauto.targets.ipu.operators.elementwise import one_pass
from autoauto.targets.ipu.operators.rows import reduce_to


def weight_update_cycles(
    graph: LayerGraph, device: Device, options: CompileOptions, update: WeightUpdate
) -> tuple[int, ...]:
    """Cycles by layer in which a device updates the weights of the layer; of tied weights the first reader counts."""
    passes, updated, cycles = derivative(graph), set[int](), []
    for layer in graph.layers:
        context = OperatorContext(graph, layer, device, options)
        new = [index for index in passes.parameters(layer) if index not in updated]
        updated.update(new)
        sizes = [-(-graph.tensors[index].n_elements(1) // update.n_shards) for index in new]
        cycles.append(sum(cost.cycles for size in sizes for cost in _passes(context, size, update)))
    return tuple(cycles)


def _passes(context: OperatorContext, n_elements: int, update: WeightUpdate) -> Iterator[OperatorCost]:
    """The passes over one weight tensor."""
    single = replace(context, options=replace(context.options, precision=Precision.FP32))
    copied = update.has_master_weights(context.precision)
    weights = single if copied else context
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
    if copied:
        yield one_pass(context, n_elements, ("convert",), 1)
