"""Measured times of kernels that are taken in place of others, `KernelExceptions`, and a `Contradiction` by rows."""

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
    """

    weights: WeightFormat
    systems: tuple[str, ...]
    products: WeightFormat | None
    reason: str  # why, as the end of a sentence

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
    """Another engine's times of attention in decode steps, where every head has keys and values of its own."""

    systems: tuple[str, ...]
    engine: str  # whose times are taken
    reason: str  # why, as the end of a sentence

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


class Contradiction(NamedTuple):
    """Rows that contradict the forecasts of a kind of models by an engine, and that nothing explains.

    The forecasts are shown as all others, with an interval that holds the measured rows, and with a line that says why.
    Figures are of the even half of `systems/silicon_sample.csv` [aiconfigurator] (`studies/gpu_accuracy.py --half
    even`): ten rows or more, whose median is off by 40 % or more, whatever the model.

    Attributes:
        has_experts: True if they are of mixtures of experts, False if of dense models.
        tpot: measured over forecast time between tokens: the smallest, the median and the largest.
    """

    system: str
    weights: WeightFormat
    has_experts: bool
    n_rows: int
    tpot: tuple[float, float, float]
    reason: str

    def is_of(self, decoder: Decoder) -> bool:
        """Whether a decoder is of the kind of models."""
        return self.has_experts == (decoder.experts is not None)

    def note(self, engine: str) -> str:
        """A sentence for the answer."""
        smallest, middle, largest = self.tpot
        models = "mixtures of experts" if self.has_experts else "dense models"
        return (
            f"forecasts of {models} by {engine} in {self.weights} on {self.system} are not trusted: {self.n_rows} "
            f"measured rows have {middle:.2g} times their TPOT ({smallest:.2g} to {largest:.2g}); {self.reason}"
        )
