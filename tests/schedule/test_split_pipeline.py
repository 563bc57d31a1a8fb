from __future__ import annotations

import numpy as np

from autoauto.records.schedule import StageTimes
from autoauto.schedule.split_pipeline import Pipeline

FOUR = np.arange(4)
NOTHING = np.zeros(4, dtype=np.int64)
TIMES = StageTimes(
    forward=np.arange(10, 14),
    backward=np.arange(20, 24),
    weight=np.arange(30, 34),
    forward_links=np.arange(40, 45),
    backward_links=np.arange(50, 54),
    forward_exchange=NOTHING,
    backward_exchange=NOTHING,
)
V = Pipeline.of(TIMES, [0, 1, 1, 0], 3, None)


def test_jobs_are_numbered_by_kind_then_stage() -> None:
    assert V.ticks == (10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33)
    assert V.work == [10 + 20 + 30 + 13 + 23 + 33, 11 + 21 + 31 + 12 + 22 + 32]
    assert V.path == [0, 1, 2, 3, 7, 6, 5, 4]


def test_messages_within_a_device_take_no_time() -> None:
    messages = {(job, to): ticks for job, to, ticks in V.edges()}
    assert messages == {
        (0, 1): 41,
        (1, 2): 0,  # both on device 1
        (2, 3): 43,
        (3, 7): 0,
        (7, 6): 53,
        (6, 5): 0,
        (5, 4): 51,
        **{(4 + stage, 8 + stage): 0 for stage in range(4)},
    }


def test_no_limit_is_that_all_may_be_held() -> None:
    assert V.limit == 6
    assert Pipeline.of(TIMES, range(4), 3, None).limit == 3
    assert Pipeline.of(TIMES, range(4), 3, 2).limit == 2
    assert Pipeline.of(TIMES, range(4), 3, 8).limit == 3
