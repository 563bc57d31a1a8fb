from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from autoauto.estimate import cost_table, entered
from autoauto.estimate.entry import no_longer
from autoauto.records.correction import ENTERED, Correction
from autoauto.records.profile import CompileOptions, LayerProfile
from autoauto.records.units import Precision

if TYPE_CHECKING:
    from tests.estimate.conftest import MakeCluster, MakeProfile


def test_a_range_takes_what_it_takes_to_read_what_it_receives(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    layers = [replace(nothing, forward_cycles=100, input_bytes=n_bytes) for n_bytes in (60, 30, 90)]
    profile = replace(make_profile(*layers), options=CompileOptions(1, 1.0, Precision.FP32))
    plain = cost_table(profile, make_cluster(2), 1.0)
    correction = Correction({ENTERED: 2.0}, batch_sizes=((1, 0.5), (4, 1.0)), n_examples=5)
    table = entered(plain, profile, correction)
    assert [table.compute_cycles(start, 3) for start in range(3)] == [300, 200 + 10, 100 + 30]
    assert entered(plain, profile, Correction({"": 2.0})) is plain


def test_a_range_takes_no_longer_than_one_that_begins_before_it() -> None:
    random = np.random.default_rng(3)
    for _ in range(50):
        cycles, entry = random.integers(0, 50, 9), random.integers(0, 200, 9)
        prefix = np.concatenate(([0], np.cumsum(cycles)))
        lowered = no_longer(entry, prefix)
        assert (lowered <= entry).all()
        assert (lowered >= 0).all()
        assert (lowered[1:] <= lowered[:-1] + cycles[:-1]).all()
        assert no_longer(lowered, prefix).tolist() == lowered.tolist()
