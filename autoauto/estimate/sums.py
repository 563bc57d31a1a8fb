"""Running sums over layers, `prefix_sums`, whose differences are costs of ranges; legal cuts, `cut_allowed`."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

import numpy as np

from autoauto.records.costs.profile import ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.units import MAX_EXACT, BoolArray, IntArray


def prefix_sums(values: Sequence[int], what: str) -> IntArray:
    """Running sums: (n,) values to (n + 1,) sums, of which entry i adds up the values before i.

    Raises:
        BadInput: the values are too large to be added exactly; the message calls them `what`.

    >>> prefix_sums([3, 1, 2], "cycles").tolist()
    [0, 3, 4, 6]
    """
    if sum(values) > MAX_EXACT:
        raise BadInput(f"{what} of all layers must add up to at most 2**53, got {sum(values)}; check the unit")
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.array(values, dtype=np.int64))))


def compute_prefix_cycles(profile: ModelProfile, recompute: bool = False) -> IntArray:
    """Running sum of forward and backward cycles, (n + 1,); with `recompute` they include a second forward pass."""
    forward = [layer.forward_cycles for layer in profile.layers]
    return prefix_sums(list(map(add, forward, _backward_cycles(profile, recompute))), "cycles")


def backward_prefix_cycles(profile: ModelProfile, recompute: bool = False) -> IntArray:
    """Running sum of backward cycles, (n + 1,); with `recompute` they include a second forward pass."""
    return prefix_sums(_backward_cycles(profile, recompute), "backward cycles")


def weight_prefix_cycles(profile: ModelProfile) -> IntArray:
    """Running sum of the cycles that compute the gradients of weights, (n + 1,)."""
    return prefix_sums([layer.weight_cycles for layer in profile.layers], "weight cycles")


def _backward_cycles(profile: ModelProfile, recompute: bool) -> list[int]:
    return [layer.backward_cycles + recompute * layer.forward_cycles for layer in profile.layers]


def cut_allowed(tied: Sequence[str | None]) -> BoolArray:
    """Whether a cut may lie before layer i, (n + 1,); `tied` has a key for every layer, and equal keys share a stage.

    A key whose layers are first to last forbids the cuts first + 1 to last. It adds 1 at first + 1 and subtracts 1 at
    last + 1, so a running sum counts the keys that forbid each cut. For the keys of the example:

        layer         0   1   2   3
        tied          w   -   w   -
        cut         0   1   2   3   4
        forbidden by    w   w

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
