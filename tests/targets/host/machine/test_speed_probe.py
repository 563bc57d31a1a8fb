from collections.abc import Callable
from pathlib import Path

import pytest

from autoauto.records.errors import BadInput
from autoauto.targets.host.machine import speed_probe as yardstick
from autoauto.targets.host.machine.speed_probe import Yardstick


class Speed:
    """A core that takes so long for the yardstick, by the clock; arithmetic moves the clock on."""

    def __init__(self, takes_ns: Callable[[float], int]) -> None:
        self.takes_ns, self.now_s, self.on_core_ns = takes_ns, 0.0, 0
        self.in_a_try = False

    def thread_time_ns(self) -> int:
        if self.in_a_try:
            took_ns = self.takes_ns(self.now_s)
            self.on_core_ns += took_ns
            self.now_s += took_ns / 1e9
        self.in_a_try = not self.in_a_try
        return self.on_core_ns

    def work(self, seconds: float) -> None:
        self.now_s += seconds


MakeCore = Callable[[Callable[[float], int]], Speed]


@pytest.fixture
def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeCore:
    """A core of a given speed in place of the real one, and a yardstick that is calibrated anew."""

    def core(takes_ns: Callable[[float], int]) -> Speed:
        speed = Speed(takes_ns)
        monkeypatch.setattr(yardstick, "thread_time_ns", speed.thread_time_ns)
        monkeypatch.setattr(yardstick, "perf_counter", lambda: speed.now_s)
        return speed

    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("AUTOAUTO_PATIENCE_S")
    return core


def test_a_core_is_slow_beyond_what_always_varies(core: MakeCore) -> None:
    speed = core(lambda _: 1_000_000)
    stick = Yardstick()
    for now_ns, factor in ((1_100_000, 1.0), (1_500_000, 1.5), (1_000_000, 1.0)):
        speed.takes_ns = lambda _, now_ns=now_ns: now_ns  # type: ignore[misc]
        assert stick.factor() == factor


def test_what_is_usual_is_found_in_a_second_and_kept(core: MakeCore) -> None:
    core(lambda now_s: 1_000_000 if 0.3 < now_s < 0.7 else 1_600_000)
    stick = Yardstick()
    assert stick.factor() == 1.6
    stick.wait()
    speed = core(lambda _: 1_600_000)
    assert Yardstick().factor() == 1.6
    assert speed.now_s < 0.1  # no second spent


def test_one_fast_moment_is_not_usual(core: MakeCore) -> None:
    speed = core(lambda now_s: 500_000 if now_s < 0.1 else 1_000_000)
    stick = Yardstick()
    assert stick.factor() == 1.0
    speed.takes_ns = lambda _: 500_000
    assert stick.factor() == 1.0
    speed.takes_ns = lambda _: 1_000_000
    assert stick.factor() == 1.0


def test_a_core_that_has_become_fast_is_slow_when_it_is_as_before(core: MakeCore) -> None:
    speed = core(lambda _: 1_000_000)
    stick = Yardstick()
    for _ in range(10):
        speed.takes_ns = lambda _: 500_000
        speed.work(yardstick.LOOK_S)
        assert stick.factor() == 1.0
    speed.takes_ns = lambda _: 1_000_000
    assert stick.factor() == 2.0


def test_looks_in_quick_succession_count_as_one(core: MakeCore) -> None:
    speed = core(lambda _: 1_000_000)
    stick = Yardstick()
    speed.takes_ns = lambda _: 1_600
    assert all(stick.factor() == 1.0 for _ in range(100))
    speed.takes_ns = lambda _: 1_000_000
    assert stick.factor() == 1.0


def test_it_waits_until_the_core_is_fast(core: MakeCore) -> None:
    speed = core(lambda now_s: 1_600_000 if 2 < now_s < 5 else 1_000_000)
    stick = Yardstick()
    assert not stick.wait()
    speed.now_s = 2.5
    assert stick.wait()
    assert 5 <= speed.now_s < 5.1


def test_a_core_that_stays_slow_has_a_new_speed(core: MakeCore) -> None:
    speed = core(lambda now_s: 16_000_000 if now_s > 2 else 10_000_000)
    stick = Yardstick()
    speed.now_s = 3.0
    while stick.factor() > 1.0:
        stick.wait()
        speed.work(yardstick.LOOK_S)
        assert speed.now_s < 3 + yardstick.N_LOOKS * yardstick.LOOK_S
    assert Yardstick().factor() == 1.0


def test_a_real_core_is_never_faster_than_usual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("AUTOAUTO_PATIENCE_S")
    monkeypatch.setattr(yardstick, "CALIBRATION_S", 0.01)
    stick = Yardstick()
    assert all(stick.factor() >= 1.0 for _ in range(20))


def test_without_patience_no_core_is_slow(core: MakeCore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    speed = core(lambda now_s: 1_600_000 if now_s > 0.01 else 1_000_000)
    monkeypatch.setenv("AUTOAUTO_PATIENCE_S", "0")
    stick = Yardstick()
    speed.now_s = 5.0
    assert stick.factor() == 1.0
    assert not stick.wait()
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(("told_s", "patience_s"), [("2.5", 2.5), (None, yardstick.PATIENCE_S)])
def test_patience_has_an_end(
    told_s: str | None, patience_s: float, core: MakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = core(lambda _: 1_000_000)
    if told_s:
        monkeypatch.setenv("AUTOAUTO_PATIENCE_S", told_s)
    stick = Yardstick()
    for _ in range(yardstick.N_LOOKS):
        speed.work(yardstick.LOOK_S)
        assert not stick.wait()
    begin_s = speed.now_s
    speed.takes_ns = lambda _: 1_600_000
    assert stick.wait()
    assert patience_s <= speed.now_s - begin_s < patience_s + 0.2


def test_waits_take_at_most_twice_as_long_as_all_else(core: MakeCore) -> None:
    """The core is fast for a fifth of the time and a little more, which is usual, and yet too rare to wait always."""
    speed = core(lambda now_s: 10_000_000 if now_s % 100 < 22 else 16_000_000)
    stick = Yardstick()
    waited_s = 0.0
    for _ in range(200):
        begin_s = speed.now_s
        if stick.wait():
            waited_s += speed.now_s - begin_s
        speed.work(yardstick.LOOK_S)
    else_s = speed.now_s - waited_s
    assert else_s < waited_s < yardstick.MOST_WAITING * else_s + yardstick.PATIENCE_S


@pytest.mark.parametrize("text", ["-1", "soon", "nan", "inf", ""])
def test_patience_is_a_time(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOAUTO_PATIENCE_S", text)
    with pytest.raises(BadInput, match="AUTOAUTO_PATIENCE_S must be a number of seconds"):
        Yardstick()
