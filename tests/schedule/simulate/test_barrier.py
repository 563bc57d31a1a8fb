from __future__ import annotations

import numpy as np

from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Schedule, StageTimes
from autoauto.schedule.orders.gpipe import gpipe
from autoauto.schedule.orders.inference import inference
from autoauto.schedule.orders.one_f_one_b import one_f_one_b
from autoauto.schedule.orders.popart import popart
from autoauto.schedule.simulate.barrier import barrier, slots
from autoauto.schedule.simulate.dependencies import compute_ticks


def by_device(schedule: Schedule) -> list[dict[str, int]]:
    return [
        dict(zip(map(str, schedule.actions(device)), row.tolist(), strict=True))
        for device, row in enumerate(slots(schedule))
    ]


def test_each_device_runs_one_action_a_slot() -> None:
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


def test_a_schedules_own_slots_are_used() -> None:
    schedule = popart(2, 3, training=True)
    assert slots(schedule) is schedule.slots


def run(schedule: Schedule, times: StageTimes) -> Timeline:
    return barrier(schedule, times, compute_ticks(schedule, times))


def times(forward: list[int], backward: list[int], exchange: list[int]) -> StageTimes:
    n_stages = len(forward)
    none, columns = np.zeros(n_stages + 1, dtype=np.int64), [np.array(row) for row in (forward, backward, exchange)]
    return StageTimes(columns[0], columns[1], none[1:], none, none[1:], columns[2], columns[2])


def test_all_devices_compute_then_all_exchange() -> None:
    #            0     2   3     5   6   7   8     11   13
    # device 0   0F0   x   0F1       x
    # device 1             1F0       x       1F1   x
    timeline = run(inference(2, 2), times([2, 3], [0, 0], [1, 2]))
    assert [row.tolist() for row in timeline.starts] == [[0, 3], [3, 8]]
    assert [row.tolist() for row in timeline.stops] == [[2, 5], [6, 11]]
    assert [rows.tolist() for rows in timeline.exchanges] == [[[2, 3], [6, 7]], [[6, 8], [11, 13]]]
    assert timeline.stop_tick == 13
    assert timeline.exchange_cycles == (2, 4)
    assert timeline.bubble_cycles == (13 - 4 - 2, 13 - 6 - 4)


def test_a_slot_takes_as_long_as_its_slowest_device() -> None:
    timeline = run(one_f_one_b(2, 2), times([1, 1], [5, 5], [0, 0]))
    # slot   0   1       2   3       4       5
    #        0F0 0F1         0B0             0B1       0B0 meets 1F1, and 1B1 is alone
    #            1F0     1B0 1F1     1B1
    assert [row.tolist() for row in timeline.starts] == [[0, 1, 7, 17], [1, 2, 7, 12]]
    assert timeline.makespan_cycles == 1 + 1 + 5 + 5 + 5 + 5


def test_popart_copies_between_all_devices_in_every_cycle() -> None:
    timeline = run(popart(2, 3, training=True), times([2, 2], [3, 3], [1, 2]))
    # cycle  0       1           2                3             4
    #        0F0     0F1         0F2 0B0          0B1           0B2
    #                1F0 1B0     1F1 1B1          1F2 1B2
    #        2 + 4   5 + 4       5 + 4            5 + 4         3 + 4
    assert [row.tolist() for row in timeline.starts] == [[0, 6, 15, 17, 24, 33], [6, 8, 15, 17, 24, 26]]
    assert timeline.stop_tick == 40
    assert timeline.exchange_cycles == (5 * 2, 5 * 4)
    without_backward = run(popart(2, 3, training=False), times([2, 2], [3, 3], [1, 2]))
    assert without_backward.stop_tick == 4 * (2 + 2)
