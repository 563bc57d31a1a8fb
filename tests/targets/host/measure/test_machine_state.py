"""What makes measurements slower than they could be."""

from pathlib import Path

import pytest

from autoauto.targets.host.machine import MachineLoad
from autoauto.targets.host.measure.machine_state import MachineState, hot_sensor, machine_state, n_throttled

IDLE = MachineState(48, 48, None, 48, None, 0, "")


def test_an_undisturbed_machine_has_no_warnings() -> None:
    assert list(IDLE.warnings) == []
    assert IDLE.threads_text == "at most 48 threads compute, on 48 of 48 cores, with no quota"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"load": MachineLoad(20.0, 2)}, "a load of 20.0 on 2 cores, so that measurements take about 10.0 times"),
        ({"quota_cores": 7.65, "n_threads": 7}, "at most 7 threads compute, on 48 of 48 cores, with a quota of 7.65"),
        ({"n_throttled": 1200}, "heat has slowed down cores 1,200 times"),
        ({"hot": "cpu has 95 degrees, its limit is 90"}, "cpu has 95 degrees, its limit is 90, so cores may become"),
    ],
)
def test_what_disturbs_is_said(changed: dict[str, object], expected: str) -> None:
    [warning] = IDLE._replace(**changed).warnings  # type: ignore[arg-type]
    assert expected in warning


def test_a_quota_that_affinity_is_below_disturbs_nothing() -> None:
    assert list(IDLE._replace(n_allowed=4, n_threads=4, quota_cores=7.65).warnings) == []


def test_heat_is_counted_over_all_cores(tmp_path: Path) -> None:
    assert n_throttled(tmp_path) == 0
    for number, count in enumerate((3, 4)):
        folder = tmp_path / f"cpu{number}" / "thermal_throttle"
        folder.mkdir(parents=True)
        (folder / "core_throttle_count").write_text(f"{count}\n")
    assert n_throttled(tmp_path) == 7


@pytest.mark.parametrize(("now", "expected"), [(89_000, ""), (91_000, "x86_pkg_temp has 91 degrees, its limit is 90")])
def test_a_sensor_at_its_limit_is_named(now: int, expected: str, tmp_path: Path) -> None:
    zone = tmp_path / "thermal_zone0"
    zone.mkdir()
    texts = {"type": "x86_pkg_temp", "temp": now, "trip_point_0_type": "passive", "trip_point_0_temp": 90_000}
    for name, text in {**texts, "trip_point_1_type": "active", "trip_point_1_temp": 50_000}.items():
        (zone / name).write_text(f"{text}\n")
    assert hot_sensor(tmp_path) == expected


def test_this_machine_has_threads() -> None:
    state = machine_state()
    assert 1 <= state.n_threads <= state.n_allowed <= state.n_cores
    assert state.to_json()["n_threads"] == state.n_threads
