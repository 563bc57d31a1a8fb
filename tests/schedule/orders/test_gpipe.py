from __future__ import annotations

from collections.abc import Callable

from autoauto.records.schedule import Schedule
from autoauto.schedule.orders.gpipe import gpipe
from autoauto.schedule.simulate.dependencies import check


def test_gpipe_is_as_drawn(draw: Callable[[Schedule], str]) -> None:
    assert draw(gpipe(4, 4)) == (
        "0F0 0F1 0F2 0F3                         0B3 0B2 0B1 0B0\n"
        "    1F0 1F1 1F2 1F3                 1B3 1B2 1B1 1B0\n"
        "        2F0 2F1 2F2 2F3         2B3 2B2 2B1 2B0\n"
        "            3F0 3F1 3F2 3F3 3B3 3B2 3B1 3B0"
    )


def test_every_device_holds_all_micro_batches() -> None:
    for p in (1, 2, 5):
        for m in (1, 3, 8):
            schedule = gpipe(p, m)
            check(schedule)
            assert schedule.peak_in_flight == (m,) * p
