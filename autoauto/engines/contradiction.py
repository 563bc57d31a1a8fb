"""Forecasts of an engine that measured rows contradict and that nothing explains: `Contradiction`.

They are shown as all others, with an interval that holds the measured rows, and with a line that says why. Figures are
of the even half of `systems/silicon_sample.csv` [aiconfigurator] (`studies/gpu_accuracy.py --half even`): ten rows or
more, whose median is off by 40 % or more, whatever the model.
"""

from __future__ import annotations

from typing import NamedTuple

from autoauto.records.costs.decoder import Decoder, WeightFormat


class Contradiction(NamedTuple):
    """Rows that contradict the forecasts of a kind of models by an engine.

    Attributes:
        has_experts: True if they are of mixtures of experts, False if of dense models.
        tpot: measured over forecast time between tokens: the smallest, the median and the largest.
        reason: what is known of them.
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
