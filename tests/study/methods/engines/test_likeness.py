"""Where configurations stand, and how TPOT goes with them without forecasts."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from autoauto.records.costs.decoder import Workload
from autoauto.study.methods.engines.likeness import LENGTHS, Likeness, coordinates, rough_log_tpot


def test_coordinates_are_powers_of_2_in_lengths() -> None:
    first, second = coordinates([Likeness(8, 2), Likeness(16, 2)])
    assert (second - first)[0] == pytest.approx(1 / LENGTHS.n_sequences)
    assert not (second - first)[1:].any()


def test_more_sequences_take_longer_and_give_more() -> None:
    batches = [1, 2, 8, 64, 256]
    tpot = np.exp(rough_log_tpot([Likeness(batch, 4) for batch in batches], Workload(1024, 1024)))
    assert (np.diff(tpot) > 0).all()
    assert (np.diff(batches / tpot) > 0).all()


def test_longer_prompts_make_sequences_cost_more() -> None:
    def growth(requests: Workload) -> float:
        single, many = rough_log_tpot([Likeness(1), Likeness(64)], requests)
        return exp(many - single)

    assert growth(Workload(8192, 1024)) > 1.3 * growth(Workload(1024, 1024))
