"""What a search does where it is not told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autoauto.flow import Flow
from autoauto.load import load_flow
from autoauto.records.layers import LayerGraph
from autoauto.records.run import Run
from autoauto.records.schedule import Order
from autoauto.records.trial import DEFAULT_NOISE, Objective, SearchSpace
from autoauto.records.version import VERSION
from autoauto.search.defaults import default_n_ipu, default_noise, default_space, default_study_name, fingerprint_of
from autoauto.targets.ipu import IpuTarget


class Real(IpuTarget):
    """A target whose devices are there."""

    __slots__ = ()

    def run(self, *_: object) -> Run:
        raise NotImplementedError


@pytest.fixture
def flow(chain: Callable[..., LayerGraph]) -> Flow:
    return load_flow(chain("abcd"), "bow-2000")


def test_the_grid_goes_as_far_as_the_cluster() -> None:
    assert [default_n_ipu(n) for n in (1, 2, 3, 4, 16)] == [(1,), (1, 2), (1, 2), (1, 2, 4), (1, 2, 4)]


def test_real_devices_have_a_smaller_space_and_noise(flow: Flow) -> None:
    assert default_space(flow) == SearchSpace()
    assert default_noise(flow) == 0.0
    real = replace(flow, target=Real())
    assert default_space(real) == SearchSpace((1, 2, 4), (1.0,), (1, 2, 4, 8, 16, 32), replicas=(1, 2, 4))
    assert default_noise(real) == DEFAULT_NOISE


def test_what_changes_a_trial_changes_the_studys_name(flow: Flow) -> None:
    training = SearchSpace(schedule=(Order.GPIPE,), n_micro_batches=(8,))
    fingerprint = fingerprint_of(flow, SearchSpace())
    assert fingerprint["autoauto"] == VERSION
    names = {
        default_study_name(flow, Objective.THROUGHPUT, fingerprint),
        default_study_name(flow, Objective.PER_IPU, fingerprint),
        default_study_name(flow, Objective.THROUGHPUT, fingerprint_of(flow, training)),
        default_study_name(flow, Objective.THROUGHPUT, fingerprint_of(replace(flow, overlap=True), SearchSpace())),
    }
    assert len(names) == 4
    assert all(name.startswith("chain-bow-2000-") for name in names)
