"""Measurements on the workers of a Dask cluster: `DaskHands`."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from time import monotonic, sleep
from typing import Any

from autoauto.records.errors import BadInput, MissingExtra
from autoauto.records.knobs import Knobs
from autoauto.records.trial import Attempt, Status
from autoauto.study.execution.executors import Failures
from autoauto.study.execution.process import Bounds, Child, Evaluate, attempt_of, failed_attempt

DEVICE = "device"
"""The resource that workers have and measurements take: `dask worker --resources device=4`."""
_CONNECT_S = 10.0


class DaskHands:
    """A measurement takes as many devices of one worker as it has, and runs in a process of its own there.

    Dask decides which worker, and runs it again on another when a worker dies. The workers must be able to import
    autoauto and to start processes.

    Raises:
        MissingExtra: distributed is not installed.
        BadInput: there is no scheduler, or no worker has devices.
    """

    def __init__(self, address: str, evaluate: Evaluate, bounds: Bounds, n_hands: int | None = None) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise MissingExtra('a Dask cluster needs the extra "dask"; try: pip install distributed') from error
        try:
            self._client = Client(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise BadInput(f"there must be a Dask scheduler at {address}, got {error}; try dask scheduler") from error
        self._address, self._evaluate, self._bounds, self._failures = address, evaluate, bounds, Failures()
        self._measuring: dict[Knobs, tuple[Any, float]] = {}
        self.n_hands = n_hands or self._n_devices()

    @property
    def n_free(self) -> int:
        """Measurements that may be sent to the cluster now; it holds what has to wait for devices."""
        return self.n_hands - len(self._measuring)

    def begin(self, knobs: Knobs) -> None:
        """Send it to the cluster.

        Raises:
            BadInput: no worker has so many devices, or the scheduler is gone.
        """
        with self._scheduler():
            self._begin(knobs)

    def _begin(self, knobs: Knobs) -> None:
        most = max(self._devices(), default=0)
        if not most:
            raise CancelledError
        if knobs.n_devices > most:
            raise BadInput(
                f"a measurement takes {knobs.n_devices} devices of one Dask worker, the largest has {most}; "
                f"start one with dask worker --resources {DEVICE}={knobs.n_devices}"
            )
        future = self._client.submit(
            measure_apart,
            self._evaluate,
            knobs,
            self._bounds,
            pure=False,
            resources={DEVICE: knobs.n_devices},
        )
        self._measuring[knobs] = future, monotonic()

    def wait(self, timeout_s: float) -> None:
        """Wait for a result.

        Raises:
            BadInput: the scheduler is gone.
        """
        from distributed import wait as wait_for

        futures = [future for future, _ in self._measuring.values()]
        if not futures:
            sleep(timeout_s)
            return
        with self._scheduler(), suppress(TimeoutError), self._client.as_current():
            wait_for(futures, timeout=timeout_s, return_when="FIRST_COMPLETED")

    def ended(self) -> list[Attempt]:
        """Results, and what Dask says of workers that died."""
        done = {knobs: both for knobs, both in self._measuring.items() if both[0].done()}
        for knobs in done:
            del self._measuring[knobs]
        with self._scheduler():
            return [self._attempt(knobs, *both) for knobs, both in done.items()]

    def recorded(self, attempt: Attempt) -> None:
        """Raise when every one of the last few measurements failed."""
        self._failures.count(attempt)

    def close(self) -> None:
        """Take back what has not begun, and leave the cluster."""
        with suppress(CancelledError, OSError):  # the scheduler is gone, and all that it held
            self._client.cancel([future for future, _ in self._measuring.values()])
        self._measuring.clear()
        self._client.close()

    @contextmanager
    def _scheduler(self) -> Iterator[None]:
        try:
            yield
        except (CancelledError, OSError) as error:
            raise BadInput(
                f"the Dask scheduler at {self._address} is gone, or all its workers are; start them and repeat the "
                "search, which goes on from its finished trials"
            ) from error

    def _attempt(self, knobs: Knobs, future: Any, begun_s: float) -> Attempt:
        from distributed import KilledWorker

        error = future.exception()
        if error is None:
            found: Attempt = future.result()
            return found
        if isinstance(error, KilledWorker):
            reason = "every Dask worker that began to measure it died"
            return failed_attempt(knobs, Status.CRASH, reason, [], monotonic() - begun_s)
        return attempt_of(knobs, error, monotonic() - begun_s)

    def _n_devices(self) -> int:
        n_devices = sum(self._devices())
        if not n_devices:
            self._client.close()
            raise BadInput(f"no Dask worker has devices; start them with dask worker --resources {DEVICE}=1")
        return n_devices

    def _devices(self) -> list[int]:
        """How many devices every worker has; asked anew, as the client forgets it now and then."""
        if self._client.scheduler is None or self._client.status == "closed":
            raise CancelledError
        told = self._client.sync(self._client.scheduler.identity, n_workers=-1)
        return [int(worker["resources"].get(DEVICE, 0)) for worker in told["workers"].values()]


def measure_apart(evaluate: Evaluate, knobs: Knobs, bounds: Bounds) -> Attempt:
    """What a Dask worker does: measure in a process of its own, so that neither a crash nor a hang is the worker's.

    Raises:
        BadInput: the worker may not start processes.
    """
    if multiprocessing.current_process().daemon:
        raise BadInput(
            "a Dask worker must be allowed to start processes; set DASK_DISTRIBUTED__WORKER__DAEMON=False, "
            "or try dask worker --no-nanny"
        )
    child = Child(evaluate, bounds)
    try:
        child.begin(knobs)
        while (attempt := child.ended()) is None:
            wait([child.connection], child.left_s)
        return attempt
    finally:
        child.close()
