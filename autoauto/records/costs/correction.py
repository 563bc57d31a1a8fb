"""Corrections of sums of layers, fitted to ranges compiled whole: `WholeRange`, `RangeExample`, `Correction`.

The class of a layer is its operator and the operator before it, for example "Relu after Conv" (`layer_classes`). The
features of a range are the cycles of its layers by class, and those of `RangeFeature`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import log
from typing import NamedTuple

from autoauto.records.layers import LayerRange

WEIGHTS_BYTES_PER_CYCLE = 10  # about as a core reads memory, so that the factor is near 1 like the factors of classes
MOVED_BYTES_PER_CYCLE = 3  # about as a core copies


class Estimator(StrEnum):
    """The estimator of the cost of a range of layers."""

    REGRESSION = "regression"
    """The sum over its layers, corrected by factors that are fitted to a few ranges compiled whole."""
    SUM = "sum"
    """The sum over its layers [auto-pipeline]."""


class RangeFeature(StrEnum):
    """The quantities that predict the forward pass of a range, besides the cycles of its layers by class."""

    WEIGHTS = "weights"
    """Cycles to read the weights of a range at `WEIGHTS_BYTES_PER_CYCLE`. A layer that is profiled alone finds its
    weights in the core's cache, where its last run left them; in a model it may not."""
    MOVED = "moved"
    """Where tensors lie in a memory far from the core: cycles to read and write the inputs and outputs of single layers
    there, at `MOVED_BYTES_PER_CYCLE`. They are subtracted from the classes of the layers. In a model a runtime avoids
    much of this traffic."""
    ENTRY = "entered"
    """The entry overhead, where tensors lie in a far memory: cycles to read the inputs of a range at
    `MOVED_BYTES_PER_CYCLE`. The runtime changes their layout, and does not fuse operators across the cut."""


class WholeRange(NamedTuple):
    """The costs of a range of layers that was compiled or run whole, for one micro-batch.

    Attributes:
        forward_cycles, backward_cycles: without transfers.
        memory_bytes: by category, without the stash of other micro-batches.
    """

    layers: LayerRange
    forward_cycles: int
    backward_cycles: int
    memory_bytes: Mapping[str, int]


class RangeExample(NamedTuple):
    """A range, and the costs of its layers, which were measured alone or in their model.

    Attributes:
        whole: the costs of the range as one program.
        forward_cycles, backward_cycles: of its layers, added up by class of layer.
        memory_bytes: by category, estimated from its layers.
        feature_cycles: the other features of its forward pass; `MOVED` and `ENTRY` on real devices only, the first of
            layers alone only.
    """

    whole: WholeRange
    batch_size: int  # samples of the micro-batch
    forward_cycles: Mapping[str, int]
    backward_cycles: Mapping[str, int]
    memory_bytes: Mapping[str, int]
    feature_cycles: Mapping[RangeFeature, int]


class PredictionInterval(NamedTuple):
    """A measured value lies above `low` and below `high` times its prediction, each with a probability of 95 %."""

    low: float
    high: float


EXACT = PredictionInterval(1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Correction:
    """Factors on the costs of single layers, so that their sum predicts the cost of a range compiled whole.

    No factor is negative, so a corrected range costs no less than a shorter one inside it, as with plain sums.

    Attributes:
        forward, backward: factor on a layer's cycles by its class; a missing class has the factor of its parent, see
            `parent_class`; "" is the root of all classes.
        features: factor on each feature of the forward pass that occurred in the fit.
        memory: factor on bytes by category; 1 for a missing category.
        batch_sizes: pairs of a batch size and a factor on all cycles, ascending; see `at_batch_size`.
        cycles_interval, memory_interval: prediction intervals of a range's cycles, and of its bytes over all
            categories.
    """

    forward: Mapping[str, float] = field(default_factory=dict)
    backward: Mapping[str, float] = field(default_factory=dict)
    features: Mapping[RangeFeature, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    batch_sizes: tuple[tuple[int, float], ...] = ()
    cycles_interval: PredictionInterval = EXACT
    memory_interval: PredictionInterval = EXACT
    n_examples: int = 0

    def at_batch_size(self, batch_size: int) -> float:
        """The factor on all cycles at a batch size: linear interpolation of log(factor) over log(batch size).

        Below the smallest size of the fit and above the largest, the factor is extrapolated up to half and twice that
        size, and constant beyond: a layer costs more alone than in its model, and the difference grows with its
        tensors, but not without bound. The slope is that between this size and the nearest one that differs from it by
        a factor of 2 or more.
        """
        if not self.batch_sizes:
            return 1.0
        factors = dict(self.batch_sizes)
        first, last = min(factors), max(factors)
        size = min(max(batch_size, first / 2), 2 * last)  # extrapolation ends here
        nearest_end = min(max(batch_size, first), last)
        # The two sizes that give the slope: around `size`, or beyond an end this end and one at a factor of 2 or more.
        below = size if size <= last else last / 2
        above = size if size >= first else 2 * first
        low = max((n for n in factors if n <= below), default=nearest_end)
        high = min((n for n in factors if n >= above), default=nearest_end)
        if high <= low:
            return float(factors[low])
        share = log(size / low) / log(high / low)
        return float(factors[low] * (factors[high] / factors[low]) ** share)


PLAIN_SUM = Correction()
"""The estimate of [auto-pipeline]: no factors, and no knowledge about the errors."""


def parent_class(layer_class: str) -> str | None:
    """The next wider class: "Relu" for "Relu after Conv", "" for "Relu"; None for ""."""
    if not layer_class:
        return None
    operator, after, _ = layer_class.partition(" after ")
    return operator if after else ""
