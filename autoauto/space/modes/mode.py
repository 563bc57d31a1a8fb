"""The base class of all modes, `Mode`, and the ways to run a model, `Strategy`."""

from __future__ import annotations

from abc import ABC
from enum import StrEnum
from typing import ClassVar

from autoauto.records.costs.profile import WeightUpdate
from autoauto.records.knob import HasKnobs, Knob, words
from autoauto.records.layers import LayerRange
from autoauto.records.schedule import Order

MAX_VALUES = 100_000  # of one knob, and of a count of devices


class Recompute(StrEnum):
    """The stages that compute their forward pass again, where neither all (True) nor none (False) do."""

    AUTO = "auto"
    """Those whose stash does not fit."""


class Strategy(StrEnum):
    """A way to run a model that may be too large for the memory of one device."""

    PIPELINE = "pipeline"
    """Stages, one a device."""
    PHASED = "phased"
    """Phases, one after the other on every device, from streaming memory [popxl-phased]."""


STRATEGY = Knob(
    "strategy",
    words(Strategy, tuple(Strategy), tuple(Strategy)),
    Strategy.PIPELINE,
    "stages on several devices, or phases on each, from streaming memory",
    "pipeline,phased",
    ("pipeline", "both, where the cluster has a streaming memory"),
    is_shown=True,
)


class Mode(HasKnobs, ABC):
    """The purpose for which a model runs, and the way it runs; the fields of a subclass are its knobs.

    Attributes:
        strategy: pipeline or phases.
        purpose, option: what it is for, and the option that asks for it.
        sample: what throughput counts, as one noun.
        parts: the layers of a stage that are shown, as several.
    """

    __slots__ = ()
    strategy: ClassVar[Strategy] = Strategy.PIPELINE
    purpose: ClassVar[str]
    option: ClassVar[str]
    sample: ClassVar[str] = "sample"
    parts: ClassVar[str] = "layers"

    @property
    def training(self) -> bool:
        """True if there is a backward pass."""
        return False

    @property
    def order(self) -> Order:
        """The order of forward and backward passes; `Order.INFERENCE` where there are none."""
        return Order.INFERENCE

    @property
    def n_micro_batches(self) -> int:
        """Micro-batches of one step; 1 where there are no steps."""
        return 1

    @property
    def stages_per_device(self) -> int:
        """Stages of every device."""
        return 1

    @property
    def recompute(self) -> bool | Recompute:
        """The stages that stash only their inputs for the backward pass, and compute the rest again."""
        return False

    @property
    def recomputes_all(self) -> bool:
        """True if every stage computes its forward pass again; False also where stages choose."""
        return self.recompute is True

    @property
    def may_recompute(self) -> bool:
        """True if some stage may compute its forward pass again."""
        return self.recompute is not False

    @property
    def stage_replicas(self) -> bool:
        """True if several devices of a pipeline may run one stage and take its micro-batches in turn."""
        return False

    def parts_of(self, layers: LayerRange, n_layers: int) -> str:
        """The layers of a stage in words, below `parts` as a head."""
        return str(layers)

    def parts_text(self, layers: LayerRange, n_layers: int) -> str:
        """The layers of a stage in words that stand alone."""
        return f"{self.parts} {self.parts_of(layers, n_layers)}"

    def parts_short(self, layers: LayerRange, n_layers: int) -> str:
        """The layers of a stage beside its number, where there is little room."""
        return self.parts_of(layers, n_layers)

    def weight_update(self, replicas: int) -> WeightUpdate:
        """The update of the weights at the end of a step of training."""
        return WeightUpdate()

    def check(self, n_ipu: int, replicas: int) -> None:
        """Raise BadInput for what does not go together with a pipeline of `n_ipu` devices, or with so many of them."""
