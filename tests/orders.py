"""Facts of schedule orders that several tests use."""

from autoauto.records.schedule import Order
from autoauto.schedule.orders.registry import TRAINING_ORDERS, spec_of

STAGES_PER_DEVICE = {order: spec_of(order).stages_per_device or (1, 1) for order in TRAINING_ORDERS}
"""The fewest and the most stages of a device, by the order in which a plan trains."""


def n_stages_of(order: Order, n_devices: int) -> int:
    """The stages of a plan with the fewest of a device: in a ring one more than there are devices."""
    return n_devices * STAGES_PER_DEVICE[order][0] + (order is Order.POPART_RING)
