"""Running sums over layers, `prefix_sums`, whose differences are costs of ranges; legal cuts, `cut_allowed`.

Those where the first and the last stage share a device: `cuts_around`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoauto.records.costs.profile import ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.units import MAX_EXACT, BoolArray, IntArray


def prefix_sums(values: Sequence[int], what: str) -> IntArray:
    """Running sums: (n,) values to (n + 1,) sums, of which entry i adds up the values before i.

    Raises:
        BadInput: the values are too large to be added exactly; the message calls them `what`.
    """
    if sum(values) > MAX_EXACT:
        raise BadInput(f"{what} of all layers must add up to at most 2**53, got {sum(values)}; check the unit")
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.array(values, dtype=np.int64))))


def last_segment_prefix_cycles(profile: ModelProfile) -> IntArray:
    """Running sum of the forward cycles after the last checkpoint of the model, (n + 1,); of all where it has none."""
    last = max((index for index, layer in enumerate(profile.layers) if layer.checkpoint_bytes), default=0)
    cycles = (layer.forward_cycles if index >= last else 0 for index, layer in enumerate(profile.layers))
    return prefix_sums(list(cycles), "forward cycles")


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
    first, last = _ends(tied)
    flags = np.zeros(len(tied) + 2, dtype=np.int64)
    np.add.at(flags, np.array(list(first.values()), dtype=np.int64) + 1, 1)
    np.subtract.at(flags, np.array(list(last.values()), dtype=np.int64) + 1, 1)
    allowed: BoolArray = np.cumsum(flags)[:-1] == 0
    return allowed


def cuts_around(tied: Sequence[str | None]) -> list[BoolArray]:
    """The cuts of plans whose first and last stage share a device; the inner cuts of a plan are all in one of these.

    Layers of one key may then be in both of these stages, with all cuts between two of the layers; as before, all may
    be in one stage, with no cut between them. So all cuts of a plan lie between the same layers of every key:

        layer         0   1   2   3   4   5
        tied          w   v   -   v   -   w
        cut         0   1   2   3   4   5   6
        between      -  w   wv  wv  w   w   -      cuts 1, 4 and 5 go together, and so do 2 and 3; 0 and 6 always may be

    >>> [np.flatnonzero(cuts).tolist() for cuts in cuts_around(["w", "v", None, "v", None, "w"])]
    [[0, 6], [0, 1, 4, 5, 6], [0, 2, 3, 6]]
    """
    _, last = _ends(tied)
    before: dict[str, int] = {}  # by key, how many of its layers lie before a cut, where some lie on either side
    groups: dict[frozenset[tuple[str, int]], list[int]] = {frozenset(): [0]}
    for index, key in enumerate(tied):
        if key is not None:
            before[key] = before.get(key, 0) + 1
            if last[key] == index:
                del before[key]
        groups.setdefault(frozenset(before.items()), []).append(index + 1)
    boundaries = np.arange(len(tied) + 1)
    return [np.isin(boundaries, [0, *cuts, len(tied)]) for cuts in groups.values()]


def _ends(tied: Sequence[str | None]) -> tuple[dict[str, int], dict[str, int]]:
    """The first and the last layer of every key."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for index, key in enumerate(tied):
        if key is not None:
            first.setdefault(key, index)
            last[key] = index
    return first, last
