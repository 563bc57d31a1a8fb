"""What changes the weights once a step of training, and what it holds for that: `Optimizer`, `WeightUpdate`."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from autoauto.records.units import Precision


class Optimizer(StrEnum):
    """How gradients change weights."""

    SGD = "sgd"
    """Gradient descent without state."""
    MOMENTUM = "momentum"
    """Gradient descent with a velocity in the format of the weights."""
    ADAM = "adam"
    """Two moments in fp32 [adam]."""
    LAMB = "lamb"
    """Those of Adam, and a step of every weight tensor in proportion to its norm [lamb]."""


MASTER_WEIGHT = "masterWeight"
_MOMENTS = {"firstMoment": Precision.FP32, "secondMoment": Precision.FP32}
# The format of a state by its category of memory; None is that of the weights. Moments have fp32 by default in
# Graphcore's BERT [graphcore-examples].
_STATES: dict[Optimizer, dict[str, Precision | None]] = {
    Optimizer.SGD: {},
    Optimizer.MOMENTUM: {"velocity": None},
    Optimizer.ADAM: {**_MOMENTS},
    Optimizer.LAMB: {**_MOMENTS},
}


class WeightUpdate(NamedTuple):
    """How the weights of a stage change at the end of a step.

    Attributes:
        optimizer: makes the change.
        master_weights: whether there is a copy of the weights in fp32, which is changed and then rounded.
        n_shards: replicas that share the states: each updates as large a part, and then all gather the weights.
    """

    optimizer: Optimizer = Optimizer.SGD
    master_weights: bool = False
    n_shards: int = 1

    def state_bytes(self, gradient_bytes: int, precision: Precision) -> dict[str, int]:
        """Bytes of the states on a device by category, where gradients of so many bytes have the format of the weights.

        >>> WeightUpdate(Optimizer.ADAM).state_bytes(200, Precision.FP16)
        {'firstMoment': 400, 'secondMoment': 400}
        >>> WeightUpdate(Optimizer.MOMENTUM, master_weights=True, n_shards=4).state_bytes(200, Precision.FP16)
        {'velocity': 50, 'masterWeight': 100}
        """
        formats = dict(_STATES[self.optimizer])
        if self.has_master_weights(precision):
            formats[MASTER_WEIGHT] = Precision.FP32
        n_bytes = {name: gradient_bytes * (kind or precision).n_bytes for name, kind in formats.items()}
        return {name: -(-n // (precision.n_bytes * self.n_shards)) for name, n in n_bytes.items()}

    def has_master_weights(self, precision: Precision) -> bool:
        """Whether the weights have a copy: only where they are shorter than fp32."""
        return self.master_weights and precision is not Precision.FP32
