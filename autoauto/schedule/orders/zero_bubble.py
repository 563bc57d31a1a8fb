"""Zero bubble: the backward pass in two halves, and weight gradients wherever a device would idle."""

from __future__ import annotations

from dataclasses import replace

from autoauto.records.schedule import Order, Schedule, StageTimes
from autoauto.schedule.orders.spec import OrderSpec, ScheduleRequest

# ZB1P, three devices, four micro-batches, three activations a device:
# 0F0 0F1 0F2         0B0 0W0 0F3 0B1 0W1 0B2 0W2 0B3 0W3
#     1F0 1F1 1F2 1B0 1W0 1B1 1W1 1F3 1B2 1W2 1B3 1W3
#         2F0 2B0 2F1 2B1 2W0 2F2 2B2 2F3 2B3 2W1 2W2 2W3
#
# ZB2P, two devices, three micro-batches, four activations a device:
# 0F0 0F1 0F2 0B0 0W0 0B1 0W1     0B2 0W2
#     1F0 1B0 1F1 1B1 1W0 1F2 1B2 1W1 1W2


def zero_bubble(times: StageTimes, n_micro_batches: int, max_in_flight: int | None, effort: float = 1.0) -> Schedule:
    """The shortest order of one stage a device that the search finds; named ZB1P up to p activations, else ZB2P.

    Only a gradient makes others wait, so a W is put off until its device has nothing else to do or no memory left. ZB1P
    holds up to p activations, no more than 1F1B; ZB2P up to 2p, where equal stages have no bubble but the skew of their
    starts [zero-bubble].

    Arguments and errors are as of `v_shape`.
    """
    # Imported when needed: the search takes time to load, and most programs never use it.
    from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem
    from autoauto.schedule.zero_bubble.search import short_schedule

    n_devices = times.n_stages
    order = Order.ZB1P if max_in_flight is not None and max_in_flight <= n_devices else Order.ZB2P
    problem = ZeroBubbleProblem.of(times, range(n_devices), n_micro_batches, max_in_flight)
    return short_schedule(order, problem, effort)


def _spec(order: Order, multiple: int) -> OrderSpec:
    def make(request: ScheduleRequest) -> Schedule:
        schedule = zero_bubble(request.action_times, request.n_micro_batches, request.max_in_flight, request.effort)
        return replace(schedule, order=order)

    return OrderSpec(
        order,
        make,
        splits_backward=True,
        default_max_in_flight=lambda n_devices: multiple * n_devices,
        stages_per_device=(1, 1),
    )


SPECS = (_spec(Order.ZB1P, 1), _spec(Order.ZB2P, 2))
