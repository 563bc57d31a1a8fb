"""Measured times of kernels that are taken in place of others: `KernelExceptions`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from autoauto.records.costs.blocks import Attention
from autoauto.records.costs.decoder import Decoder, WeightFormat


class StandIn(NamedTuple):
    """Times that stand for others.

    Attributes:
        weights: the format whose times are not taken.
        systems: the GPUs; none means all.
        products: the format whose times of products are taken; None where those of experts are.
        reason: why, as the end of a sentence.
    """

    weights: WeightFormat
    systems: tuple[str, ...]
    products: WeightFormat | None
    reason: str

    def is_of(self, system: str, weights: WeightFormat) -> bool:
        """Whether products or experts of a format on GPUs of a system have other times."""
        return weights is self.weights and (not self.systems or system in self.systems)

    def is_asked(self, decoder: Decoder, system: str) -> bool:
        """Whether a decoder as it is published has such times on GPUs of a system."""
        unlike = [each.weights for kind in decoder.block_kinds for _, each in kind.unlike]
        stored = [decoder.checkpoint.weights, *unlike]
        has_part = self.products is not None or decoder.experts is not None
        return has_part and any(self.is_of(system, weights) for weights in stored)

    def note(self, engine: str) -> str:
        """A sentence for the answer."""
        of, what = f"experts in {self.weights} that are split", "experts that are dealt whole"
        if self.products is not None:
            of, what = f"products in {self.weights}", f"products in {self.products}"
        where = f" on {', '.join(self.systems)}" if self.systems else ""
        return f"for {of} by {engine}{where} times of {what} are taken: {self.reason}"


class AttentionStandIn(NamedTuple):
    """Another engine's times of the attention of decode steps, where every head has keys and values of its own.

    Attributes:
        reason: why, as the end of a sentence.
    """

    systems: tuple[str, ...]
    engine: str
    reason: str

    def is_of(self, decoder: Decoder, system: str) -> bool:
        """Whether most blocks of a decoder have such attention, on GPUs of a system."""
        attention = decoder.kind.attention
        is_plain = isinstance(attention, Attention) and attention.n_heads == attention.n_kv_heads
        return is_plain and system in self.systems

    def note(self, engine: str) -> str:
        """A sentence for the answer."""
        return (
            f"for attention of heads that share no keys and values, by {engine} on {', '.join(self.systems)}, times of "
            f"{self.engine} are taken: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class KernelExceptions:
    """The kernels of an engine whose times are not simply those measured of `Engine.kernel_times`.

    Attributes:
        of_experts: what the package of measured times calls the engine's own kernels of experts, by format.
        dispatch_reduces: True if the measured dispatch of tokens to experts has the all-reduce behind the attention.
        stand_ins: measured times that are taken in place of others.
        attention: another engine's times of attention that are taken.
        product_factors: by what measured times of matrix products are multiplied, by the format of the weights.
    """

    of_experts: Mapping[WeightFormat, tuple[str, ...]] = field(default_factory=dict)
    dispatch_reduces: bool = False
    stand_ins: tuple[StandIn, ...] = ()
    attention: AttentionStandIn | None = None
    product_factors: Mapping[WeightFormat, float] = field(default_factory=dict)

    def stand_in(self, system: str, weights: WeightFormat, *, of_products: bool) -> StandIn | None:
        """Whose times are taken for products, or for split experts, of a format; None where they are its own."""
        for each in self.stand_ins:
            if each.is_of(system, weights) and (each.products is not None) == of_products:
                return each
        return None


NO_EXCEPTIONS = KernelExceptions()
