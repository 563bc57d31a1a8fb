"""The defaults of a search: space, study name, and the configuration that its best is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.load import load_flow
from autoauto.records.installation import VERSION
from autoauto.records.knob_table import Strategy
from autoauto.records.knobs import Knobs, Objective, SearchSpace
from autoauto.records.layers import LayerGraph
from autoauto.records.schedule import Order
from autoauto.records.target import RUNS_PLANS, TargetTraits
from autoauto.study.defaults import (
    default_knobs,
    default_n_ipu,
    default_space,
    default_study_name,
    fingerprint_of,
)
from autoauto.targets.ipu.target import IpuTarget


@pytest.fixture
def flow(chain: Callable[..., LayerGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flow:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    return load_flow(chain("abcd"), "bow-2000")


def test_the_counts_of_devices_go_as_far_as_the_cluster() -> None:
    assert [default_n_ipu(n) for n in (1, 2, 3, 4, 16)] == [(1,), (1, 2), (1, 2), (1, 2, 4), (1, 2, 4)]


def test_the_default_space_is_smaller_where_devices_run_plans(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_space(flow) == SearchSpace()
    monkeypatch.setattr(IpuTarget, "traits", RUNS_PLANS)
    assert default_space(flow) == SearchSpace((1, 2, 4), (1.0,), (1, 2, 4, 8, 16, 32), replicas=(1, 2, 4))


def test_the_default_name_of_a_study_depends_on_everything_that_trials_depend_on(flow: Flow) -> None:
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


def test_the_default_configuration_is_one_pipeline_of_all_devices() -> None:
    assert default_knobs(SearchSpace((1, 2, 4), (0.3, 1.0)), TargetTraits()) == Knobs(4, 0.6, 8)


def test_the_default_batch_size_is_one_of_the_space() -> None:
    assert default_knobs(SearchSpace((2,), (0.3,), (1, 2, 4)), TargetTraits()) == Knobs(2, 0.6, 4)
    assert default_knobs(SearchSpace((2,), (0.3,), (16, 32)), TargetTraits()) == Knobs(2, 0.6, 16)


def test_on_real_devices_the_default_is_one_device_that_may_use_all_its_memory() -> None:
    assert default_knobs(SearchSpace((1, 2), (0.5,), (4, 8, 16), replicas=(1, 2)), RUNS_PLANS) == Knobs(1, 1.0, 8)


def test_on_cores_the_default_is_one_session_with_all_of_them(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    traits = replace(RUNS_PLANS, groups_cores=True)
    monkeypatch.setattr(IpuTarget, "traits", traits)
    space = default_space(flow)
    assert space.cores_per_device == (1, 2, 4)
    assert default_knobs(space, traits) == Knobs(1, 1.0, 8, cores_per_device=4)
    assert default_knobs(space, traits, one_device=True) == Knobs(1, 1.0, 8)


def test_other_knobs_have_the_first_value_of_the_space() -> None:
    training = SearchSpace((2,), (0.6,), (4,), (Order.GPIPE, Order.POPART), (True, False), (8, 16))
    assert default_knobs(training, TargetTraits()) == Knobs(2, 0.6, 4, Order.GPIPE, True, 8)
    phased = SearchSpace((1,), (0.6,), (8,), strategy=(Strategy.PHASED,), steps=(4, 8))
    assert default_knobs(phased, TargetTraits()) == Knobs(1, 0.6, 8, n_micro_batches=4, strategy=Strategy.PHASED)
