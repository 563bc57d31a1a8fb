"""When requests of an open loop are sent."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import numpy as np
import pytest

from autoauto.load.arrivals import open_loop
from autoauto.records.costs.traffic.arrivals import ArrivalProcess


@pytest.mark.parametrize("variation", [0.0, 1.0, 3.0])
def test_requests_are_due_as_their_process_says(variation: float) -> None:
    """Due times are drawn and not read from the clock, so they show the process on a busy machine, too."""
    dues_s: list[float] = []

    async def send(number: int, due_s: float) -> None:
        dues_s.append(due_s)

    asyncio.run(open_loop(send, 100_000.0, iter(range(4000)), seed=1, process=ArrivalProcess(variation)))
    gaps_s = np.array([after - before for before, after in pairwise(sorted(dues_s))])
    assert gaps_s.mean() == pytest.approx(1e-5, rel=0.2)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(variation, abs=0.01 + 0.15 * variation)
