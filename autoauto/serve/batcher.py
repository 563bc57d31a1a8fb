"""Micro-batches out of the samples of many requests, and the outputs of each back to its request: `Batcher`.

    requests of 2, 1 and 4 samples        a a │ b │ c c c c
    micro-batches of up to 4 samples      a a   b   c │ c c c     the first is full; the second waits for more

A full micro-batch goes as soon as fewer than `capacity` are in flight. A partial one, which costs as much, goes when
processes would else stand idle, and samples have waited for company for `delay_s`: since their arrival, or since there
was room, whichever was later. All calls come from one thread, with the time of one clock; nothing here waits.

A micro-batch that the model refuses is tried again request by request, so that only those fail whose values it refuses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.errors import AutoautoError, BadInput
from autoauto.records.units import Array
from autoauto.serve.artifact import ServedModel
from autoauto.serve.protocol import ServedTensor


class QueueFull(AutoautoError):
    """The queue is full: no more samples may wait."""


class NotServing(AutoautoError):
    """There are no processes that compute: they start, were lost, or the server ends."""


class Job:
    """The samples of one request on their way.

    Args:
        done: is called once, when all outputs are there or the job failed.

    Attributes:
        outputs: by name, complete when `done` was called without an error.
    """

    def __init__(self, inputs: Mapping[str, Array], n_samples: int, done: Callable[[Job], None]) -> None:
        self.inputs = inputs
        self.n_samples = n_samples
        self.outputs: dict[str, Array] = {}
        self.error: AutoautoError | None = None
        self.arrived_s = 0.0
        self._done = done
        self._n_left = n_samples

    @property
    def has_ended(self) -> bool:
        """True if the job is complete, failed or was given up: no more of its samples are computed."""
        return self._n_left == 0

    def finish(self, n_samples: int) -> None:
        """Note that some more samples have their outputs."""
        if not self.has_ended:
            self._n_left -= n_samples
            if self.has_ended:
                self._done(self)

    def fail(self, error: AutoautoError) -> None:
        """End the job with an error and without outputs."""
        if not self.has_ended:
            self.error = error
            self._n_left = 0
            self._done(self)


class Piece(NamedTuple):
    """Consecutive samples of a job."""

    job: Job
    start: int
    stop: int

    @property
    def n_samples(self) -> int:
        """The number of samples in the piece."""
        return self.stop - self.start


class MicroBatch:
    """Pieces, one behind the other, that a pipeline computes at once; `n_samples` are at most its batch size."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = tuple(pieces)
        self.n_samples = sum(piece.n_samples for piece in pieces)

    def fill(self, arrays: Mapping[str, Array], ports: Sequence[ServedTensor]) -> None:
        """Write the inputs; copies of the last sample, whose values the model accepts, fill the rest of the batch."""
        for port in ports:
            array = arrays[port.name]
            start = 0
            for job, first, last in self.pieces:
                stop = start + last - first
                port.samples(array, start, stop)[...] = port.samples(job.inputs[port.name], first, last)
                start = stop
            if port.batch_axis is not None:
                last_sample = port.samples(array, start - 1, start)
                for number in range(start, port.batch_size):
                    port.samples(array, number, number + 1)[...] = last_sample

    def take(self, arrays: Mapping[str, Array], ports: Sequence[ServedTensor]) -> None:
        """Copy the outputs to the jobs; what fills up is dropped."""
        for port in ports:
            start = 0
            for job, first, last in self.pieces:
                if port.data_dependent:  # the job is the micro-batch
                    job.outputs[port.name] = arrays[port.name].copy()
                    continue
                if port.name not in job.outputs:
                    job.outputs[port.name] = np.empty(port.shape_of(job.n_samples), port.dtype)
                stop = start + last - first
                port.samples(job.outputs[port.name], first, last)[...] = port.samples(arrays[port.name], start, stop)
                start = stop


class Batcher:
    """The queue of samples, and the micro-batches in flight.

    Args:
        delay_s: the maximum time for which samples wait for company when there is room for them.

    Attributes:
        capacity: how many there may be: one that is computed in each process, and one that waits for it.
        dependence: why a request must be exactly one micro-batch; None where requests may share them.
    """

    def __init__(self, model: ServedModel, max_queue: int, delay_s: float) -> None:
        self.max_queue = max_queue
        self.delay_s = delay_s
        self.n_queued = 0
        self.in_flight: set[MicroBatch] = set()
        self.dependence = None if model.merges else "a tensor of the model has no axis of them"
        self._model = model
        self._n_processes = model.n_pipelines * model.n_processes
        self.capacity = 2 * self._n_processes
        self._queue: deque[Piece] = deque()
        self._again: deque[Piece] = deque()
        self._room_since_s = 0.0

    @property
    def is_empty(self) -> bool:
        """True if no sample waits or is in flight."""
        return not (self._queue or self._again or self.in_flight)

    def add(self, job: Job, now_s: float) -> None:
        """Let the samples of a job wait.

        Raises:
            QueueFull: too many wait already.
            BadInput: the job holds more than may ever wait, or is no micro-batch where it must be one.
        """
        n = job.n_samples
        batch_size = self._model.batch_size
        if self.dependence is not None and n != batch_size:
            raise BadInput(f"a request must hold {batch_size} samples, because {self.dependence}; got {n}")
        if n > self.max_queue:
            raise BadInput(f"a request may hold {self.max_queue} samples, got {n}; try several requests")
        if self.n_queued + n > self.max_queue:
            raise QueueFull(f"at most {self.max_queue} samples may wait, {self.n_queued} do; try again later")
        job.arrived_s = now_s
        self._queue.append(Piece(job, 0, n))
        self.n_queued += n

    def drop(self, job: Job, error: AutoautoError) -> None:
        """Fail a job, and let its samples wait no longer."""
        job.fail(error)
        self._queue = deque(piece for piece in self._queue if piece.job is not job)
        self.n_queued = sum(piece.n_samples for piece in self._queue)

    def next(self, now_s: float) -> MicroBatch | None:
        """The micro-batch that is to be computed now, which is in flight from now on; None where none is."""
        batch = self._chosen(now_s)
        if batch is not None:
            self.in_flight.add(batch)
        return batch

    def _chosen(self, now_s: float) -> MicroBatch | None:
        if len(self.in_flight) >= self.capacity:
            return None
        while self._again:  # of a refused micro-batch, one request at a time
            piece = self._again.popleft()
            if not piece.job.has_ended:
                return MicroBatch([piece])
        wake_s = self.wake_s
        if self.n_queued >= self._model.batch_size or (wake_s is not None and wake_s <= now_s):
            return self._filled()
        return None

    @property
    def wake_s(self) -> float | None:
        """The time from which `next` gives a partial micro-batch, if nothing else happens; None for never."""
        # While all processes compute, a partial micro-batch would only wait, too: later it may be full.
        if not self._queue or len(self.in_flight) >= self._n_processes:
            return None
        return max(self._queue[0].job.arrived_s, self._room_since_s) + self.delay_s

    def _filled(self) -> MicroBatch:
        """The oldest samples; what is left of a job stays in front of the queue."""
        pieces = []
        room = self._model.batch_size
        while self._queue and room:
            job, start, stop = self._queue.popleft()
            taken = min(room, stop - start)
            pieces.append(Piece(job, start, start + taken))
            if start + taken < stop:
                self._queue.appendleft(Piece(job, start + taken, stop))
            room -= taken
            self.n_queued -= taken
        return MicroBatch(pieces)

    def finish(self, batch: MicroBatch, now_s: float) -> None:
        """End a micro-batch whose outputs its jobs have."""
        self._land(batch, now_s)
        for piece in batch.pieces:
            piece.job.finish(piece.n_samples)

    def refuse(self, batch: MicroBatch, reason: str, now_s: float) -> None:
        """End a micro-batch that the model refuses: a job alone in it fails, several are tried again one by one."""
        self._land(batch, now_s)
        if len(batch.pieces) > 1:
            self._again.extend(batch.pieces)
            return
        [piece] = batch.pieces
        self.drop(piece.job, BadInput(f"the model does not take these values: {reason}"))

    def lose(self, error: AutoautoError, now_s: float) -> None:
        """Fail all jobs, queued or in flight, because the processes have died."""
        pieces = [*self._queue, *self._again]
        for batch in self.in_flight:
            pieces += batch.pieces
        self._queue.clear()
        self._again.clear()
        self.in_flight.clear()
        self.n_queued = 0
        self._room_since_s = now_s
        for piece in pieces:
            piece.job.fail(error)

    def _land(self, batch: MicroBatch, now_s: float) -> None:
        if len(self.in_flight) == self._n_processes:
            self._room_since_s = now_s
        self.in_flight.remove(batch)
