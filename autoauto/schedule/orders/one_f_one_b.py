"""1F1B: every device runs a backward as soon as one is ready, so that few activations wait.

Checks in the bubbles of 1F1B, `with_bubble_checks`: they force the ideal diagram and cost nothing.

The counts are those of [pipeline-notes, 2.2 and 2.3].
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.schedule import BACKWARD, CHECK, FORWARD, Codes, Order, Schedule, StageTimes
from autoauto.records.units import IntArray
from autoauto.schedule.orders.spec import OrderSpec

# 0F0 0F1 0F2 0F3             0B0     0B1     0B2     0B3
#     1F0 1F1 1F2         1B0 1F3 1B1     1B2     1B3
#         2F0 2F1     2B0 2F2 2B1 2F3 2B2     2B3
#             3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3


def one_f_one_b(n_devices: int, n_micro_batches: int) -> Schedule:
    """Stage s warms up with p - s - 1 forwards, then both take turns, then come the last backwards [pipeline-notes]."""
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


SPECS = (
    OrderSpec(
        Order.ONE_F_ONE_B,
        lambda request: one_f_one_b(request.n_devices, request.n_micro_batches),
        stages_per_device=(1, 1),
    ),
)


# Stage s of p, w = p - s - 1, with p = 4, tf = 1, tb = 2 and m = 4:
#
# s checks  warm-up  w checks of tb  steady        w checks of tf  cool-down   s checks
# of tf                                                                        of tb
#           F F F    C C C           F B           C C C           B B B
# C         F F      C C             F B F B       C C             B B         C
# C C       F        C               F B F B F B   C               B           C C
# C C C                              F B F B F B F B                           C C C


def with_bubble_checks(
    schedule: Schedule, times: StageTimes, check_ticks: int | None = None
) -> tuple[Schedule, StageTimes]:
    """A 1F1B schedule with checks in all its bubbles, and its times with those of the checks.

    On stage s, counted from 0, there are s checks before the warm-up, p - s - 1 before and p - s - 1 after the steady
    phase and s after the cool-down. Each is as long as its unit of the bubble, so they fill (p - 1)(tf + tb) and the
    ideal diagram is the only one possible; or each takes `check_ticks`. The makespan stays the same. Raises BadInput
    for another order or one that has checks, stages of unequal times, links that take time, or a check longer than a
    forward or a backward.
    """
    _require_ideal(schedule, times)
    forward, backward = int(times.forward[0]), int(times.backward[0])
    if check_ticks is not None and not 0 <= check_ticks <= min(forward, backward):
        raise BadInput(
            f"a check must fit into a bubble of one forward and one backward, {forward} and {backward} ticks, "
            f"got {check_ticks}; try {min(forward, backward)}"
        )
    units = (forward, backward) if check_ticks is None else (check_ticks, check_ticks)
    programs = (_with_checks(schedule.codes, s, program) for s, program in enumerate(schedule.programs))
    checks = tuple(_ticks(s, schedule.n_stages, *units) for s in range(schedule.n_stages))
    return replace(schedule, programs=tuple(programs)), replace(times, checks=checks)


def _with_checks(codes: Codes, stage: int, program: IntArray) -> IntArray:
    n_later = codes.n_stages - stage - 1
    n_warm_up = min(n_later, codes.n_micro_batches)
    checks = codes.of(CHECK, stage, range(2 * (codes.n_stages - 1)))
    before, after = stage, len(program) - n_warm_up
    parts = np.split(program, [n_warm_up, after])
    fills = np.split(checks, np.cumsum((before, n_later, n_later)))
    return np.concatenate((fills[0], parts[0], fills[1], parts[1], fills[2], parts[2], fills[3]))


def _ticks(stage: int, n_stages: int, forward_ticks: int, backward_ticks: int) -> IntArray:
    n_later = n_stages - stage - 1
    units = (forward_ticks, backward_ticks, forward_ticks, backward_ticks)
    return np.repeat(units, (stage, n_later, n_later, stage))


def _require_ideal(schedule: Schedule, times: StageTimes) -> None:
    if schedule.order is not Order.ONE_F_ONE_B or schedule.has(CHECK):
        given = "one that has checks" if schedule.has(CHECK) else schedule.order_name
        raise BadInput(f"bubble checks need a plain 1f1b schedule, got {given}")
    for name, ticks in (("forward", times.forward), ("backward", times.backward)):
        if len(set(ticks.tolist())) > 1:
            raise BadInput(f"bubble checks need stages of equal times, got {name} ticks {ticks.tolist()}")
    links = np.concatenate(
        (times.forward_links, times.backward_links[1:], times.forward_exchange, times.backward_exchange)
    )
    if links.any():
        raise BadInput(f"bubble checks need links that take no time, got one of {links.max()} ticks")
