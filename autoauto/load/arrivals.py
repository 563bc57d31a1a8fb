"""When requests are sent: `closed_loop`, by clients that wait for answers, `open_loop`, independently of answers.

Both take the numbers of requests from an iterator, which ends when enough was sent, and return when all are answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from time import perf_counter

import numpy as np

from autoauto.records.costs.traffic.arrivals import POISSON, ArrivalProcess

Send = Callable[[int, float], Coroutine[object, object, None]]
"""Sends the request of a number that was due at a time of `perf_counter`, and returns when it is answered or failed."""


async def closed_loop(send: Send, n_clients: int, numbers: Iterator[int]) -> None:
    """Clients, each of which sends its next request when it has the last answer: shows the throughput."""

    async def client() -> None:
        for number in numbers:
            await send(number, perf_counter())

    await asyncio.gather(*(client() for _ in range(n_clients)))


async def open_loop(
    send: Send, requests_per_s: float, numbers: Iterator[int], seed: int = 0, process: ArrivalProcess = POISSON
) -> None:
    """Send requests at times of their own, as many independent users do, to measure the latency at a rate."""
    gaps_s = process.sending_s(np.random.default_rng(seed), requests_per_s)
    due_s = perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in numbers:
            # From when it was due, not sent: a client that is late makes up for it.
            due_s += next(gaps_s)
            await asyncio.sleep(max(due_s - perf_counter(), 0.0))
            group.create_task(send(number, due_s))
