"""A recorded profile as a target: its estimates, and what is "measured" of it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.setting import Setting
from autoauto.profile.importers.recorded import (
    ProfileTarget,
    RecordedLayer,
    RecordedProfile,
    line_graph,
    with_boundaries,
)
from autoauto.profile.profiler import interpolate
from autoauto.records.costs.correction import Estimator
from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Link, Period
from autoauto.records.schedule import Order
from autoauto.records.target import Origin
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs


def layers(scale: float, *, training: bool = True) -> tuple[RecordedLayer, ...]:
    line = [
        RecordedLayer(f"l{i}", scale * (i + 1), scale * 2 * training, 1000 * i, 10 * scale * (i + 1)) for i in range(4)
    ]
    return with_boundaries(line, [scale * 100 * (i + 1) for i in range(5)])


def recorded(*, training: bool = True) -> RecordedProfile:
    return RecordedProfile("net", {1: layers(1.0, training=training), 4: layers(3.0, training=training)})


def flow(profile: RecordedProfile, n_devices: int = 2, memory_bytes: float = 1e6) -> Flow:
    device, link = Device("d", 1e9, memory_bytes, 1, int(memory_bytes)), Link(1e3, 0)
    cluster = Cluster("c", "profile", (device,) * n_devices, (link,) * n_devices, (link,) * n_devices)
    return Flow(Setting(line_graph(profile), cluster, ProfileTarget(profile), Precision.FP32, estimator=Estimator.SUM))


@pytest.mark.parametrize("mode", [Order.INFERENCE, Order.ONE_F_ONE_B])
@pytest.mark.parametrize("n_ipu", [1, 2, 3])
def test_what_is_measured_is_what_was_estimated(mode: Order, n_ipu: int) -> None:
    """Compute, transfers and memory by category, whichever stages: `compile` agrees with the cost table."""
    opened = flow(recorded(), n_ipu)
    knobs = Knobs(
        n_ipu=n_ipu,
        memory_proportion=1.0,
        batch_size=3,
        schedule=mode,
        n_micro_batches=1 if mode is Order.INFERENCE else 4,
    )
    plan = opened.predict(knobs)
    run = opened.measure(knobs, plan)
    assert run.plan.cost_cycles == plan.cost_cycles
    for stage, expected in zip(run.plan.stages, plan.stages, strict=True):
        assert stage.forward_cycles == expected.forward_cycles
        assert stage.backward_cycles == expected.backward_cycles
        assert {k: n for k, n in stage.memory_bytes.items() if n} == {
            k: n for k, n in expected.memory_bytes.items() if n
        }


def test_a_trial_is_estimated_and_costs_what_the_sums_of_layers_cost() -> None:
    opened = flow(recorded(training=False))
    assert opened.traits.origin is Origin.ESTIMATED
    assert opened.setting.period_of_devices is Period.SERIAL
    trial = opened.evaluate(Knobs(n_ipu=2, memory_proportion=1.0, batch_size=1))
    plan = trial.plan
    assert plan is not None
    assert trial.samples_per_s == trial.estimated_samples_per_s
    # Layers take 1, 2, 3 and 4 s, and tensor i has 100 (i + 1) bytes at 1000 bytes a second.
    assert plan.partition == (0, 3, 4)
    assert plan.cost_cycles == round((1 + 2 + 3 + 0.1 + 0.4) * 1e9)


@given(st.integers(1, 4))
def test_between_two_batch_sizes_it_is_interpolated_as_the_profiler_does(batch_size: int) -> None:
    profile = recorded()
    ends = [[layer.profile(1e9, training=True) for layer in profile.at(size)] for size in (1, 4)]
    share = Fraction(batch_size - 1, 3)
    for layer, low, high in zip(profile.at(batch_size), *ends, strict=True):
        ours, theirs = layer.profile(1e9, training=True), interpolate(low, high, share)
        assert abs(ours.forward_cycles - theirs.forward_cycles) <= 1
        assert abs(ours.backward_cycles - theirs.backward_cycles) <= 1
        assert ours.exclusive == theirs.exclusive
        assert abs(ours.temporary_bytes - theirs.temporary_bytes) <= 1


def test_a_search_tries_the_batch_sizes_in_between() -> None:
    assert ProfileTarget(recorded()).traits.space["batch_size"] == (1, 2, 3, 4)


@pytest.mark.parametrize("batch_size", [5, 100])
def test_beyond_the_recorded_batch_sizes_nothing_is_known(batch_size: int) -> None:
    with pytest.raises(BadInput, match=f"has batch size 1, 4, got --batch-size {batch_size}"):
        recorded().at(batch_size)


def test_training_needs_a_backward_pass() -> None:
    profile = recorded(training=False)
    options = CompileOptions(1, Precision.FP32, training=True)
    with pytest.raises(BadInput, match="net has no times of a backward pass, got --mode training"):
        ProfileTarget(profile).profile(line_graph(profile), Device("d", 1e9, 1e6, 1, 1), options)


def test_another_content_is_another_version() -> None:
    first, second = (ProfileTarget(RecordedProfile("net", {1: layers(scale)})) for scale in (1.0, 1.5))
    assert first.version != second.version
