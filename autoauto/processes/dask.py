"""The scheduler of a Dask cluster, and the workers that declare devices: `open_client`, `workers_of`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

DEVICE = "device"
"""The resource of which workers declare a number and measurements take some: `dask worker --resources device=4`."""


class DaskWorker(NamedTuple):
    """A worker: its name, its address, and the number of its devices."""

    name: str
    address: str
    n_devices: int


@contextmanager
def open_client(address: str, timeout_s: float) -> Iterator[Any]:
    """A client of a scheduler.

    Raises:
        ImportError: distributed is not installed.
        OSError, ValueError: there is no scheduler.
    """
    from distributed import Client

    client = Client(address, timeout=timeout_s, set_as_default=False)
    try:
        yield client
    finally:
        client.close()


def workers_of(client: Any) -> list[DaskWorker]:
    """All workers, read from the scheduler: the client's copy is empty now and then."""
    identity = client.sync(client.scheduler.identity, n_workers=-1)
    return [
        DaskWorker(str(worker["name"]), address, int(worker["resources"].get(DEVICE, 0)))
        for address, worker in identity["workers"].items()
    ]
