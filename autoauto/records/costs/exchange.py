"""What stages exchange where any device reaches any other: `TensorUse`, `Exchange`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from autoauto.records.hardware import Link
from autoauto.records.units import IntArray


class TensorUse(NamedTuple):
    """A tensor between layers.

    Attributes:
        consumers: the layers that read it, ascending, one or more. In a backward pass they come before the producer.
    """

    producer: int
    consumers: tuple[int, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """Bytes that stages receive and send if every tensor goes directly from its producer to its readers.

    A stage receives a tensor once, however many of its layers read it, and sends it once, however many stages do. A
    tensor that skips a stage does not pass through it, as it does from neighbour to neighbour.
    """

    tensors: tuple[TensorUse, ...]
    receive_links: tuple[Link, ...]
    send_links: tuple[Link, ...]
    clock_hz: float

    def part(self, first: int, stop: int) -> Exchange:
        """These transfers on the devices `[first, stop)` only."""
        return replace(self, receive_links=self.receive_links[first:stop], send_links=self.send_links[first:stop])

    def receive_cycles(self, device: int, start: int, stop: int) -> int:
        """Cycles of the reference clock in which a device receives what the stage `[start, stop)` reads."""
        inside = range(start, stop)
        n_bytes = 0
        for use in self.tensors:
            if use.producer not in inside and any(layer in inside for layer in use.consumers):
                n_bytes += use.n_bytes
        return self.receive_links[device].load_cycles(n_bytes, self.clock_hz)

    def send_cycles(self, device: int, start: int, stop: int) -> int:
        """Cycles of the reference clock in which a device sends what the stage `[start, stop)` makes for others."""
        inside = range(start, stop)
        n_bytes = 0
        for use in self.tensors:
            if use.producer in inside and any(layer not in inside for layer in use.consumers):
                n_bytes += use.n_bytes
        return self.send_links[device].load_cycles(n_bytes, self.clock_hz)

    def range_bytes(self, cuts: Sequence[int]) -> tuple[IntArray, IntArray]:
        """Bytes that every range between two of B + 1 cuts receives and sends: two arrays (B + 1, B + 1), start x stop.

        The ranges for which a tensor counts are a few rectangles of starts and stops. For one that layer 1 makes and
        layers 3 and 4 read:

            start  0 1 2 3 4                received by the ranges that hold a reader          r
            stop 2 . .                      less those that hold a reader and the producer     -
                 3 . . .                    sent by those that hold the producer, less those
                 4 - - r r                  that hold all of it
                 5 - - r r r

        Each adds its bytes at a corner and subtracts them beyond its ends, and running sums over both ends add up all.
        """
        n_blocks = len(cuts) - 1
        received, sent = np.zeros((2, n_blocks + 2, n_blocks + 2), dtype=np.int64)
        for producer, consumers, n_bytes in self._by_block(cuts):
            # The nearest readers on both sides of the producer; ranges between them hold the producer only.
            before = max((consumer for consumer in consumers if consumer <= producer), default=-1)
            after = min((consumer for consumer in consumers if consumer >= producer), default=n_blocks)
            # A range counts for its first reader, so that a tensor counts once.
            for previous, consumer in zip((-1, *consumers), consumers, strict=False):
                _add(received, (previous + 1, consumer), (consumer + 1, n_blocks), n_bytes)
            _add(received, (0, producer), (producer + 1, n_blocks), -n_bytes)  # holds the producer,
            if producer not in consumers:
                _add(received, (before + 1, producer), (producer + 1, after), n_bytes)  # but no reader
            _add(sent, (0, producer), (producer + 1, n_blocks), n_bytes)
            _add(sent, (0, min(producer, consumers[0])), (max(producer, consumers[-1]) + 1, n_blocks), -n_bytes)
        whole = slice(n_blocks + 1)
        return received.cumsum(0).cumsum(1)[whole, whole], sent.cumsum(0).cumsum(1)[whole, whole]

    def _by_block(self, cuts: Sequence[int]) -> Iterator[TensorUse]:
        """The tensors with the indices of blocks instead of layers; not those that never leave a block."""
        block_of = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts)).tolist()
        for producer, consumers, n_bytes in self.tensors:
            blocks = tuple(sorted({block_of[layer] for layer in consumers}))
            if n_bytes and blocks != (block_of[producer],):
                yield TensorUse(block_of[producer], blocks, n_bytes)


def _add(sums: IntArray, starts: tuple[int, int], stops: tuple[int, int], n_bytes: int) -> None:
    """Add bytes to all ranges with a start and a stop in these closed intervals; one of them may be empty."""
    (first, last), (lowest, highest) = starts, stops
    if first <= last and lowest <= highest:
        sums[first, lowest] += n_bytes
        sums[last + 1, lowest] -= n_bytes
        sums[first, highest + 1] -= n_bytes
        sums[last + 1, highest + 1] += n_bytes
