from __future__ import annotations

import numpy as np

from autoauto.records.schedule import Action, Codes, Order, Schedule, StageTimes
from autoauto.schedule.orders.inference import inference
from autoauto.schedule.orders.one_f_one_b import one_f_one_b
from autoauto.schedule.orders.popart import popart
from autoauto.schedule.simulate.earliest import earliest_starts


def times(forward: list[int], backward: list[int], forward_links: list[int], backward_links: list[int]) -> StageTimes:
    none = np.zeros(len(forward), dtype=np.int64)
    f, b, there, back = map(np.array, (forward, backward, forward_links, backward_links))
    return StageTimes(f, b, none, there, back, none, none)


def starts(schedule: Schedule, stage_times: StageTimes) -> list[list[int]]:
    return [column.tolist() for column in earliest_starts(schedule, stage_times)]


def test_the_host_sends_one_input_after_the_other() -> None:
    # host  ===---===---===---    input m arrives at 3 (m + 1), the first stage takes 2
    #          F0.F1.F2.F3.
    assert starts(inference(1, 4), times([2], [0], [3, 0], [0])) == [[3, 6, 9, 12]]
    assert starts(inference(1, 4), times([4], [0], [3, 0], [0])) == [[3, 7, 11, 15]]


def test_messages_over_a_slow_link_follow_each_other() -> None:
    # device 0   F F F           messages   0 0 0 1 1 1 2 2 2
    # device 1           F     F     F
    assert starts(inference(2, 3), times([1, 1], [0, 0], [0, 3, 0], [0, 0])) == [[0, 1, 2], [4, 7, 10]]


def test_the_two_directions_of_a_link_are_independent() -> None:
    #            0   2   4   6   8   10
    # device 0   0F0 0F1         0B0     0B1
    # device 1       1F0 1B0 1F1 1B1             with 1 tick on the way there and 2 on the way back
    ticks = starts(one_f_one_b(2, 2), times([2, 2], [2, 2], [0, 1, 0], [0, 2]))
    assert ticks == [[0, 2, 9, 13], [3, 5, 7, 9]]


def test_chunks_share_the_link_of_their_devices() -> None:
    # Stages 0 and 2 are on device 0, 1 and 3 on device 1; the message of 0F1 waits until that of 2F0 has arrived.
    codes = Codes(4, 2)
    words = ("0F0 2F0 0F1 2F1", "1F0 1F1 3F0 3F1")
    programs = tuple(codes.encode([Action.parse(word) for word in text.split()]) for text in words)
    schedule = Schedule(Order.INTERLEAVED, (0, 1, 0, 1), 2, programs)
    ticks = starts(schedule, times([1] * 4, [0] * 4, [0, 1, 1, 10, 0], [0] * 4))
    assert ticks == [[0, 4, 5, 18], [2, 16, 17, 29]]


def test_slots_are_ignored() -> None:
    # Without them PopART's pipeline runs ahead: device 1 does 1F0 1B0 as soon as 0F0 is done.
    ticks = starts(popart(2, 3, training=True), times([1, 1], [1, 1], [0, 0, 0], [0, 0]))
    assert ticks == [[0, 1, 2, 3, 5, 7], [1, 2, 3, 4, 5, 6]]


def test_times_stay_exact_beyond_what_floats_hold() -> None:
    odd = 2**53 + 1
    assert starts(inference(2, 3), times([odd, odd], [0, 0], [0, 1, 0], [0, 0])) == [
        [0, odd, 2 * odd],
        [odd + 1, 2 * odd + 1, 3 * odd + 1],
    ]
