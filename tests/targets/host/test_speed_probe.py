"""The speed probe of a core, by a simulated clock that arithmetic moves on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autoauto.records.errors import BadInput
from autoauto.targets.host import machine
from autoauto.targets.host.machine import SpeedProbe


class SimulatedCore:
    """A core on which the arithmetic of the probe takes `arithmetic_ns(now_s)`; only arithmetic moves its clock."""

    def __init__(self, arithmetic_ns: Callable[[float], int]) -> None:
        self.arithmetic_ns, self.now_s, self.cpu_ns = arithmetic_ns, 0.0, 0
        self.is_computing = False

    def thread_time_ns(self) -> int:
        """The probe reads the CPU time before and after the arithmetic, in turn."""
        if self.is_computing:
            duration_ns = self.arithmetic_ns(self.now_s)
            self.cpu_ns += duration_ns
            self.now_s += duration_ns / 1e9
        self.is_computing = not self.is_computing
        return self.cpu_ns

    def compute(self, seconds: float) -> None:
        self.now_s += seconds


MakeCore = Callable[[Callable[[float], int]], SimulatedCore]


@pytest.fixture
def make_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeCore:
    """Replace the real core by a simulated one; the cache folder is empty."""

    def make_core(arithmetic_ns: Callable[[float], int]) -> SimulatedCore:
        core = SimulatedCore(arithmetic_ns)
        monkeypatch.setattr(machine, "thread_time_ns", core.thread_time_ns)
        monkeypatch.setattr(machine, "perf_counter", lambda: core.now_s)
        monkeypatch.setattr(machine, "N_NUMBERS", 1)  # its time is simulated
        return core

    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("AUTOAUTO_PATIENCE_S")
    return make_core


def test_a_core_is_slow_beyond_the_normal_variation(make_core: MakeCore) -> None:
    core = make_core(lambda _: 1_000_000)
    probe = SpeedProbe()
    for now_ns, factor in ((1_100_000, 1.0), (1_500_000, 1.5), (1_000_000, 1.0)):
        core.arithmetic_ns = lambda _, now_ns=now_ns: now_ns  # type: ignore[misc]
        assert probe.factor() == factor


def test_the_typical_time_is_calibrated_in_a_second_and_stored(make_core: MakeCore) -> None:
    make_core(lambda now_s: 1_000_000 if 0.3 < now_s < 0.7 else 1_600_000)
    probe = SpeedProbe()
    assert probe.factor() == 1.6
    probe.wait()
    core = make_core(lambda _: 1_600_000)
    assert SpeedProbe().factor() == 1.6
    assert core.now_s < 0.1  # no second calibration


def test_a_fast_moment_is_not_typical(make_core: MakeCore) -> None:
    core = make_core(lambda now_s: 500_000 if now_s < 0.1 else 1_000_000)
    probe = SpeedProbe()
    assert probe.factor() == 1.0
    core.arithmetic_ns = lambda _: 500_000
    assert probe.factor() == 1.0
    core.arithmetic_ns = lambda _: 1_000_000
    assert probe.factor() == 1.0


def test_after_a_fast_time_the_former_speed_is_slow(make_core: MakeCore) -> None:
    core = make_core(lambda _: 1_000_000)
    probe = SpeedProbe()
    for _ in range(10):
        core.arithmetic_ns = lambda _: 500_000
        core.compute(machine.SAMPLE_INTERVAL_S)
        assert probe.factor() == 1.0
    core.arithmetic_ns = lambda _: 1_000_000
    assert probe.factor() == 2.0


def test_samples_in_quick_succession_count_as_one(make_core: MakeCore) -> None:
    core = make_core(lambda _: 1_000_000)
    probe = SpeedProbe()
    core.arithmetic_ns = lambda _: 1_600
    assert all(probe.factor() == 1.0 for _ in range(100))
    core.arithmetic_ns = lambda _: 1_000_000
    assert probe.factor() == 1.0


def test_a_wait_ends_when_the_core_is_fast(make_core: MakeCore) -> None:
    core = make_core(lambda now_s: 1_600_000 if 2 < now_s < 5 else 1_000_000)
    probe = SpeedProbe()
    assert not probe.wait()
    core.now_s = 2.5
    assert probe.wait()
    assert 5 <= core.now_s < 5.1


def test_a_core_that_stays_slow_has_a_new_typical_time(make_core: MakeCore) -> None:
    core = make_core(lambda now_s: 16_000_000 if now_s > 2 else 10_000_000)
    probe = SpeedProbe()
    core.now_s = 3.0
    while probe.factor() > 1.0:
        probe.wait()
        core.compute(machine.SAMPLE_INTERVAL_S)
        assert core.now_s < 3 + machine.N_SAMPLES * machine.SAMPLE_INTERVAL_S
    assert SpeedProbe().factor() == 1.0


def test_the_factor_of_a_real_core_is_one_or_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("AUTOAUTO_PATIENCE_S")
    monkeypatch.setattr(machine, "CALIBRATION_S", 0.01)
    probe = SpeedProbe()
    assert all(probe.factor() >= 1.0 for _ in range(20))


def test_without_patience_no_core_is_slow_and_nothing_is_stored(
    make_core: MakeCore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    core = make_core(lambda now_s: 1_600_000 if now_s > 0.01 else 1_000_000)
    monkeypatch.setenv("AUTOAUTO_PATIENCE_S", "0")
    probe = SpeedProbe()
    core.now_s = 5.0
    assert probe.factor() == 1.0
    assert not probe.wait()
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(("setting", "patience_s"), [("2.5", 2.5), (None, machine.PATIENCE_S)])
def test_a_wait_on_a_slow_core_ends_with_patience(
    setting: str | None, patience_s: float, make_core: MakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = make_core(lambda _: 1_000_000)
    if setting:
        monkeypatch.setenv("AUTOAUTO_PATIENCE_S", setting)
    probe = SpeedProbe()
    for _ in range(machine.N_SAMPLES):
        core.compute(machine.SAMPLE_INTERVAL_S)
        assert not probe.wait()
    start_s = core.now_s
    core.arithmetic_ns = lambda _: 1_600_000
    assert probe.wait()
    assert patience_s <= core.now_s - start_s < patience_s + 0.2


def test_all_waits_take_at_most_twice_as_long_as_everything_else(make_core: MakeCore) -> None:
    """The core is fast for a little more than a fifth of the time: that is typical, but too rare to wait for always."""
    core = make_core(lambda now_s: 10_000_000 if now_s % 100 < 22 else 16_000_000)
    probe = SpeedProbe()
    waited_s = 0.0
    for _ in range(200):
        start_s = core.now_s
        if probe.wait():
            waited_s += core.now_s - start_s
        core.compute(machine.SAMPLE_INTERVAL_S)
    other_s = core.now_s - waited_s
    assert other_s < waited_s < machine.MAX_WAIT_RATIO * other_s + machine.PATIENCE_S


@pytest.mark.parametrize("text", ["-1", "soon", "nan", "inf", ""])
def test_a_patience_that_is_no_number_of_seconds_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOAUTO_PATIENCE_S", text)
    with pytest.raises(BadInput, match="AUTOAUTO_PATIENCE_S must be a number of seconds"):
        SpeedProbe()
