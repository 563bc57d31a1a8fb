"""The profile of a layer at a batch size between two at which it was compiled: `interpolate`."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from autoauto.records.profile import LayerProfile


def interpolate(low: LayerProfile, high: LayerProfile, share: Fraction) -> LayerProfile:
    """One layer, compiled alone, interpolated linearly at `share` of the way from `low` to `high`.

    A key that is missing in one of them has 0 bytes there. Numbers are rounded up: memory is not underestimated. The
    tensors around the layer in its model are not interpolated: their sizes are exact at any batch size.

    >>> low = LayerProfile(10, 0, {"code_a": 4}, {"parameter": 8}, 100, 0, 0, 0, 0)
    >>> high = LayerProfile(17, 0, {"code_a": 4}, {"parameter": 8}, 400, 0, 0, 0, 0)
    >>> third = interpolate(low, high, Fraction(1, 3))
    >>> third.forward_cycles, third.temporary_bytes, dict(third.exclusive)
    (13, 200, {'parameter': 8})
    """

    def between(first: int, second: int) -> int:
        return -((first * (share - 1) - second * share) // 1)

    def by_key(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
        return {key: between(first.get(key, 0), second.get(key, 0)) for key in {**first, **second}}

    return LayerProfile(
        forward_cycles=between(low.forward_cycles, high.forward_cycles),
        backward_cycles=between(low.backward_cycles, high.backward_cycles),
        shared=by_key(low.shared, high.shared),
        exclusive=by_key(low.exclusive, high.exclusive),
        temporary_bytes=between(low.temporary_bytes, high.temporary_bytes),
        carried_bytes=0,
        input_bytes=0,
        output_bytes=0,
        activation_bytes=0,
        weight_cycles=between(low.weight_cycles, high.weight_cycles),
    )
