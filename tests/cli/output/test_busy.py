"""What a search does on a machine that other programs keep busy."""

import os
from types import SimpleNamespace
from typing import cast

import pytest

from autoauto.cli.output import busy
from autoauto.cli.output.busy import WhenBusy, heed_busy
from autoauto.evaluate.flow import Flow
from autoauto.records.errors import BadInput

HERE = cast(Flow, SimpleNamespace(target=SimpleNamespace(measures_here=True)))
ELSEWHERE = cast(Flow, SimpleNamespace(target=SimpleNamespace()))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The loads of the machine of two cores, which each look takes one of; the last stays."""
    coming = [20.0]
    monkeypatch.setenv("AUTOAUTO_PATIENCE_S", "10")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (coming.pop(0) if len(coming) > 1 else coming[0], 0.0, 0.0))
    monkeypatch.setattr(busy, "LOOK_S", 0.0)
    return coming


def test_a_search_on_a_busy_machine_says_so_first(loads: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    heed_busy(HERE, WhenBusy.WARN)
    assert "busy machine: a load of 20.0 on 2 cores" in capsys.readouterr().err
    heed_busy(HERE, WhenBusy.IGNORE)
    heed_busy(ELSEWHERE, WhenBusy.WARN)
    assert capsys.readouterr().err == ""
    loads[:] = [0.5]
    heed_busy(HERE, WhenBusy.STOP)


@pytest.mark.usefixtures("loads")
def test_a_search_may_stop_on_a_busy_machine() -> None:
    with pytest.raises(BadInput, match=r"idle machine, it has a load of 20\.0 on 2 cores; try --busy wait"):
        heed_busy(HERE, WhenBusy.STOP)
    heed_busy(ELSEWHERE, WhenBusy.STOP)


def test_a_search_may_wait_for_an_idle_machine(loads: list[float]) -> None:
    loads[:] = [20.0, 9.0, 3.0, 1.5]
    heed_busy(HERE, WhenBusy.WAIT)
    assert loads == [1.5]
