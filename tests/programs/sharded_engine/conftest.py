"""Devices of an engine that run in threads of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any, TypeVar

import pytest

from autoauto.programs.sharded_engine.peers import Peers, SharedEvent
from autoauto.targets.host.transport.shared_memory import Ring
from tests.running import PATIENCE_S

T = TypeVar("T")


@pytest.fixture
def connect() -> Iterator[Callable[..., list[Peers]]]:
    """Connect n devices by small rings."""
    opened: list[Ring | SharedEvent] = []

    def make(n_devices: int, n_slots: int = 2, slot_bytes: int = 256) -> list[Peers]:
        rings = {pair: Ring.create(n_slots, slot_bytes) for pair in permutations(range(n_devices), 2)}
        ended = [SharedEvent() for _ in range(n_devices)]
        opened.extend((*rings.values(), *ended))
        return [
            Peers(
                device,
                {destination: ring for (source, destination), ring in rings.items() if source == device},
                {source: ring for (source, destination), ring in rings.items() if destination == device},
                ended,
            )
            for device in range(n_devices)
        ]

    yield make
    for shared in opened:
        shared.close()


@pytest.fixture
def together() -> Callable[[Sequence[T], Callable[[T], Any]], list[Any]]:
    """Call a function for all devices at once, in threads; returns its results, or the exceptions that it raised."""
    return _together


def _together(devices: Sequence[T], function: Callable[[T], Any]) -> list[Any]:
    results: dict[int, Any] = {}

    def run(number: int) -> None:
        try:
            results[number] = function(devices[number])
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(devices))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(results) == len(devices), f"only devices {sorted(results)} have ended"
    return [results[number] for number in range(len(devices))]
