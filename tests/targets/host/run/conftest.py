"""A clock for runs that take no time."""

import pytest

from autoauto.targets.host.run import pace as pace_module


class Clock:
    """A clock that only the test moves on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> int:
        return int(self.now_s * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pace_module, "monotonic_ns", clock)
    monkeypatch.delenv("AUTOAUTO_RUN_S")
    return clock
