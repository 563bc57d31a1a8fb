"""Where configurations stand."""

from __future__ import annotations

import pytest

from autoauto.study.methods.engines.likeness import LENGTHS, Likeness, coordinates


def test_coordinates_are_powers_of_2_in_lengths() -> None:
    first, second = coordinates([Likeness(8, 2), Likeness(16, 2)])
    assert (second - first)[0] == pytest.approx(1 / LENGTHS.n_sequences)
    assert not (second - first)[1:].any()
