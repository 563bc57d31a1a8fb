"""A wait of the main thread that something else ends than a signal."""

import signal
import subprocess
import threading

import pytest

from autoauto.processes.interruption import interrupted_when


def test_a_wait_ends_when_that_is_wanted() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as endless:
        with pytest.raises(KeyboardInterrupt), interrupted_when(lambda: True):
            endless.wait()
        endless.kill()
    assert signal.getsignal(signal.SIGUSR1) is before


def test_nothing_is_ended_that_nobody_wants_to_end() -> None:
    with interrupted_when(None):
        assert not [each for each in threading.enumerate() if each.name == "autoauto interruption"]
    with interrupted_when(lambda: False):
        assert [each for each in threading.enumerate() if each.name == "autoauto interruption"]
    assert not [each for each in threading.enumerate() if each.name == "autoauto interruption"]
