from __future__ import annotations

from collections.abc import Callable

from autoauto.records.schedule import Schedule
from autoauto.schedule.orders.one_f_one_b import one_f_one_b
from autoauto.schedule.simulate.dependencies import check


def test_1f1b_is_as_drawn(draw: Callable[[Schedule], str]) -> None:
    assert draw(one_f_one_b(4, 4)) == (
        "0F0 0F1 0F2 0F3             0B0     0B1     0B2     0B3\n"
        "    1F0 1F1 1F2         1B0 1F3 1B1     1B2     1B3\n"
        "        2F0 2F1     2B0 2F2 2B1 2F3 2B2     2B3\n"
        "            3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3"
    )


def test_fewer_micro_batches_than_devices_are_as_drawn(draw: Callable[[Schedule], str]) -> None:
    assert draw(one_f_one_b(4, 2)) == (
        "0F0 0F1                     0B0     0B1\n"
        "    1F0 1F1             1B0     1B1\n"
        "        2F0 2F1     2B0     2B1\n"
        "            3F0 3B0 3F1 3B1"
    )


def test_device_s_of_p_holds_p_minus_s_micro_batches() -> None:
    for p in range(1, 8):
        for m in range(1, 12):
            schedule = one_f_one_b(p, m)
            check(schedule)
            assert schedule.peak_in_flight == tuple(min(p - s, m) for s in range(p))
