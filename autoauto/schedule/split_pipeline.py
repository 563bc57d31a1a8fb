"""What a zero bubble search schedules: stages on devices, with a backward pass in two halves and a limit on memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from autoauto.records.schedule import BACKWARD, WEIGHT, StageTimes


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages on devices.

    A *job* is all that one stage does of one kind; jobs are numbered as in `Codes`, `kind * n_stages + stage`.

    Attributes:
        devices: the device of every stage, one or two stages a device.
        ticks: for every job what one of its actions takes.
        forward_links, backward_links: as in `StageTimes`.
        n_micro_batches: how many micro-batches there are.
        limit: the most activations a device holds; each from the start of its F to the stop of its W.
    """

    devices: tuple[int, ...]
    ticks: tuple[int, ...]
    forward_links: tuple[int, ...]
    backward_links: tuple[int, ...]
    n_micro_batches: int
    limit: int

    @staticmethod
    def of(times: StageTimes, devices: Sequence[int], n_micro_batches: int, limit: int | None) -> Pipeline:
        """The stages of `times` on their devices; without a limit, everything may be in flight."""
        everything = n_micro_batches * (len(devices) // (max(devices) + 1))
        return Pipeline(
            tuple(devices),
            (*times.forward.tolist(), *times.backward.tolist(), *times.weight.tolist()),
            tuple(times.forward_links.tolist()),
            tuple(times.backward_links.tolist()),
            n_micro_batches,
            everything if limit is None else min(limit, everything),
        )

    @property
    def n_stages(self) -> int:
        """How many stages there are."""
        return len(self.devices)

    @property
    def n_devices(self) -> int:
        """How many devices there are."""
        return max(self.devices) + 1

    @property
    def work(self) -> list[int]:
        """For every device what it computes for one micro-batch."""
        total = [0] * self.n_devices
        for job, ticks in enumerate(self.ticks):
            total[self.devices[job % self.n_stages]] += ticks
        return total

    @property
    def path(self) -> list[int]:
        """The jobs through which a micro-batch and then its gradient pass."""
        n = self.n_stages
        return [*range(n), *(BACKWARD * n + stage for stage in reversed(range(n)))]

    def link(self, job: int, to: int) -> int:
        """Ticks of the message from a job to the next of the path."""
        stage, after = job % self.n_stages, to % self.n_stages
        if self.devices[stage] == self.devices[after]:
            return 0
        return self.forward_links[after] if after > stage else self.backward_links[stage]

    def edges(self) -> list[tuple[int, int, int]]:
        """(job, the job that needs it, ticks of the message): micro-batch by micro-batch."""
        n = self.n_stages
        travel = [(job, to, self.link(job, to)) for job, to in pairwise(self.path)]
        return [*travel, *((BACKWARD * n + stage, WEIGHT * n + stage, 0) for stage in range(n))]
