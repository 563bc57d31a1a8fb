"""A whole model in one session on all devices: of a target with known costs, and on this machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.load import load_flow
from autoauto.evaluate.undivided import can_run_undivided, evaluate_undivided
from autoauto.records.errors import OutOfMemory
from autoauto.records.hardware import Cluster
from autoauto.records.knobs import Knobs
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.profile import CompileOptions
from autoauto.records.timeline import Run
from autoauto.schedule.times import timeline_of
from autoauto.targets.host.run import run as host_run
from tests.evaluate.linear import DEVICE, MIB, LinearTarget


class WholeModelTarget(LinearTarget):
    """A session takes 500 cycles and 10 MiB a sample, and has the memory of all devices."""

    def run_undivided(self, graph: LayerGraph, cluster: Cluster, options: CompileOptions) -> Run:
        n_bytes, cycles = 10 * MIB * options.batch_size, 500 * options.batch_size
        limit_bytes = int(sum(device.memory_bytes for device in cluster.devices))
        layers = LayerRange(0, len(graph.layers))
        if n_bytes > limit_bytes:
            raise OutOfMemory("too large a batch", n_bytes - limit_bytes, layers)
        plan = Plan((Stage(layers, 0, cycles, 0, 0, 0, {"state": n_bytes}, limit_bytes),))
        timeline = timeline_of(Knobs(1, 1.0, options.batch_size), plan)
        return Run(plan, (replace(timeline, source="measured"),))


@pytest.fixture
def whole(flow: Flow) -> Flow:
    return replace(flow, target=WholeModelTarget())


def test_it_takes_a_target_that_runs_whole_models_and_several_devices(flow: Flow, whole: Flow) -> None:
    one_device = replace(whole, cluster=whole.cluster.first(1))
    assert [can_run_undivided(each) for each in (flow, whole, one_device)] == [False, True, False]


def test_throughput_is_that_of_the_session(whole: Flow) -> None:
    outcome = evaluate_undivided(whole, Knobs(1, 1.0, 4))
    assert outcome.fits
    assert outcome.samples_per_s == pytest.approx(DEVICE.clock_hz / 500)
    assert outcome.measured is not None
    assert outcome.measured.partition == (0, 8)
    assert outcome.timeline is not None
    assert outcome.timeline.source == "measured"


def test_a_batch_that_does_not_fit_all_devices_together_is_an_outcome(whole: Flow) -> None:
    assert evaluate_undivided(whole, Knobs(1, 1.0, 20)).fits  # 200 MiB of two devices
    outcome = evaluate_undivided(whole, Knobs(1, 1.0, 21))
    assert not outcome.fits
    assert (outcome.excess_bytes, outcome.memory_bytes, outcome.samples_per_s) == (10 * MIB, 200 * MIB, 0.0)
    assert "too large a batch" in outcome.reason


@pytest.mark.slow
def test_a_host_runs_a_model_in_one_session_of_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_run, "MIN_S", 0.1)  # a short measurement is enough
    monkeypatch.setattr(host_run, "MAX_S", 0.2)
    flow = load_flow("resnet50", None, "host")
    assert can_run_undivided(flow) == (len(flow.cluster) > 1)
    outcome = evaluate_undivided(flow, Knobs(1, 1.0, 1))
    assert outcome.fits
    assert outcome.samples_per_s > 0
    devices = tuple(replace(device, memory_bytes=20 * MIB) for device in flow.cluster.devices)
    small = replace(flow, cluster=replace(flow.cluster, devices=devices))
    assert not evaluate_undivided(small, Knobs(1, 1.0, 8)).fits
