from __future__ import annotations

import numpy as np

from autoauto.records.schedule import BACKWARD, FORWARD, Order
from autoauto.schedule.orders.popart import LockstepRow, lockstep


def test_rows_in_one_slot_run_in_their_order() -> None:
    rows = [
        LockstepRow(0, BACKWARD, 0, 2),
        LockstepRow(0, FORWARD, 0, 0),
        LockstepRow(1, FORWARD, 1, 1),
        LockstepRow(1, BACKWARD, 1, 1),
    ]
    schedule = lockstep(Order.POPART, (0, 1), rows, np.array([0, 2]))
    assert [" ".join(map(str, schedule.actions(device))) for device in (0, 1)] == ["0F0 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"]
    assert schedule.slots is not None
    assert [slots.tolist() for slots in schedule.slots] == [[0, 2, 2, 4], [1, 1, 3, 3]]
