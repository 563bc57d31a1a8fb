"""Processes that are there and processes that are gone."""

from __future__ import annotations

import os
import subprocess
import sys

from autoauto.search.owner import is_gone, myself


def test_this_process_is_not_gone() -> None:
    assert myself().endswith(f":{os.getpid()}")
    assert not is_gone(myself())


def test_a_process_that_has_ended_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    place = myself().rpartition(":")[0]
    assert is_gone(f"{place}:{child.pid}")


def test_of_another_machine_nothing_is_known() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert not is_gone(f"elsewhere:{child.pid}")


def test_a_process_of_somebody_else_is_there() -> None:
    place = myself().rpartition(":")[0]
    assert not is_gone(f"{place}:1")
