"""Which configurations of engines are alike: `coordinates`.

Errors of forecasts are alike where configurations are. How far two are from each other is told in powers of 2 of what
they count, each in units in which the correlation of errors falls to 1/e.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray


class Likeness(NamedTuple):
    """A configuration of one replica, as far as errors of forecasts depend on it.

    Attributes:
        n_sequences: in flight.
        tensor_parallel: GPUs of a group.
        n_stages: groups that form a pipeline.
        expert_parallel: among how many GPUs experts are dealt.
        attention_parallel: groups whose attention has sequences of its own.
    """

    n_sequences: float
    tensor_parallel: float = 1.0
    n_stages: float = 1.0
    expert_parallel: float = 1.0
    attention_parallel: float = 1.0


LENGTHS = Likeness(5.5, 3.5, 3.5, 6.0, 4.0)
"""Powers of 2 after which the correlation of errors falls to 1/e."""


def coordinates(configurations: Sequence[Likeness]) -> FloatArray:
    """The coordinates of configurations, (configurations, axes), for `correlations`."""
    scaled: FloatArray = np.log2(np.array(configurations, dtype=float)) / np.array(LENGTHS)
    return scaled
