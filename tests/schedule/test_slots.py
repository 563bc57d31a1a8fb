from __future__ import annotations

from autoauto.records.schedule import Schedule
from autoauto.schedule.gpipe import gpipe
from autoauto.schedule.one_f_one_b import one_f_one_b
from autoauto.schedule.popart import popart
from autoauto.schedule.slots import slots


def by_device(schedule: Schedule) -> list[dict[str, int]]:
    return [
        dict(zip(map(str, schedule.actions(device)), row.tolist(), strict=True))
        for device, row in enumerate(slots(schedule))
    ]


def test_each_device_does_one_thing_a_slot() -> None:
    # 0   1   2   3   4   5   6   7
    # 0F0 0F1 0F2         0B0     0B1 ...
    #     1F0 1F1     1B0 1F2 1B1
    #         2F0 2B0 2F1 2B1
    assert by_device(one_f_one_b(3, 3)) == [
        {"0F0": 0, "0F1": 1, "0F2": 2, "0B0": 5, "0B1": 7, "0B2": 9},
        {"1F0": 1, "1F1": 2, "1B0": 4, "1F2": 5, "1B1": 6, "1B2": 8},
        {"2F0": 2, "2B0": 3, "2F1": 4, "2B1": 5, "2F2": 6, "2B2": 7},
    ]


def test_gpipe_has_as_many_slots_as_1f1b() -> None:
    for p, m in ((1, 1), (3, 2), (4, 9)):
        assert max(row[-1] for row in slots(gpipe(p, m))) == 2 * (m + p - 1) - 1


def test_a_schedules_own_slots_are_kept() -> None:
    schedule = popart(2, 3, training=True)
    assert slots(schedule) is schedule.slots
