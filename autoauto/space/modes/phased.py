"""Phases, one after the other on every device: `Phased`, and its knobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from autoauto.records.errors import BadInput, Mismatch
from autoauto.records.knob import Knob, whole
from autoauto.records.schedule import Order
from autoauto.space.modes.mode import MAX_VALUES, Mode, Strategy
from autoauto.space.modes.training import RECOMPUTE

STEPS = Knob(
    "steps",
    whole(MAX_VALUES),
    16,
    "micro-batches that go through a phase before the next begins",
    "16",
    ("16", "16"),
    absent=1,
    label="micro-batches",
    sets="n_micro_batches",
    searched=(16,),
    is_shown=True,
)


@dataclass(frozen=True, slots=True)
class Phased(Mode):
    """Phases, one after the other on every device, from streaming memory [popxl-phased]."""

    knobs: ClassVar[tuple[Knob, ...]] = (RECOMPUTE, STEPS)
    strategy: ClassVar[Strategy] = Strategy.PHASED
    purpose: ClassVar[str] = "phases"
    option: ClassVar[str] = "--strategy phased"
    n_micro_batches: int = STEPS.default  # that go through a phase before the next phase begins
    recompute: bool = False  # the backward pass computes all activations of a phase again
    training: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.recompute, bool):
            raise Mismatch("phases recompute all or nothing, got recompute auto; try on or off")
        if self.n_micro_batches < 1:
            raise BadInput(f"steps must be at least 1, got {self.n_micro_batches}")

    @property
    def order(self) -> Order:
        """Phases train in `Order.SEQUENTIAL`."""
        return Order.SEQUENTIAL if self.training else Order.INFERENCE

    @property
    def values(self) -> dict[str, Any]:
        """The value of every knob that has an effect, and the strategy."""
        values = {"strategy": self.strategy, "n_micro_batches": self.n_micro_batches}
        return {"schedule": self.order, "recompute": self.recompute, **values} if self.training else values

    @override
    def check(self, n_ipu: int, replicas: int) -> None:
        if replicas > 1:
            raise BadInput("replicas are pipelines side by side, got phases; try --strategy pipeline")
