"""Facts of schedule orders that several tests use."""

from autoauto.schedule.orders.registry import TRAINING_ORDERS, spec_of

STAGES_PER_DEVICE = {order: spec_of(order).stages_per_device or (1, 1) for order in TRAINING_ORDERS}
"""The fewest and the most stages of a device, by the order in which a plan trains."""
