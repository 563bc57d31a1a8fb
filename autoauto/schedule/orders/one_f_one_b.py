"""1F1B: every device runs a backward as soon as one is ready, so that few activations wait."""

from __future__ import annotations

import numpy as np

from autoauto.records.arrays import IntArray
from autoauto.records.schedule import BACKWARD, FORWARD, Codes, Order, Schedule
from autoauto.schedule.orders.spec import OrderSpec

# 0F0 0F1 0F2 0F3             0B0     0B1     0B2     0B3
#     1F0 1F1 1F2         1B0 1F3 1B1     1B2     1B3
#         2F0 2F1     2B0 2F2 2B1 2F3 2B2     2B3
#             3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3


def one_f_one_b(n_devices: int, n_micro_batches: int) -> Schedule:
    """Stage s warms up with p - s - 1 forwards, then forwards and backwards take turns, then come the last backwards.

    The counts are those of [pipeline-notes, 2.2].

    >>> [str(action) for action in one_f_one_b(2, 3).actions(0)]
    ['0F0', '0F1', '0B0', '0F2', '0B1', '0B2']
    """
    codes = Codes(n_devices, n_micro_batches)
    micro_batches = np.arange(n_micro_batches)
    programs = tuple(
        in_turn(
            codes.of(FORWARD, stage, micro_batches),
            codes.of(BACKWARD, stage, micro_batches),
            min(n_devices - stage - 1, n_micro_batches),
        )
        for stage in range(n_devices)
    )
    return Schedule(Order.ONE_F_ONE_B, tuple(range(n_devices)), n_micro_batches, programs)


def in_turn(forwards: IntArray, backwards: IntArray, n_warm_up: int) -> IntArray:
    """The first `n_warm_up` forwards, then a forward and a backward in turn, then the backwards that are left.

    >>> in_turn(np.array([1, 2, 3]), np.array([-1, -2, -3]), 1).tolist()
    [1, 2, -1, 3, -2, -3]
    """
    n_pairs = len(forwards) - n_warm_up
    pairs = np.stack((forwards[n_warm_up:], backwards[:n_pairs]), axis=1)
    return np.concatenate((forwards[:n_warm_up], pairs.ravel(), backwards[n_pairs:]))


SPECS = (OrderSpec(Order.ONE_F_ONE_B, lambda request: one_f_one_b(request.n_devices, request.n_micro_batches)),)
