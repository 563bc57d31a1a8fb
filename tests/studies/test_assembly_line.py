"""The assembly line of the sharding tutorial on two devices."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from autoauto.programs.sharded_engine.engine import DeviceRun
from autoauto.programs.sharded_engine.run import ShardedRun
from studies import assembly_line


@pytest.mark.slow
def test_every_device_sends_and_computes_every_request(run_script: Callable[..., list[str]]) -> None:
    *lines, last = run_script("assembly_line", "--devices", "2", "--requests", "3", "--sleep-ms", "1")
    assert lines == [
        "device  sends  receives  forwards",
        "0           3         0         3",
        "1           0         3         3",
        "outputs are those of one device, in order: yes",
    ]
    assert re.fullmatch(r"times as fast as one device: \d\.\d\d measured, 1.50 in lock step", last)


def test_the_speed_up_is_busy_time_over_the_time_of_the_run() -> None:
    spans = [np.array([[0, 10], [10, 20]]), np.array([[10, 20], [20, 30]])]
    devices = tuple(DeviceRun((0, 0), (0, 0), forwards, np.empty((0, 2), np.int64)) for forwards in spans)
    assert assembly_line.speed_up(ShardedRun(((), ()), devices, 0.0)) == 40 / 30
