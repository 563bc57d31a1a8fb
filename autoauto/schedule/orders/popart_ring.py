"""PopART's pipeline as a ring: the first device has the last stage, too, as where embedding and head read one weight.

All published runs of BERT and GPT-2 are laid out so [graphcore-examples].
"""

from __future__ import annotations

from autoauto.records.schedule import Order, Schedule
from autoauto.schedule.orders.popart import in_cycles
from autoauto.schedule.orders.spec import OrderSpec

# Two devices, five micro-batches; a column is a pipeline cycle:
# 0F0     0F1     0F2.2F0.2B0     0F3.2F1.2B1     0F4.2F2.2B2.0B0     2F3.2B3.0B1     2F4.2B4.0B2     0B3     0B4
#         1F0     1F1             1F2.1B0         1F3.1B1             1F4.1B2         1B3             1B4


def around(n_devices: int, n_chunks: int) -> tuple[int, ...]:
    """A stage on every device, and the last one on the first.

    >>> around(4, 1)
    (0, 1, 2, 3, 0)
    """
    return (*range(n_devices), 0)


def popart_ring(n_devices: int, n_micro_batches: int) -> Schedule:
    """PopART's pipeline of n_devices + 1 stages, the first and the last of them on device 0.

    Raises:
        BadInput: there are fewer micro-batches than the 2 n_devices + 1 pipeline stages.

    >>> schedule = popart_ring(2, 5)
    >>> [str(action) for action, cycle in zip(schedule.actions(0), schedule.slots[0]) if cycle == 4]
    ['0F4', '2F2', '2B2', '0B0']
    """
    return in_cycles(Order.POPART_RING, around(n_devices, 1), n_micro_batches, training=True)


SPECS = (
    OrderSpec(
        Order.POPART_RING,
        lambda request: popart_ring(request.n_devices, request.n_micro_batches),
        stage_devices=around,
        stages_per_device=(1, 1),
        min_micro_batches=lambda n_devices: 2 * n_devices + 1,
    ),
)
