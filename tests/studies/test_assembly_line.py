"""The assembly line, run small."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

from autoauto.runtimes.sharded_engine.device import DeviceRun
from autoauto.runtimes.sharded_engine.run import Sharded


def test_it_prints_what_devices_did() -> None:
    study = Path(__file__).parents[2] / "studies" / "assembly_line.py"
    words = ["--devices", "2", "--requests", "3", "--sleep-ms", "1"]
    done = subprocess.run([sys.executable, str(study), *words], capture_output=True, text=True, check=True)
    *lines, last = done.stdout.splitlines()
    assert lines == [
        "device  layer          sends  receives  forwards",
        "0       x @ W0             3         0         3",
        "1       relu @ W1          0         3         3",
        "outputs are those of one device, in order: yes",
    ]
    assert re.fullmatch(r"times as fast as one device: \d\.\d\d measured, 1.50 in lock step", last)


def test_the_speed_up_is_work_over_time(study: ModuleType) -> None:
    spans = [np.array([[0, 10], [10, 20]]), np.array([[10, 20], [20, 30]])]
    devices = tuple(DeviceRun((0, 0), (0, 0), forwards, np.empty((0, 2), np.int64)) for forwards in spans)
    assert study.speed_up(Sharded(((), ()), devices, 0.0)) == 40 / 30
