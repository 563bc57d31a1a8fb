"""The defaults of a search: space, study name, and the configuration that its best is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.records.costs.options import PlainSession
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Period
from autoauto.records.installation import VERSION
from autoauto.records.layers import LayerGraph
from autoauto.records.schedule import Order
from autoauto.records.target import RUNS_PLANS
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.objectives import Objective, Objectives
from autoauto.space.space import SearchSpace
from autoauto.study.defaults import (
    baseline_of,
    default_counts,
    default_space,
    default_study_name,
    fingerprint_of,
    on_cluster,
)
from autoauto.targets.clusters import load_cluster
from autoauto.targets.host.runtimes.cuda.session import CudaSession
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.registry import SESSIONS
from autoauto.targets.ipu.target import IpuTarget


@pytest.fixture
def flow(chain: Callable[..., LayerGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flow:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    return load_flow(chain("abcd"), "bow-2000")


def uses(space: SearchSpace) -> set[tuple[int, int]]:
    """Lengths of pipelines and their numbers."""
    return {(cell[0].n_ipu, cell[0].replicas) for cell in space.cells}


def test_the_counts_of_devices_go_as_far_as_the_cluster() -> None:
    assert [default_counts(n) for n in (1, 2, 3, 16)] == [(1,), (1, 2), (1, 2, 3), (1, 2, 4, 8, 16)]


@pytest.mark.parametrize("n_devices", range(1, 70))
def test_every_length_of_a_pipeline_can_be_repeated_until_no_other_fits(n_devices: int) -> None:
    divisors = {n for n in range(1, n_devices + 1) if n_devices % n == 0}
    lengths = divisors | {2**i for i in range(n_devices.bit_length())}
    assert lengths | {n_devices // n for n in lengths} == set(default_counts(n_devices))


def test_the_default_space_is_the_whole_cluster_and_no_more(flow: Flow) -> None:
    space = default_space(flow)
    assert uses(space) == {(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)}
    assert space.n_configurations == (6 + 3) * 3 * 128  # six uses by pipelines, three counts of devices in phases
    assert max(knobs.n_devices for cell in space.cells for knobs in cell) == 4


def test_six_devices_are_used_in_all_whole_parts(flow: Flow) -> None:
    six = flow.with_setting(cluster=load_cluster("bow-pod16").first(6))
    assert {(1, 6), (2, 3), (3, 2), (6, 1)} <= uses(default_space(six))


def test_given_values_narrow_the_others(flow: Flow) -> None:
    assert uses(default_space(flow, {"replicas": (4,)})) == {(1, 4)}
    assert uses(default_space(flow, {"n_ipu": (2, 4)})) == {(2, 1), (2, 2), (4, 1)}
    assert uses(default_space(flow, {"n_ipu": (1, 4), "replicas": (1, 2, 8)})) == {(1, 1), (1, 2), (4, 1)}


def test_training_has_replicas_of_pipelines_that_its_micro_batches_allow(flow: Flow) -> None:
    pod = flow.with_setting(cluster=load_cluster("bow-pod16"))
    popart = default_space(pod, {"schedule": (Order.POPART,), "n_micro_batches": (16,)})
    assert max(n_ipu for n_ipu, _ in uses(popart)) == 8  # PopART needs 2 n_ipu - 1
    assert {(1, 16), (2, 8), (4, 4), (8, 2), (8, 1)} <= uses(popart)
    gpipe = default_space(pod, {"schedule": (Order.GPIPE,), "n_micro_batches": (16,)})
    assert (16, 1) in uses(gpipe)


def test_a_global_batch_fixes_the_number_of_micro_batches(flow: Flow) -> None:
    pod, training = flow.with_setting(cluster=load_cluster("bow-pod16")), {"schedule": (Order.POPART,)}
    space = default_space(pod, training, global_batch=96)
    every = [knobs for cell in space.cells for knobs in cell]
    assert {knobs.n_samples for knobs in every} == {96}
    assert {(4, 4, 1, 24), (4, 4, 3, 8), (1, 16, 6, 1)} <= {
        (knobs.n_ipu, knobs.replicas, knobs.batch_size, knobs.mode.n_micro_batches) for knobs in every
    }
    assert not any(knobs.mode.n_micro_batches < 2 * knobs.n_ipu - 1 for knobs in every)  # PopART's least
    assert all(knobs in space for knobs in every)
    with pytest.raises(BadInput, match="got 7 for replicas 2 and batch_size 3 to 4; try others"):
        default_space(pod, {**training, "replicas": (2,), "batch_size": (3, 4)}, global_batch=7)


def test_a_space_of_ones_own_is_bound_to_the_cluster(flow: Flow) -> None:
    given = SearchSpace((1, 2, 4), (0.6,), (8,), replicas=(1, 2, 4, 8))
    bound = on_cluster(given, flow)
    assert uses(bound) == {(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)}
    assert on_cluster(bound, flow) == bound
    small = SearchSpace((1, 2, 4), (0.6,), (8,))
    assert on_cluster(small, flow) is small


def test_the_default_space_is_smaller_where_devices_run_plans(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_space(flow)["batch_size"] == tuple(range(1, 129))
    monkeypatch.setattr(IpuTarget, "traits", RUNS_PLANS)
    space = default_space(flow)
    assert (space["memory_proportion"], space["batch_size"]) == ((), (1, 2, 4, 8, 16, 32))
    assert (space["n_ipu"], space["replicas"]) == ((1, 2, 4), (1, 2, 4))


def test_the_default_name_of_a_study_depends_on_everything_that_the_answer_depends_on(flow: Flow) -> None:
    training = SearchSpace(schedule=(Order.GPIPE,), n_micro_batches=(8,))
    fingerprint = fingerprint_of(flow, SearchSpace())
    assert fingerprint["autoauto"] == VERSION
    other_period = fingerprint_of(flow.with_setting(period=Period.OVERLAP), SearchSpace())
    names = {
        default_study_name(flow, Objective.THROUGHPUT, fingerprint, SearchSpace(), "guided"),
        default_study_name(flow, Objective.THROUGHPUT, fingerprint, SearchSpace(), "exhaustive"),
        default_study_name(flow, Objective.THROUGHPUT, fingerprint, SearchSpace(n_ipu=(2,)), "guided"),
        default_study_name(flow, Objective.PER_DEVICE, fingerprint, SearchSpace(), "guided"),
        default_study_name(flow, Objective.THROUGHPUT, fingerprint_of(flow, training), SearchSpace(), "guided"),
        default_study_name(flow, Objective.THROUGHPUT, other_period, SearchSpace(), "guided"),
    }
    assert len(names) == 6
    assert all(name.startswith("chain-bow-2000-") for name in names)


def test_a_cost_model_has_no_baseline_of_its_own(flow: Flow) -> None:
    assert baseline_of(flow, Objective.THROUGHPUT, SearchSpace()) is None


def test_real_devices_have_one_session_as_baseline(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IpuTarget, "traits", RUNS_PLANS)

    def session(objectives: Objectives, *batch_sizes: int) -> Knobs | None:
        return baseline_of(flow, objectives, flow.checked(SearchSpace((1, 2), batch_size=batch_sizes)))

    assert session(Objective.THROUGHPUT, 4, 8, 16) == Knobs(1, 8, session=PlainSession())
    assert session(Objective.THROUGHPUT, 1, 2, 4) == Knobs(1, 4, session=PlainSession())
    assert session(Objective.THROUGHPUT, 16, 32) == Knobs(1, 16, session=PlainSession())
    assert session((Objective.THROUGHPUT, Objective.LATENCY), 8) is None


def test_on_cores_the_session_has_all_of_them(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    of_cores = {**RUNS_PLANS.space, "runtime": ("onnxruntime",)}
    traits = replace(RUNS_PLANS, groups=("cores_per_device",), sessions=(OnnxRuntimeSession,), space=of_cores)
    monkeypatch.setattr(IpuTarget, "traits", traits)
    space = default_space(flow)
    assert space["cores_per_device"] == (1, 2, 4)
    assert baseline_of(flow, Objective.THROUGHPUT, space) == Knobs(1, 8, session=OnnxRuntimeSession(4))
    assert baseline_of(flow, Objective.PER_DEVICE, space) == Knobs(1, 8, session=OnnxRuntimeSession())


def test_the_session_is_of_the_first_format_that_a_runtime_of_the_space_computes(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IpuTarget, "traits", replace(RUNS_PLANS, sessions=tuple(SESSIONS.values())))
    ort, openvino, _ = SESSIONS
    fp32, bf16 = Precision.FP32, Precision.BF16
    for runtimes, formats, session in (
        ((ort, openvino), (fp32, bf16), (ort, fp32)),
        ((ort, openvino), (bf16, fp32), (openvino, bf16)),
        ((ort,), (bf16, fp32), (ort, fp32)),
    ):
        space = SearchSpace((1,), batch_size=(8,), runtime=runtimes, precision=formats)
        baseline = baseline_of(flow, Objective.THROUGHPUT, space)
        assert baseline is not None
        assert (baseline.session.runtime, baseline.session.computes_in) == session


def test_the_layout_of_convolutions_varies_where_there_are_some(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    of_gpus = {**RUNS_PLANS.space, "runtime": ("cuda",), "channels_last": (False, True)}
    monkeypatch.setattr(IpuTarget, "traits", replace(RUNS_PLANS, sessions=(CudaSession,), space=of_gpus))
    assert default_space(flow)["channels_last"] == (False,)
    assert default_space(flow, {"channels_last": (True,)})["channels_last"] == (True,)
    layers = tuple(replace(layer, op="Conv") for layer in flow.graph.layers)
    convolves = flow.with_setting(graph=replace(flow.graph, layers=layers))
    assert default_space(convolves)["channels_last"] == (False, True)


def test_one_device_is_searched_without_stage_replicas(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IpuTarget, "traits", replace(RUNS_PLANS, stage_replicas=True, period=Period.SERIAL))
    assert default_space(flow)["stage_replicas"] == (False,)
    space = default_space(flow, {"stage_replicas": (False, True), "replicas": (1,)})
    pipelines = [cell[0] for cell in space.cells if cell[0].mode.strategy is Strategy.PIPELINE]
    cells = [(knobs.n_ipu, knobs.mode.stage_replicas) for knobs in pipelines]
    assert cells == [(1, False), (2, False), (2, True), (4, False), (4, True)]
