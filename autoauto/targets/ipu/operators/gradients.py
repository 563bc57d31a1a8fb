"""What the backward pass of a layer is made of: `Gradients`."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from autoauto.records.layers import Derivative
from autoauto.targets.ipu.kernels import codelets as kernels
from autoauto.targets.ipu.operator_cost import Family, Site, Work
from autoauto.targets.ipu.operators import rows


class Gradients(NamedTuple):
    """The works that make the gradients of what a layer reads, and of what it learns."""

    inputs: tuple[Work, ...] = ()
    weights: tuple[Work, ...] = ()

    @property
    def works(self) -> tuple[Work, ...]:
        """All of them."""
        return self.inputs + self.weights


def cycles(works: tuple[Work, ...]) -> int:
    """Cycles of works one after the other; no neighbour spares them a copy."""
    return sum(work.cycles + sum(demand.cycles for demand in work.demands) for work in works)


def join(*parts: Gradients) -> Gradients:
    """Several gradients of one layer, in order."""
    return Gradients(
        tuple(work for part in parts for work in part.inputs), tuple(work for part in parts for work in part.weights)
    )


def one_pass(site: Site, n_elements: int, loops: tuple[str, ...], n_operands: int = 2) -> Work:
    """One pass over `n_elements`, in place, with the inner loops `loops`."""
    share = -(-n_elements // site.n_tiles)
    compute = round(kernels.elementwise(share, loops, n_operands, site.precision))
    return Work(Family.ELEMENTWISE, 0, compute, (f"{'+'.join(loops)}_{site.precision.value}",), site.n_tiles)


def summed(site: Site, operand: int) -> tuple[Work, ...]:
    """The sum over all axes along which the output repeats an operand; none where it does not."""
    n_elements = max(site.n_elements(operand), 1)
    return (rows.reduce_to(site, site.n_out, n_elements),) if n_elements < site.n_out else ()


def for_operand(site: Site, derivative: Derivative, operand: int, *works: Work) -> Gradients:
    """`works` as what makes the gradient of an operand; that of a parameter is added to those of earlier micro-batches.

    Until it is added, a micro-batch's own gradient lies beside their sum. Nothing when the operand has no gradient.
    """
    if not derivative.has_gradient(site.layer, operand):
        return Gradients()
    if derivative.needs_gradient(operand):
        return Gradients(inputs=works)
    added = one_pass(site, site.n_elements(operand), ("add",))
    return Gradients(weights=(*works, replace(added, working_bytes=site.n_bytes(operand))))
