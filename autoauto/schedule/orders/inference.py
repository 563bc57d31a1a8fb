"""Inference: every device passes on what it has computed and takes the next micro-batch."""

from __future__ import annotations

from autoauto.records.schedule import Order, Schedule
from autoauto.schedule.orders.spec import OrderSpec

# 0F0 0F1 0F2 0F3
#     1F0 1F1 1F2 1F3
#         2F0 2F1 2F2 2F3


def inference(n_devices: int, n_micro_batches: int) -> Schedule:
    """All forwards, one stage a device [sharding-book, "Inference"]."""
    return Schedule.of_inference((1,) * n_devices, n_micro_batches)


SPECS = (
    OrderSpec(
        Order.INFERENCE, lambda request: inference(request.n_devices, request.n_micro_batches), runs_inference=True
    ),
)
