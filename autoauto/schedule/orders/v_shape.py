"""V shapes: every device has a stage on the way down and one on the way up, so all need about the same memory."""

from __future__ import annotations

from collections.abc import Callable

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order, Schedule, StageTimes
from autoauto.schedule.orders.spec import OrderSpec, ScheduleRequest, there_and_back

# ZBV, two devices, two micro-batches: stages 0 and 3 on device 0, 1 and 2 on device 1
# 0F0 0F1     3F0 3B0 3F1 3B1 0B0 3W0 0B1 3W1 0W0 0W1
#     1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1 2W0 1W0 2W1 1W1
#
# V-half and V-min, three devices, two micro-batches, four activations a device instead of six
# 0F0 0F1             5F0 5B0 5F1 5B1 5W0 5W1 0B0 0W0     0B1 0W1
#     1F0 1F1     4F0     4F1 4B0 4W0 4B1 1B0 1W0 4W1 1B1 1W1
#         2F0 3F0 2F1 3F1         3B0 2B0 3W0 3B1 2B1 2W0 3W1 2W1


def v_shape(
    times: StageTimes,
    n_micro_batches: int,
    max_in_flight: int | None,
    order: Order = Order.ZBV,
    effort: float = 1.0,
) -> Schedule:
    """The shortest order that the search finds for 2p stages on p devices: device d has stages d and 2p - 1 - d.

    Args:
        times: ticks of the actions and messages; `backward` is the input-gradient half.
        max_in_flight: the stages' activations that a device may hold, each from its F to its W; None for no limit.
        order: the schedule's name; V shapes differ in nothing but their limits.

    Raises:
        BadInput: an odd number of stages, or fewer than two activations: one on the way down must leave room for one on
            the way up.
    """
    # Imported when needed: the search takes time to load, and most programs never use it.
    from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem
    from autoauto.schedule.zero_bubble.search import short_schedule

    if times.n_stages % 2:
        raise BadInput(f"a V shape needs two stages a device, got {times.n_stages} stages; try one more or one fewer")
    if max_in_flight is not None and max_in_flight < 2:
        raise BadInput(f"a device of a V shape must hold at least 2 activations, got max_in_flight {max_in_flight}")
    devices = there_and_back(times.n_stages // 2, 1)
    return short_schedule(order, ZeroBubbleProblem.of(times, devices, n_micro_batches, max_in_flight), effort)


def _spec(order: Order, default_max_in_flight: Callable[[int], int]) -> OrderSpec:
    def make(request: ScheduleRequest) -> Schedule:
        limit = request.max_in_flight
        return v_shape(request.action_times, request.n_micro_batches, limit, order, request.effort)

    return OrderSpec(
        order,
        make,
        stage_devices=there_and_back,
        splits_backward=True,
        default_max_in_flight=default_max_in_flight,
        stages_per_device=(2, 2),
    )


# The activations that a device may hold, of the 2p stages' that 1F1B's first device holds: ZBV all of them, V-half
# p + 2 and V-min 2p/3 + 2, rounded to whole micro-batches. These are the peaks of the building blocks in
# [controllable-memory] for 2 to 16 devices.
SPECS = (
    _spec(Order.ZBV, lambda n_devices: max(2, 2 * n_devices)),
    _spec(Order.V_HALF, lambda n_devices: 2 * (n_devices // 2 + 1)),
    _spec(Order.V_MIN, lambda n_devices: 2 * ((n_devices + 1) // 3 + 1)),
)
