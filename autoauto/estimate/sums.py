"""Running sums: what a range costs is the difference of two entries."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

import numpy as np

from autoauto.records.cost import BoolArray, IntArray
from autoauto.records.errors import BadInput
from autoauto.records.profile import ModelProfile

EXACT = 2**53  # up to here a float64 and an int64 hold every integer


def prefix_sums(values: Sequence[int], what: str) -> IntArray:
    """Sum everything before each position: (n,) values to (n + 1,) sums.

    Raises:
        BadInput: the values, which `what` names, are too large to be added exactly.

    >>> prefix_sums([3, 1, 2], "cycles").tolist()
    [0, 3, 4, 6]
    """
    if sum(values) > EXACT:
        raise BadInput(f"{what} of all layers must add up to at most 2**53, got {sum(values)}; check the unit")
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.array(values, dtype=np.int64))))


def compute_prefix_cycles(profile: ModelProfile, recompute: bool = False) -> IntArray:
    """Running sum of forward and backward cycles, (n + 1,); the seed, which knows inference only, has no backward."""
    forward = [layer.forward_cycles for layer in profile.layers]
    return prefix_sums(list(map(add, forward, _backward_cycles(profile, recompute))), "cycles")


def backward_prefix_cycles(profile: ModelProfile, recompute: bool = False) -> IntArray:
    """Running sum of backward cycles, (n + 1,); with `recompute` the forward pass is done again before."""
    return prefix_sums(_backward_cycles(profile, recompute), "backward cycles")


def weight_prefix_cycles(profile: ModelProfile) -> IntArray:
    """Running sum of the cycles that make the gradients of weights, (n + 1,)."""
    return prefix_sums([layer.weight_cycles for layer in profile.layers], "weight cycles")


def _backward_cycles(profile: ModelProfile, recompute: bool) -> list[int]:
    return [layer.backward_cycles + recompute * layer.forward_cycles for layer in profile.layers]


def cut_allowed(tied: Sequence[str | None]) -> BoolArray:
    """Whether a stage may end and the next begin before layer i, (n + 1,); layers of equal key share a stage.

    A stage holds all layers of a key, or none, unless one of its ends lies after the key's first layer and not after
    its last. Two flags a key and a running sum count the keys that forbid each cut.

    >>> cut_allowed(["w", None, "w", None]).tolist()
    [True, False, False, True, True]
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for index, key in enumerate(tied):
        if key is not None:
            first.setdefault(key, index)
            last[key] = index
    flags = np.zeros(len(tied) + 2, dtype=np.int64)
    np.add.at(flags, np.array(list(first.values()), dtype=np.int64) + 1, 1)
    np.subtract.at(flags, np.array(list(last.values()), dtype=np.int64) + 1, 1)
    allowed: BoolArray = np.cumsum(flags)[:-1] == 0
    return allowed
