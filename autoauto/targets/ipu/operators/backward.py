"""The backward pass of every operator: which passes over data its derivative needs, priced as the forward pass is.

With dY the gradient of what a layer writes, dX of what it reads and dW of what it learns:

    family       dX                                            dW, then added to what earlier micro-batches made
    product      the product of dY and the other factor        the product of X transposed and dY
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

Where an operand was repeated along an axis, its gradient is summed over it. An operator that is not named takes what
it takes forward. Weights change once a step, by plain gradient descent, which keeps no state: nothing here is for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autoauto.records.layers import Derivative
from autoauto.targets.ipu.operator_cost import Site, Work
from autoauto.targets.ipu.operators import data_movement as moves
from autoauto.targets.ipu.operators import products, rows
from autoauto.targets.ipu.operators import products as factors
from autoauto.targets.ipu.operators import registry as operators
from autoauto.targets.ipu.operators.gradients import Gradients, for_operand, join, one_pass, summed
from autoauto.targets.ipu.operators.products import Factors

Rule = Callable[[Site, Derivative], Gradients]

_PASSED_ON = frozenset({"Add", "Cast", "Dropout", "Identity", "Mean", "Sub", "Sum"})

# f'(x) dY in the loops of `tables.LOOPS`, a product being as fast as "add"; all other operators take their own loops
# again and two products.
_DERIVATIVES: dict[str, tuple[str, ...]] = {
    "Div": ("divide", "add"),
    "Erf": ("square", "exponent", "add"),
    "Exp": ("add",),
    "Mul": ("add",),
    "Neg": ("negate",),
    "Reciprocal": ("square", "add"),
    "Relu": ("relu", "add"),
    "Rsqrt": ("square", "add", "add"),
    "Sigmoid": ("add", "add", "add"),
    "Sqrt": ("divide", "add"),
    "Tanh": ("square", "add", "add"),
    "Where": ("select",),
}


def backward(site: Site, derivative: Derivative) -> Gradients:
    """The backward pass of one layer that is trained; its codelets are not those of the forward pass."""
    rule = _RULES.get(operators.WORKS.get(site.layer.op, moves.anything), _again)
    inputs, weights = rule(site, derivative)
    return Gradients(tuple(map(_own_codelets, inputs)), tuple(map(_own_codelets, weights)))


def _own_codelets(work: Work) -> Work:
    return replace(work, codelets=tuple(f"{name}_backward" for name in work.codelets))


def _again(site: Site, derivative: Derivative) -> Gradients:
    """As much as the forward pass."""
    if not any(derivative.needs_gradient(operand) for operand in site.present):
        return Gradients()
    return Gradients(inputs=(operators.work(site),))


def _elementwise(site: Site, derivative: Derivative) -> Gradients:
    passed_on = site.layer.op in _PASSED_ON
    loops = _DERIVATIVES.get(site.layer.op) or (*operators.loops_of(site), "add", "add")
    parts, n_passed_on = [], 0
    for operand in site.present:
        works = summed(site, operand)
        if not passed_on:
            works = (one_pass(site, site.n_out, loops), *works)
        elif derivative.needs_gradient(operand) and not works:
            works = (moves.relayout(site, site.out_bytes, per_element=False),) if n_passed_on else ()
            n_passed_on += 1
        parts.append(for_operand(site, derivative, operand, *works))
    return join(*parts)


def _multiplied(site: Site, derivative: Derivative, roles: Factors, left: int, right: int) -> Gradients:
    """The gradients of two factors; every tensor that is read is brought into the right order once."""
    parts: list[Gradients] = []
    for operand, other, product in ((left, right, roles.left), (right, left, roles.right)):
        if derivative.has_gradient(site.layer, operand):
            read = (other,) if parts else (site.layer.outputs[0], other)
            demands = tuple(products.rearrange(site, index) for index in read)
            work = replace(products.multiply(site, product), demands=demands)
            parts.append(for_operand(site, derivative, operand, work))
    return join(*parts)


def _biased(site: Site, derivative: Derivative, roles: Factors) -> Gradients:
    """The gradients of two factors, and of what is added to their product, if anything is."""
    product = _multiplied(site, derivative, roles, *site.layer.operands[:2])
    if site.tensor(2) is None:
        return product
    bias = site.layer.operands[2]
    return join(product, for_operand(site, derivative, bias, *summed(site, bias)))


def _matmul(site: Site, derivative: Derivative) -> Gradients:
    return _multiplied(site, derivative, factors.of_gemm(products.matmul(site)), *site.layer.operands[:2])


def _gemm(site: Site, derivative: Derivative) -> Gradients:
    return _biased(site, derivative, factors.of_gemm(products.gemm_of(site)))


def _einsum(site: Site, derivative: Derivative) -> Gradients:
    if len(site.layer.operands) != 2:
        return _again(site, derivative)
    return _multiplied(site, derivative, factors.of_gemm(products.einsum(site)), *site.layer.operands)


def _convolution(site: Site, derivative: Derivative) -> Gradients:
    return _biased(site, derivative, factors.of_convolution(site))


def _transposed_convolution(site: Site, derivative: Derivative) -> Gradients:
    return _biased(site, derivative, factors.of_transposed_convolution(site))


def _attention(site: Site, derivative: Derivative) -> Gradients:
    """Both products with either of their factors, and the softmax between them; scores lie as the queries do."""
    queries, keys, values = site.layer.operands[:3]
    scores, mixed = products.attention(site)
    n_rows = scores.groups * scores.width
    return join(
        _multiplied(site, derivative, factors.of_gemm(mixed), queries, values),
        Gradients(_along_rows(site, n_rows * scores.outputs, n_rows)),
        _multiplied(site, derivative, factors.of_gemm(scores), queries, keys),
    )


def _recurrent(site: Site, derivative: Derivative) -> Gradients:
    """The gates and the state step by step; the inputs and the weights of all steps at once."""
    steps, batch, inputs = (*site.shape(0), 1, 1)[:3]
    directions, gates, hidden = (*site.shape(2), 1, 1)[:3]
    state = products.multiply(site, products.gemm(site, directions, batch, gates, hidden))
    nonlinear = one_pass(site, batch * directions * gates, ("sigmoid", "add", "add", "add", "add"))
    step = replace(
        state,
        exchange_cycles=steps * state.exchange_cycles,
        compute_cycles=steps * (state.compute_cycles + nonlinear.compute_cycles),
        codelets=(*state.codelets, "gates"),
    )
    at_once = (
        products.gemm(site, directions, steps * batch, gates, inputs),
        products.gemm(site, directions, inputs, steps * batch, gates),
        products.gemm(site, directions, hidden, steps * batch, gates),
    )
    made = zip(site.layer.operands, (products.multiply(site, product) for product in at_once), strict=False)
    parts = (for_operand(site, derivative, operand, product) for operand, product in made)
    return join(Gradients(inputs=(step,)), *parts)


def _norm(site: Site, derivative: Derivative) -> Gradients:
    source, *learned = site.present
    forward, product = operators.work(site), one_pass(site, site.n_out, ("add", "add"))
    parts = [for_operand(site, derivative, source, forward, product)]
    for operand in learned:
        parts.append(
            for_operand(site, derivative, operand, one_pass(site, site.n_out, ("add",)), *summed(site, operand))
        )
    return join(*parts)


def _softmax(site: Site, derivative: Derivative) -> Gradients:
    shape = site.shape(0)
    keys = shape[site.axis(-1, len(shape))] if shape else 1
    return for_operand(
        site, derivative, site.layer.operands[0], *_along_rows(site, site.n_out, site.n_out // max(keys, 1))
    )


def _along_rows(site: Site, n_elements: int, n_rows: int) -> tuple[Work, ...]:
    """The derivative of a softmax."""
    summed_rows = rows.reduce_to(site, n_elements, max(n_rows, 1))
    return one_pass(site, n_elements, ("add",)), summed_rows, one_pass(site, n_elements, ("add", "add"))


def _reduction(site: Site, derivative: Derivative) -> Gradients:
    source = site.present[0]
    works = [moves.relayout(site, site.n_bytes(source), per_element=False)]
    if "Max" in site.layer.op or "Min" in site.layer.op:
        works.append(one_pass(site, site.n_elements(source), ("compare", "add")))
    return for_operand(site, derivative, source, *works)


def _look_up(site: Site, derivative: Derivative) -> Gradients:
    table = site.layer.operands[0]
    added = operators.work(site)
    if derivative.needs_gradient(table):
        return Gradients(inputs=(moves.relayout(site, site.n_bytes(table), per_element=False), added))
    return Gradients(weights=(added,)) if derivative.is_parameter(site.layer, table) else _again(site, derivative)


def _move(site: Site, derivative: Derivative) -> Gradients:
    if site.layer.op in ("Expand", "Tile"):
        return for_operand(site, derivative, site.present[0], *summed(site, site.present[0]))
    wanted = [operand for operand in site.present if derivative.needs_gradient(operand)]
    n_bytes = max(site.out_bytes, sum(map(site.n_bytes, wanted)))
    moved = (moves.relayout(site, n_bytes, per_element=False),) if wanted else ()
    learned = [operand for operand in site.present if operand not in wanted]
    return join(Gradients(moved), *(for_operand(site, derivative, operand) for operand in learned))


# By the rule of the forward pass; what is missing takes as much as that.
_RULES: dict[Callable[[Site], Work], Rule] = {
    moves.look_up: _look_up,
    moves.move: _move,
    operators.attention: _attention,
    operators.convolution: _convolution,
    operators.einsum: _einsum,
    operators.elementwise: _elementwise,
    operators.gemm: _gemm,
    operators.matmul: _matmul,
    operators.transposed_convolution: _transposed_convolution,
    products.recurrent: _recurrent,
    rows.field_norm: _norm,
    rows.group_norm: _norm,
    rows.layer_norm: _norm,
    rows.reduction: _reduction,
    rows.softmax: _softmax,
}
