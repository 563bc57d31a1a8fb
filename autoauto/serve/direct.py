"""Micro-batches from the event loop to the only process and back, without a thread between: `DirectExchange`.

    event loop ── ProcessExchange.send ──▶ process
               ◀── filled_fd, by add_reader ──╯

A thread between costs each request two switches, which is as much as a small model takes. Large tensors are copied by
the thread of the engine instead, so that other requests are read meanwhile.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from autoauto.serve.batcher import MicroBatch
from autoauto.serve.protocol import ServedTensor
from autoauto.targets.host.run.exchange import ProcessExchange

MAX_BYTES = 2 << 20
"""Maximum bytes of a micro-batch that is copied in the event loop; more would take a millisecond."""


class DirectExchange:
    """Sends micro-batches to a process from the event loop of the server.

    All calls come from this loop.

    Args:
        finish: is called with every micro-batch and the reason for which the model refuses it, or None.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        exchange: ProcessExchange,
        inputs: Sequence[ServedTensor],
        outputs: Sequence[ServedTensor],
        finish: Callable[[MicroBatch, str | None], None],
    ) -> None:
        self._loop = loop
        self._exchange = exchange
        self._inputs = inputs
        self._outputs = outputs
        self._finish = finish
        self._in_flight: deque[MicroBatch] = deque()
        loop.add_reader(exchange.filled_fd, self._receive)

    def submit(self, batch: MicroBatch) -> None:
        """Have a micro-batch computed; no more than the capacity of the exchange may be in flight."""
        assert len(self._in_flight) < self._exchange.capacity
        self._in_flight.append(batch)
        self._exchange.send(partial(batch.fill, ports=self._inputs))

    def close(self) -> None:
        """Wait for no more outputs."""
        self._loop.remove_reader(self._exchange.filled_fd)

    def _receive(self) -> None:
        batch = self._in_flight.popleft()
        reason = self._exchange.receive(partial(batch.take, ports=self._outputs))
        self._finish(batch, reason)
