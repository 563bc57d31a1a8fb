"""V shapes: every device has a stage on the way down and one on the way up, so all need about the same memory."""

from __future__ import annotations

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order, Schedule, StageTimes
from autoauto.schedule.zero_bubble.problem import Pipeline
from autoauto.schedule.zero_bubble.search import short_schedule

# two devices, two micro-batches: stages 0 and 3, 1 and 2
# 0F0 0F1     3F0 3B0 3F1 3B1 0B0 3W0 0B1 3W1 0W0 0W1
#     1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1 2W0 1W0 2W1 1W1


def v_shape(times: StageTimes, n_micro_batches: int, max_in_flight: int | None, order: Order = Order.ZBV) -> Schedule:
    """The shortest order found of 2p stages on p devices: device d has stages d and 2p - 1 - d.

    Args:
        times: ticks of the actions and messages; `backward` is the input-gradient half.
        n_micro_batches: how many micro-batches there are.
        max_in_flight: the stages' activations that a device may hold, each from its F to its W; None for no limit.
        order: its name; the limit alone decides what it is like.

    Raises:
        BadInput: an odd number of stages, no micro-batch, or fewer than two activations: one on the way down must leave
            room for one on the way up.
    """
    if times.n_stages % 2:
        raise BadInput(f"a V shape needs two stages a device, got {times.n_stages} stages; try one more or one fewer")
    if n_micro_batches < 1:
        raise BadInput(f"a schedule needs at least 1 micro-batch, got {n_micro_batches}")
    if max_in_flight is not None and max_in_flight < 2:
        raise BadInput(f"a device of a V shape must hold at least 2 activations, got max_in_flight {max_in_flight}")
    devices = range(times.n_stages // 2)
    return short_schedule(order, Pipeline.of(times, [*devices, *reversed(devices)], n_micro_batches, max_in_flight))


def default_in_flight(order: Order, n_devices: int) -> int:
    """The stages' activations that a device may hold by default, of the 2p that 1F1B's first device does.

    ZBV has them all, V-half p + 2 and V-min 2p/3 + 2, rounded to whole micro-batches (controllable memory, arXiv
    2405.15362; the peaks of its building blocks for 2 to 16 devices).

    Raises:
        BadInput: the order has no V shape.

    >>> [[default_in_flight(order, p) for p in (2, 4, 8)] for order in (Order.ZBV, Order.V_HALF, Order.V_MIN)]
    [[4, 8, 16], [4, 6, 10], [4, 4, 8]]
    """
    match order:
        case Order.ZBV:
            return max(2, 2 * n_devices)
        case Order.V_HALF:
            return 2 * (n_devices // 2 + 1)
        case Order.V_MIN:
            return 2 * ((n_devices + 1) // 3 + 1)
    raise BadInput(f"a V shape is zbv, v-half or v-min, got {order}")
