from __future__ import annotations

import numpy as np

from autoauto.records.schedule import Action, Codes, Order, Schedule, StageTimes
from autoauto.schedule.durations import compute_ticks, exchange_ticks


def test_every_action_takes_what_its_stage_and_kind_take() -> None:
    words = ("0C0 0F0 0C1 0B0 0W0", "1F0 1B0 1W0 1C0")
    encode = Codes(2, 1).encode
    programs = tuple(encode([Action.parse(word) for word in text.split()]) for text in words)
    forward, backward, weight = np.array([[10, 11], [20, 21], [30, 31]])
    links, checks = np.zeros(3, dtype=np.int64), (np.array([1, 2]), np.array([3]))
    forward_exchange, backward_exchange = np.array([[50, 51], [60, 61]])
    times = StageTimes(forward, backward, weight, links, links[1:], forward_exchange, backward_exchange, checks=checks)
    schedule = Schedule(Order.ZB1P, (0, 1), 1, programs)
    assert [row.tolist() for row in compute_ticks(schedule, times)] == [[1, 10, 2, 20, 30], [11, 21, 31, 3]]
    assert [row.tolist() for row in exchange_ticks(schedule, times)] == [[0, 50, 0, 60, 0], [51, 61, 0, 0]]
