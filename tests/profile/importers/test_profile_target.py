"""A recorded profile as a target: its estimates, and what is "measured" of it."""

from __future__ import annotations

from dataclasses import replace
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
from autoauto.records.hardware import Cluster, Device, DeviceKind, Link, Period
from autoauto.records.layers import LayerRange
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


def kinds(**speeds: float | None) -> Cluster:
    """A device of each kind, with its speed."""
    link = Link(1e3, 0)
    made = [DeviceKind(Device(name, 1e9, 1e6, 1, 10**6), 1, link, link, speed) for name, speed in speeds.items()]
    return Cluster.of_kinds("c", "profile", made)


def seconds(target: ProfileTarget, kind: str, batch_size: int = 1) -> list[float]:
    """Of the forward passes of all layers on a device of a kind."""
    device = Device(kind, 1e9, 1e6, 1, 10**6)
    options = CompileOptions(batch_size, Precision.FP32)
    return [layer.forward_cycles / 1e9 for layer in target.profile(line_graph(target.recorded), device, options).layers]


def test_speeds_divide_the_times_of_one_profile() -> None:
    """Layers take 1, 2, 3 and 4 s on the profiled device."""
    target = ProfileTarget(recorded()).on_devices(kinds(fast=2.0, slow=0.5, other=None))
    assert seconds(target, "fast") == [0.5, 1.0, 1.5, 2.0]
    assert seconds(target, "slow") == [2.0, 4.0, 6.0, 8.0]
    assert seconds(target, "other") == [1.0, 2.0, 3.0, 4.0]
    assert target.notes[0].endswith("the times of the profile: fast 2, slow 0.5, other 1, not given")
    backward = target.of_kinds["fast"].at(1)[0].backward_s
    assert backward == 1.0  # 2 s


def in_order(*clocks_hz: float) -> Cluster:
    """Devices in a given order."""
    devices = tuple(Device("d", clock_hz, 1e6, 1, 10**6) for clock_hz in clocks_hz)
    links = (Link(1e3, 0),) * len(devices)
    return Cluster("c", "profile", devices, links, links)


def test_like_devices_without_a_speed_have_the_profile_as_it_is() -> None:
    target = ProfileTarget(recorded())
    for cluster in (kinds(d=None), in_order(1e9, 1e9)):
        assert target.on_devices(cluster) is target
    with pytest.raises(BadInput, match=r"c lists d of 1e[+]09 Hz, d of 2e[+]09 Hz, and nothing says how fast"):
        target.on_devices(in_order(1e9, 2e9))


def test_profiles_are_interpolated_at_every_kind_and_say_so_once() -> None:
    low, high = at_sizes(1, 4), at_sizes(2, 6, scale=3.0)
    low, high = replace(low, notes=("read", "of a")), replace(high, notes=("read",))
    both = ProfileTarget(low, {"a": low, "b": high})
    said = "all numbers are estimated from a profile of 4 layers at batch size "
    assert both.notes == ("read", "of a", f"{said}1, 4 of a, 2, 6 of b; between them it is interpolated")
    assert ProfileTarget(low).notes[-1] == f"{said}1, 4; between them it is interpolated"
    assert ProfileTarget(at_sizes(8)).notes == (f"{said}8",)
    assert ProfileTarget(low, {"a": low, "b": low}).notes[-1] == f"{said}1, 4; between them it is interpolated"
    first, second = (Device(name, 1e9, 1e6, 1, 10**6) for name in "ab")
    options = CompileOptions(2, Precision.FP32)
    assert both.depends_on(first, options) != both.depends_on(second, options)
    assert ProfileTarget(low).depends_on(first, options) == ProfileTarget(low).depends_on(second, options)
    changed = [replace(options, batch_size=3), replace(options, training=True)]
    assert len({both.depends_on(first, each) for each in (options, *changed)}) == 3
    assert both.depends_on(first, options) != both.depends_on(replace(first, clock_hz=2e9), options)


def at_sizes(*sizes: int, scale: float = 1.0) -> RecordedProfile:
    return RecordedProfile("net", {size: layers(scale * size) for size in sizes})


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        ((1, 4), (2, 6), (2, 3, 4)),
        ((2, 6), (1, 4), (2, 3, 4)),
        ((1, 2, 8), (2,), (2,)),
        ((1, 200), (3, 160), (3, 4, 8, 16, 32, 64, 128, 160)),  # too many to list: their ends and the powers of two
    ],
)
def test_kinds_are_searched_at_the_batch_sizes_that_all_reach(
    first: tuple[int, ...], second: tuple[int, ...], common: tuple[int, ...]
) -> None:
    profiles = {"a": at_sizes(*first), "b": at_sizes(*second, scale=3.0)}
    target = ProfileTarget(profiles["a"], profiles)
    assert target.traits.space["batch_size"] == common
    size = common[0]
    assert (seconds(target, "a", size)[0], seconds(target, "b", size)[0]) == (size, 3 * size)


def test_kinds_without_a_common_batch_size_or_with_other_layers_are_refused() -> None:
    other = RecordedProfile("net", {1: layers(1.0)[:3]})
    for profile, message in (
        (at_sizes(5, 6), "kinds need a batch size in common, got a 1, 4, b 5, 6; record one on all"),
        (other, "--profile: a has 4 layers, b has 3; record one model at both"),
        (recorded(training=False), "a has a backward pass, b has none"),
    ):
        with pytest.raises(BadInput, match=message):
            ProfileTarget(at_sizes(1, 4), {"a": at_sizes(1, 4), "b": profile})


@pytest.mark.parametrize(
    ("target", "cluster", "message"),
    [
        (ProfileTarget(recorded()), kinds(a=None, b=None), "nothing says how fast each runs the layers"),
        (
            ProfileTarget(recorded(), {"a": recorded()}),
            kinds(b=None),
            "a:B=FILE must name devices of the cluster, c has b",
        ),
        (
            ProfileTarget(recorded(), {"a": recorded()}),
            kinds(a=None, b=None),
            "every kind needs its profile, b has none",
        ),
        (ProfileTarget(recorded(), {"a": recorded()}), kinds(a=2.0), "a has a speed and a --profile of its own"),
    ],
)
def test_kinds_of_which_nothing_or_too_much_is_said_are_refused(
    target: ProfileTarget, cluster: Cluster, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        target.on_devices(cluster)


def test_layers_add_up_in_a_range_and_what_was_stashed_before_stays() -> None:
    """Layers 1 and 2 at batch size 1: 2 and 3 s, 1000 and 2000 bytes of weights, 20 and 30 stashed.

    Their inputs and outputs are 200, 300 and 400 bytes, and both are there while a layer runs.
    """
    target = ProfileTarget(recorded())
    options = CompileOptions(1, Precision.FP32, training=True)
    device = Device("d", 1e9, 1e6, 1, 10**6)
    made = target.compile(line_graph(target.recorded), LayerRange(1, 3), device, options)
    assert [step.cycles for step in made.steps] == [2_000_000_000, 3_000_000_000]
    assert [step.temporary_bytes for step in made.steps] == [500, 700 + 20]
    assert made.exclusive == {"parameter": 3000}
    assert made.activation_bytes == 50
    assert made.backward_cycles == 4_000_000_000
    assert made.last_segment_cycles == 5_000_000_000
