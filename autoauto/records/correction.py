"""What ranges compiled whole teach about sums of layers: `WholeRange`, `RangeExample`, `Band`, `Correction`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import log
from typing import NamedTuple, Protocol

from autoauto.records.layers import LayerRange

WEIGHTS = "weights"
"""Stands beside the classes of layers with the bytes of their weights, divided by `WEIGHTS_SCALE`: a layer alone finds
its weights in a cache, where its last run left them, in a model perhaps not."""
WEIGHTS_SCALE = 10  # bytes a cycle, about as a core reads memory, so that its factor is near 1 like those of classes


MOVED = "moved"
"""Stands beside the classes where tensors lie in a memory far from the core, with the part of the layers' cycles alone
that would suffice to read and write their tensors there: in a model a runtime spares much of it. The classes have the
rest."""
ENTERED = "entered"
"""As `MOVED`, what would suffice to read what a range receives: the runtime lays it out anew, and what it would fuse
over the cut it does not."""
MOVED_SCALE = 3  # bytes a cycle, about as a core copies

FIT = 4
"""Raised when equal examples teach something else than before."""


class Estimator(StrEnum):
    """How the cost of a range is estimated."""

    REGRESSION = "regression"
    """The sum over its layers, corrected by what a few ranges compiled whole cost."""
    SUM = "sum"
    """The sum over its layers (seed 001)."""


class WholeRange(NamedTuple):
    """What a range of layers took as one: one micro-batch.

    Attributes:
        layers: the range.
        forward_cycles, backward_cycles: without transfers.
        memory_bytes: by category, without what waits of other micro-batches.
    """

    layers: LayerRange
    forward_cycles: int
    backward_cycles: int
    memory_bytes: Mapping[str, int]


class RangeExample(NamedTuple):
    """A range beside what its layers took alone.

    Attributes:
        whole: the range as one.
        batch_size: samples in the micro-batch.
        forward_cycles, backward_cycles: of its layers alone, added up by class of layer; forward also has `WEIGHTS`,
            and on real devices `MOVED` and `ENTERED`.
        memory_bytes: by category, estimated from its layers alone.
    """

    whole: WholeRange
    batch_size: int
    forward_cycles: Mapping[str, int]
    backward_cycles: Mapping[str, int]
    memory_bytes: Mapping[str, int]


class Band(NamedTuple):
    """Where a measured value lies relative to its prediction: above `low` times it and below `high` times it."""

    low: float
    high: float


EXACT = Band(1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Correction:
    """Factors on what layers cost alone, so that their sum is what a range costs whole.

    No factor is negative, so a corrected range costs no less than a shorter one inside it, as with plain sums.

    Attributes:
        forward, backward: factor on a layer's cycles by its class; a class that is missing has its parent's, see
            `parent`, and "" is the root. Forward may have factors of `WEIGHTS`, and of `MOVED` and `ENTERED`.
        memory: factor on bytes by category; 1 for one that is missing.
        batch_sizes: ascending batch sizes, each with a factor on all cycles; see `at_batch_size`.
        cycles_band, memory_band: around the predictions of a range's cycles, and of its bytes over all categories.
        n_examples: how many ranges taught this.
    """

    forward: Mapping[str, float] = field(default_factory=dict)
    backward: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    batch_sizes: tuple[tuple[int, float], ...] = ()
    cycles_band: Band = EXACT
    memory_band: Band = EXACT
    n_examples: int = 0

    def at_batch_size(self, batch_size: int) -> float:
        """The factor on all cycles at a batch size: by logarithms on the line between its neighbours.

        The line goes on beyond the ends for a factor of 2, as it goes between the end and a size of half or twice it,
        or farther: what a layer alone costs more than in its model grows with its tensors, and not without end.

        >>> correction = Correction(batch_sizes=((1, 1.0), (4, 0.64)))
        >>> [round(correction.at_batch_size(n), 3) for n in (1, 2, 8, 16)], PLAIN_SUM.at_batch_size(3)
        ([1.0, 0.8, 0.512, 0.512], 1.0)
        """
        if not self.batch_sizes:
            return 1.0
        factors = dict(self.batch_sizes)
        first, last = min(factors), max(factors)
        at, end = min(max(batch_size, first / 2), 2 * last), min(max(batch_size, first), last)
        low = max((size for size in factors if size <= (at if at <= last else last / 2)), default=end)
        high = min((size for size in factors if size >= (at if at >= first else 2 * first)), default=end)
        share = log(at / low) / log(high / low) if high > low else 0.0
        return float(factors[low] * (factors[high] / factors[low]) ** share)


PLAIN_SUM = Correction()
"""The seed's own estimate: nothing is corrected, nothing is known about its errors."""


class Examples(Protocol):
    """What has been measured of one subject, and what it taught last."""

    def batch_sizes(self) -> Mapping[int, int]:
        """How many examples there are of every batch size."""

    def examples(self) -> Sequence[RangeExample]:
        """All of them."""

    def correction(self) -> Correction:
        """The correction that was kept last; `PLAIN_SUM` when there is none."""

    def keep(self, correction: Correction) -> None:
        """Keep a correction in place of the last one."""


def parent(layer_class: str) -> str | None:
    """The wider class that "Relu after Conv" belongs to is "Relu", and that of "Relu" is ""; what is none has none.

    >>> parent("Relu after Conv"), parent("Relu"), parent(""), parent(WEIGHTS)
    ('Relu', '', None, None)
    """
    if layer_class in ("", WEIGHTS, MOVED, ENTERED):
        return None
    operator, after, _ = layer_class.partition(" after ")
    return operator if after else ""
