from __future__ import annotations

import numpy as np

from autoauto.records.schedule import BACKWARD, FORWARD, Order
from autoauto.schedule.orders.lockstep import Row, lockstep


def test_rows_that_meet_in_a_slot_keep_their_order() -> None:
    rows = [Row(0, BACKWARD, 0, 2), Row(0, FORWARD, 0, 0), Row(1, FORWARD, 1, 1), Row(1, BACKWARD, 1, 1)]
    schedule = lockstep(Order.POPART, (0, 1), rows, np.array([0, 2]))
    assert [" ".join(map(str, schedule.actions(device))) for device in (0, 1)] == ["0F0 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"]
    assert schedule.slots is not None
    assert [slots.tolist() for slots in schedule.slots] == [[0, 2, 2, 4], [1, 1, 3, 3]]
