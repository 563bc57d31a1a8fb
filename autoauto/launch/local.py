"""Engines on this machine: `LocalLauncher`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from autoauto.launch.guarded import HERE, guarded_engines, task_of
from autoauto.launch.launcher import ReplicaStart, RunningEngines
from autoauto.records.errors import BadInput


class LocalLauncher:
    """Starts every replica as a process on this machine; see `EngineLauncher`."""

    n_machines: int | None = 1

    def __init__(self, argument: str) -> None:
        if argument:
            raise BadInput(f"local is this machine, got local:{argument:.40}; try ssh:{argument:.40}")
        self.where = "local"

    def start(
        self, replicas: Sequence[ReplicaStart], ready_path: str, limit_s: float
    ) -> AbstractContextManager[RunningEngines]:
        """Implements `EngineLauncher`."""
        return guarded_engines([task_of(each) for each in replicas], [HERE] * len(replicas), ready_path, limit_s)


LAUNCHER = LocalLauncher
