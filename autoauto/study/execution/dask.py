"""Measurements on the workers of a Dask cluster: `DaskExecutor`."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from time import monotonic, sleep
from typing import Any

from autoauto.processes.dask import DEVICE, workers_of
from autoauto.records.errors import BadInput, missing_extra
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Status, Trial
from autoauto.study.execution.executors import ConsecutiveFailures
from autoauto.study.execution.process import Bounds, Evaluate, MeasuringProcess, failed_trial, finished_trial

_CONNECT_S = 10.0


class DaskExecutor:
    """A measurement takes all its devices from one worker and runs in its own process there.

    Dask chooses the worker, and repeats the measurement on another when a worker dies. The workers must be able to
    import autoauto and to start processes.

    Raises:
        MissingExtra: distributed is not installed.
        BadInput: there is no scheduler, or no worker has devices.
    """

    def __init__(self, address: str, evaluate: Evaluate, bounds: Bounds, n_slots: int | None = None) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise missing_extra("a Dask cluster", "dask") from error
        try:
            self._client = Client(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise BadInput(f"there must be a Dask scheduler at {address}, got {error}; try dask scheduler") from error
        self._address, self._evaluate, self._bounds = address, evaluate, bounds
        self._measuring: dict[Knobs, tuple[Any, float]] = {}
        self.on_recorded = ConsecutiveFailures().count
        self.n_slots = n_slots or sum(self._devices())
        if not self.n_slots:
            self._client.close()
            raise BadInput(f"no Dask worker has devices; start them with dask worker --resources {DEVICE}=1")

    @property
    def n_free(self) -> int:
        """Number of measurements that may be sent to the cluster now; some may wait there for devices."""
        return self.n_slots - len(self._measuring)

    def submit(self, knobs: Knobs) -> None:
        """Send it to the cluster; a BadInput if no worker has so many devices, or the scheduler is gone."""
        with self._scheduler_errors():
            largest = max(self._devices(), default=0)
            if not largest:
                raise CancelledError
            if knobs.n_devices > largest:
                raise BadInput(
                    f"a measurement takes {knobs.n_devices} devices of one Dask worker, the largest has {largest}; "
                    f"start one with dask worker --resources {DEVICE}={knobs.n_devices}"
                )
            task = measure_in_process, self._evaluate, knobs, self._bounds
            future = self._client.submit(*task, pure=False, resources={DEVICE: knobs.n_devices})
        self._measuring[knobs] = future, monotonic()

    def wait(self, timeout_s: float) -> None:
        """Wait for a result; a BadInput if the scheduler is gone."""
        from distributed import wait as wait_for

        futures = [future for future, _ in self._measuring.values()]
        if not futures:
            sleep(timeout_s)
            return
        with self._scheduler_errors(), suppress(TimeoutError), self._client.as_current():
            wait_for(futures, timeout=timeout_s, return_when="FIRST_COMPLETED")

    def finished(self) -> list[Trial]:
        """Results, and the failures of measurements whose workers died."""
        done = {knobs: running for knobs, running in self._measuring.items() if running[0].done()}
        for knobs in done:
            del self._measuring[knobs]
        with self._scheduler_errors():
            return [self._trial(knobs, *running) for knobs, running in done.items()]

    def close(self) -> None:
        """Cancel all measurements that have not started, and disconnect."""
        with suppress(Exception):  # the scheduler is gone, and its measurements with it; the client closes at any time
            self._client.cancel([future for future, _ in self._measuring.values()])
        self._measuring.clear()
        self._client.close()

    @contextmanager
    def _scheduler_errors(self) -> Iterator[None]:
        """Turn what Dask raises without a scheduler or without workers into BadInput."""
        try:
            yield
        except Exception as error:
            # A client that has closed itself raises ClosedClientError (distributed 2025.4) where it sends, RuntimeError
            # of its event loop where it waits, and AttributeError of its scheduler, None: its status says what it is.
            is_gone = isinstance(error, CancelledError | OSError) or self._client.status == "closed"
            if isinstance(error, BadInput) or not is_gone:
                raise
            raise BadInput(
                f"the Dask scheduler at {self._address} is gone, or all its workers are; start them and repeat the "
                "search, which resumes from its finished trials"
            ) from error

    def _trial(self, knobs: Knobs, future: Any, started_s: float) -> Trial:
        from distributed import KilledWorker

        error = future.exception()
        if error is None:
            trial: Trial = future.result()
            return trial
        if isinstance(error, KilledWorker):
            reason = "every Dask worker that started to measure it died"
            return failed_trial(knobs, Status.CRASH, reason, [], monotonic() - started_s)
        return finished_trial(knobs, error, monotonic() - started_s)

    def _devices(self) -> list[int]:
        if self._client.scheduler is None or self._client.status == "closed":
            raise CancelledError
        return [worker.n_devices for worker in workers_of(self._client)]


def measure_in_process(evaluate: Evaluate, knobs: Knobs, bounds: Bounds) -> Trial:
    """The task of a Dask worker: measure in another process, so that the worker survives a crash or a hang.

    Raises:
        BadInput: the worker may not start processes.
    """
    if multiprocessing.current_process().daemon:
        raise BadInput(
            "a Dask worker must be allowed to start processes; set DASK_DISTRIBUTED__WORKER__DAEMON=False, "
            "or try dask worker --no-nanny"
        )
    process = MeasuringProcess(evaluate, bounds)
    try:
        process.submit(knobs)
        while (trial := process.poll()) is None:
            wait(process.descriptors, process.left_s)
        return trial
    finally:
        process.close()
