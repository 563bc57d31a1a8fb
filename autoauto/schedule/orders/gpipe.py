"""GPipe: all forwards, then all backwards."""

from __future__ import annotations

import numpy as np

from autoauto.records.schedule import BACKWARD, FORWARD, Codes, Order, Schedule
from autoauto.schedule.orders.spec import OrderSpec

# 0F0 0F1 0F2 0F3                         0B3 0B2 0B1 0B0
#     1F0 1F1 1F2 1F3                 1B3 1B2 1B1 1B0
#         2F0 2F1 2F2 2F3         2B3 2B2 2B1 2B0
#             3F0 3F1 3F2 3F3 3B3 3B2 3B1 3B0


def gpipe(n_devices: int, n_micro_batches: int) -> Schedule:
    """All forwards, then all backwards from the last micro-batch to the first, one stage a device [gpipe].

    Its makespan is that of 1F1B, but every device holds the activations of all micro-batches [pipeline-notes, 1].
    """
    codes = Codes(n_devices, n_micro_batches)
    micro_batches = np.arange(n_micro_batches)
    programs = tuple(
        np.concatenate((codes.of(FORWARD, stage, micro_batches), codes.of(BACKWARD, stage, micro_batches[::-1])))
        for stage in range(n_devices)
    )
    return Schedule(Order.GPIPE, tuple(range(n_devices)), n_micro_batches, programs)


SPECS = (
    OrderSpec(Order.GPIPE, lambda request: gpipe(request.n_devices, request.n_micro_batches), stages_per_device=(1, 1)),
)
