"""Matrix products, attention and recurrent cells: what a layer multiplies, and what that costs.

An operator is first described as a `Product`, which the planner of `tiling` cuts over tiles, and then priced by
`multiply`. `matrix_gradients` gives the products of its backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil, inf, prod
from typing import NamedTuple

from autoauto.records.units import Precision
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.operator_cost import (
    CostRule,
    Family,
    OperatorContext,
    OperatorCost,
    Relayout,
    Shape,
    by_operator,
    together,
)
from autoauto.targets.ipu.operators import data_movement, rows
from autoauto.targets.ipu.tiling.planner import Batched, Bounded, Split, plan, reserve_each
from autoauto.targets.ipu.tiling.split import Product, ProductCodelet

_ONE = (1, 1)
# Fitted to where memory ends on a C600 [poprt]: bert-base-256 in fp16 and resnet50 in fp32 fit at batch 16, not at 32.
_ALLOCATED_SHARE = 1.14
_REGROUPED_SHARE = 0.6  # of the plans of these two in fp32, inputs are 0.53 and 0.57


class FactorGradients(NamedTuple):
    """The products that make the gradients of the left and of the right factor."""

    left: Product
    right: Product


ProductOf = Callable[[OperatorContext], Product]
"""Makes the product that a layer computes at the batch size of its context."""

GradientsOf = Callable[[OperatorContext], FactorGradients]
"""Makes the products that compute the gradients of both factors of a layer, at the batch size of its context."""


def matmul(context: OperatorContext) -> OperatorCost:
    """MatMul of floats or integers, whose operands may be turned (FusedMatMul)."""
    right = 3 if context.layer.op == "QLinearMatMul" else 1
    return multiply(context, partial(matmul_product, right=right), two_operands(context, right))


def matmul_product(context: OperatorContext, left: int = 0, right: int = 1) -> Product:
    """The product of a MatMul: batched when both operands are, one large product when the right one is a matrix."""
    a, b = _turned(context, left, "A"), _turned(context, right, "B")
    rows, outputs = 1, 1  # of vectors
    if len(a) > 1:
        rows = a[-2]
    if len(b) > 1:
        outputs = b[-1]
    if prod(b[:-2]) == 1:
        return matrix_product(context, 1, prod(a[:-2]) * rows, a[-1], outputs)
    groups = prod(context.out_shape) // max(rows * outputs, 1)
    return matrix_product(context, groups, rows, a[-1], outputs)


def _turned(context: OperatorContext, position: int, side: str) -> Shape:
    """The shape of a factor once FusedMatMul has moved its leading axis behind the batch and swapped its last two."""
    shape = context.shape(position)
    if context.integer(f"transBatch{side}", 0) and len(shape) > 2:
        shape = (*shape[1:-1], shape[0], shape[-1])
    if context.integer(f"trans{side}", 0) and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


def gemm(context: OperatorContext) -> OperatorCost:
    """Gemm: a product, and the addition of C."""
    product = multiply(context, gemm_product, two_operands(context))
    return with_bias(context, product, 2, -1)


def gemm_product(context: OperatorContext) -> Product:
    """The product of a Gemm."""
    rows, inputs = context.shape(0)
    if context.integer("transA", 0):
        rows, inputs = inputs, rows
    return matrix_product(context, 1, rows, inputs, prod(context.shape(1)) // inputs)


def einsum(context: OperatorContext) -> OperatorCost:
    """Einsum: a product of its operands; with one operand a sum over axes, or a shuffle."""
    if len(context.layer.operands) == 1:
        n_in = context.n_elements(context.present[0])
        if context.n_out >= n_in:
            return data_movement.shuffle(context)
        return rows.reduce_to(context, n_in, max(context.n_out, 1), n_samples=context.options.batch_size)
    return multiply(context, einsum_product, context.present)


def einsum_product(context: OperatorContext) -> Product:
    """The product of an Einsum: letters of both operands and the output are groups, letters summed are inputs."""
    terms, _, result = context.text("equation").replace(" ", "").partition("->")
    shapes = [context.shape(position) for position in range(len(context.layer.operands))]
    labels = [_labels(term, len(shape)) for term, shape in zip(terms.split(","), shapes, strict=False)]
    sizes: dict[str, int] = {}
    for names, shape in zip(labels, shapes, strict=False):
        sizes.update(zip(names, shape, strict=True))
    out = set(_labels(result, len(context.out_shape)))
    if not result:  # an equation without "->" keeps the letters that it has once
        out = {name for name in sizes if terms.count(name) == 1}
    left, right = set(labels[0]), set().union(*labels[1:])
    return matrix_product(
        context,
        groups=prod(tuple(sizes[name] for name in left & right & out)),
        rows=prod(tuple(sizes[name] for name in (left - right) & out)),
        inputs=prod(tuple(sizes[name] for name in sizes.keys() - out)),
        outputs=prod(tuple(sizes[name] for name in (right - left) & out)),
    )


def _labels(term: str, rank: int) -> list[str]:
    """A name for every axis of one term: its letter, and a number counted from the right for an axis in an ellipsis."""
    before, dots, after = term.partition("...")
    names = list(before)
    if dots:
        n_hidden = rank - len(before) - len(after)
        names += map(str, range(n_hidden, 0, -1))
    return names + list(after)


class AttentionSizes(NamedTuple):
    """Heads of all samples, queries of each, channels of a query, keys of each, channels of a value."""

    groups: int
    queries: int
    width: int
    keys: int
    value: int


def attention(context: OperatorContext) -> OperatorCost:
    """Attention of queries, keys and values."""
    return attend(context, attention_sizes, two_operands(context), context.present[2:3])


def attend(
    context: OperatorContext,
    sizes_of: Callable[[OperatorContext], AttentionSizes],
    queries_and_keys: tuple[int, ...] = (),
    values: tuple[int, ...] = (),
) -> OperatorCost:
    """Two batched products around a softmax; operands are wanted in panels."""
    sizes = sizes_of(context)
    return together(
        multiply(context, partial(scores_product, sizes_of), queries_and_keys),
        rows.softmax_rows(context, sizes.groups * sizes.queries, sizes.keys),
        multiply(context, partial(output_product, sizes_of), values),
    )


def scores_product(sizes_of: Callable[[OperatorContext], AttentionSizes], context: OperatorContext) -> Product:
    """The product of an attention's queries and keys."""
    groups, queries, width, keys, _ = sizes_of(context)
    return matrix_product(context, groups, queries, width, keys)


def output_product(sizes_of: Callable[[OperatorContext], AttentionSizes], context: OperatorContext) -> Product:
    """The product of an attention's softmax and its values."""
    groups, queries, _, keys, value = sizes_of(context)
    return matrix_product(context, groups, queries, keys, value)


def attention_sizes(context: OperatorContext) -> AttentionSizes:
    """Sizes of an Attention of the standard; with a past, its keys are added."""
    queries, keys, values = (context.shape(position) for position in range(3))
    width, value = queries[-1], values[-1]
    if len(queries) == 4:  # (samples, heads, queries, channels)
        heads = queries[1]
    else:  # (samples, queries, channels of all heads)
        heads = context.integer("q_num_heads", 1)
        width //= heads
        value //= heads
    n_keys = keys[-2]
    past = context.shape(4)
    if len(past) == 4:
        n_keys += past[-2]
    return AttentionSizes(queries[0] * heads, queries[-2], width, n_keys, value)


attention_scores: ProductOf = partial(scores_product, attention_sizes)
attention_output: ProductOf = partial(output_product, attention_sizes)
"""The two products of an Attention of the standard."""


def recurrent(context: OperatorContext) -> OperatorCost:
    """LSTM, GRU or RNN: the inputs of all steps at once, then step by step the state and the gates."""
    steps, batch, inputs = three_lengths(context.shape(0))
    directions, gates, hidden = cell(context)
    feed = multiply(context, lambda c: _of_steps(c, three_lengths(c.shape(0))[0], inputs), context.present[:1])
    step = multiply(context, lambda c: _of_steps(c, 1, hidden))
    share = -(-batch * directions * gates // context.n_tiles)
    nonlinear = round(kernels.elementwise(share, ("sigmoid", "add", "add"), 2, context.out_precision))
    repeated = OperatorCost(
        family=Family.PRODUCT,
        exchange_cycles=steps * step.exchange_cycles,
        compute_cycles=steps * (step.compute_cycles + nonlinear),
        codelets=(*step.codelets, "gates"),
        n_tiles=step.n_tiles,
        n_sources=step.n_sources,
        working_bytes=step.working_bytes,
        within_bound=step.within_bound,
        binding_below_bytes=step.binding_below_bytes,
    )
    return together(feed, repeated)


def _of_steps(context: OperatorContext, n_steps: int, inputs: int) -> Product:
    _, batch, _ = three_lengths(context.shape(0))
    directions, gates, _ = cell(context)
    return matrix_product(context, directions, n_steps * batch, inputs, gates)


def cell(context: OperatorContext) -> tuple[int, int, int]:
    """Directions, channels of all gates, and channels of the state."""
    directions, gates, hidden = three_lengths(context.shape(2))
    if context.layer.op.startswith("DynamicQuantize"):  # these store their weights transposed
        return directions, hidden, gates
    return directions, gates, hidden


def three_lengths(shape: Shape) -> tuple[int, int, int]:
    """The first three lengths of a shape, 1 for an axis that it does not have."""
    first, second, third, *_ = (*shape, 1, 1, 1)
    return first, second, third


def matrix_product(context: OperatorContext, groups: int, rows: int, inputs: int, outputs: int) -> Product:
    """`groups` products of (rows x inputs) by (inputs x outputs)."""
    sizes = (max(groups, 1), 1, 1, max(rows, 1), max(inputs, 1), max(outputs, 1))
    return Product(ProductCodelet.GEMM, *sizes, _ONE, _ONE, context.precision, context.settings.partials)


def multiply(context: OperatorContext, product_of: ProductOf, operands: tuple[int, ...] = ()) -> OperatorCost:
    """The cost of a product that depends on the batch size of a context, as `priced`."""
    return priced(context, batched_product(context, product_of), operands)


def priced(context: OperatorContext, batched: Batched, operands: tuple[int, ...] = ()) -> OperatorCost:
    """The cost of a product; `operands` are wanted in panels of channels.

    It writes channels in groups of 16 and reads them in groups as deep as a panel of weights. Neither its code nor its
    temporaries fall when the batch grows.
    """
    bound_bytes, product = context.bound_bytes, batched.product
    (reserved,) = reserve_each((batched,), context.n_tiles)
    split = plan(Bounded(product, min(reserved.tile_bytes, bound_bytes)), context.n_tiles)
    binding_below_bytes = inf
    if split.within_bound and reserved.tile_bytes <= bound_bytes:  # a larger bound would change nothing
        binding_below_bytes = reserved.tile_bytes
    if not split.within_bound and reserved.tile_bytes < bound_bytes:
        split = plan(Bounded(product, bound_bytes), context.n_tiles)
    taken_bytes = reserved.tile_bytes
    if split.within_bound:
        taken_bytes = min(taken_bytes, bound_bytes)
    if not context.options.training:
        taken_bytes *= allocated_share(product.regroups)
    coded = reserved.single._replace(serial=1 + (reserved.tile_bytes > bound_bytes))
    cost = _split_cost(context, product, operands, split, coded, taken_bytes)
    return cost._replace(binding_below_bytes=binding_below_bytes)


def batched_product(context: OperatorContext, product_of: ProductOf) -> Batched:
    """A product at the batch size of a context, and how it grows with that."""
    n_samples = context.options.batch_size
    return Batched.of(product_of(context), product_of(context.at(2 * n_samples)), n_samples)


def batched_gradients(context: OperatorContext, gradients_of: GradientsOf) -> tuple[Batched, Batched]:
    """The gradients of both factors at the batch size of a context, and how they grow with that."""
    n_samples = context.options.batch_size
    made, doubled = gradients_of(context), gradients_of(context.at(2 * n_samples))
    return Batched.of(made.left, doubled.left, n_samples), Batched.of(made.right, doubled.right, n_samples)


def _split_cost(
    context: OperatorContext,
    product: Product,
    operands: tuple[int, ...],
    split: Split,
    coded: Split,
    tile_bytes: float,
) -> OperatorCost:
    codelets = [f"{product.engine.value}_{product.precision.value}", "copy", "transpose"]
    if coded.reduces:
        codelets.append(f"reduceAdd_{product.precision.value}")
    if coded.serial > 1:
        codelets.append("dynamicSlice")
    compute_cycles = split.compute_cycles + _cast_to_fp8(context, product, operands)
    compute_cycles += _move_parts_of_words(context, product)
    relayouts: list[Relayout] = []
    if not product.regroups:
        relayouts = [relayout_to_panels(context, index) for index in operands if context.is_activation(index)]
    return OperatorCost(
        family=Family.PRODUCT,
        exchange_cycles=split.exchange_cycles,
        compute_cycles=compute_cycles,
        codelets=tuple(codelets),
        n_tiles=coded.n_tiles,
        n_sources=coded.n_sources,
        working_bytes=ceil(tile_bytes) * coded.n_tiles,
        relayouts=tuple(relayouts),
        within_bound=split.within_bound,
    )


def allocated_share(regroups: bool) -> float:
    """The memory of a product over that of its plan, which leaves out copies before and after rearrangements.

    poplin's estimate leaves out that a rearranged operand exists twice for a while (ConvPlan.cpp,
    addConvTempMemoryEstimate [poplibs]); by how much more is fitted. Inputs that are regrouped, which the planner makes
    about half of the temporaries, exist twice on their tiles. What was fitted is inference: programs for training, of
    which only splits that fit are public, take what their plans count.
    """
    return _ALLOCATED_SHARE + _REGROUPED_SHARE * regroups


def _cast_to_fp8(context: OperatorContext, product: Product, operands: tuple[int, ...]) -> int:
    if product.precision is not Precision.FP8:
        return 0
    cycles = 0
    for index in filter(context.is_activation, operands):
        share = -(-context.n_elements(index) // context.n_tiles)
        cycles += round(kernels.elementwise(share, ("cast",), 1, Precision.FP16))
    return cycles


def _move_parts_of_words(context: OperatorContext, product: Product) -> int:
    """Cycles to regroup rows that do not fill words, as those of attention with an odd number of tokens in halves.

    Two words hold parts of two rows each:   |a a|a b|b b|   What a product reads and writes is regrouped in panels, and
    exchange and stores move words: so every element is loaded, merged into its word and stored by itself. In training
    only: in inference PopRT pads such attention, and published runs without that pass do not show the cost
    (docs/validation.md). Nothing is known of products with weights, whose rows are channels.
    """
    if not context.options.training or not all(map(context.is_activation, context.present[:2])):
        return 0
    width = 0
    if product.inputs * context.precision.n_bytes % kernels.WORD_BYTES:
        width += product.inputs
    if product.outputs * context.out_precision.n_bytes % kernels.WORD_BYTES:
        width += product.outputs
    share = -(-product.groups * product.width * width // context.n_tiles)
    if not share:
        return 0
    return kernels.COPY_CALL_CYCLES + kernels.PART_OF_WORD_CYCLES * share


def relayout_to_panels(context: OperatorContext, index: int) -> Relayout:
    """Bring a tensor into panels: every tile receives its share and copies it in order."""
    share = context.n_bytes(index) / context.n_tiles
    return Relayout(index, round(float(kernels.exchange(share) + kernels.copy(share))))


def transpose_panels(context: OperatorContext, index: int) -> Relayout:
    """Bring a tensor into panels of its other axis: every tile receives its share and reorders it by elements.

    What a product adds up lies together in a panel. Gradients add up another axis than the forward pass: poplin
    transposes its weights (weightsTransposeChansFlipXY, Convolution.cpp) and both factors of their gradient [poplibs].
    """
    share = context.n_bytes(index) / context.n_tiles
    inside = kernels.reorder(share / context.out_precision.n_bytes)
    return Relayout(index, round(float(kernels.exchange(share) + inside)))


def with_bias(context: OperatorContext, product: OperatorCost, bias: int, channel_axis: int) -> OperatorCost:
    """A product, and the addition of the operand at `bias`, if there is one."""
    if context.layer.op.endswith("Integer") or context.tensor(bias) is None:
        return product
    share = -(-context.n_out // context.n_tiles)
    n_received = min(context.out_shape[channel_axis], share)
    added = OperatorCost(
        family=Family.ELEMENTWISE,
        exchange_cycles=round(float(kernels.exchange(n_received * context.out_precision.n_bytes))),
        compute_cycles=round(kernels.elementwise(share, ("add",), 2, context.out_precision)),
        codelets=(f"add_{context.out_precision.value}",),
        n_tiles=context.n_tiles,
        n_sources=1,
    )
    return together(product, added)


def matrix_gradients(product_of: ProductOf) -> GradientsOf:
    """The gradients of (rows x inputs) by (inputs x outputs): dY W^T and X^T dY.

    >>> from autoauto.records.units import Precision
    >>> product = Product(ProductCodelet.GEMM, 1, 1, 1, 2, 3, 5, (1, 1), (1, 1), Precision.FP16)
    >>> [(f.width, f.inputs, f.outputs) for f in matrix_gradients(lambda _: product)(None)]
    [(2, 5, 3), (3, 2, 5)]
    """

    def gradients_of(context: OperatorContext) -> FactorGradients:
        product = product_of(context)
        left = product._replace(inputs=product.outputs, outputs=product.inputs)
        return FactorGradients(left, product._replace(width=product.inputs, inputs=product.width))

    return gradients_of


def two_operands(context: OperatorContext, right: int = 1) -> tuple[int, ...]:
    """The first operand and the other factor of a product, once when they are one tensor."""
    operands = context.layer.operands
    return tuple(dict.fromkeys((operands[0], operands[right])))


COST_RULES: dict[str, CostRule] = by_operator(
    {
        attention: "Attention FlexAttention",
        einsum: "Einsum",
        gemm: "Gemm",
        matmul: "MatMul MatMulInteger QLinearMatMul",
        recurrent: "LSTM GRU RNN",
    }
)

PRODUCTS: dict[str, tuple[ProductOf, ...]] = {
    "Attention": (attention_scores, attention_output),
    "FlexAttention": (attention_scores, attention_output),
    "MatMul": (matmul_product,),
    "MatMulInteger": (matmul_product,),
    "Gemm": (gemm_product,),
}
"""The products of an operator in its forward pass, as far as they are priced together (`registry.prepare`)."""

GRADIENTS: dict[str, tuple[GradientsOf, ...]] = {
    name: tuple(map(matrix_gradients, made)) for name, made in PRODUCTS.items()
}
"""The products of an operator in its backward pass, for each product of `PRODUCTS`."""
