"""Engines on other machines over SSH: `SshLauncher`. Their ports are reached through SSH, too.

this machine   search ── ssh HOST guard ───────────▶ guard ──▶ engine on 127.0.0.1:PORT
                  └───── ssh -N -L LOCAL:PORT HOST ─────────────▶ ┘

When the search ends, the input of `ssh` does, then that of the guard, which ends the engine.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager

from autoauto.launch.guarded import GUARD, GuardTask, guarded_engines, task_of
from autoauto.launch.launcher import PORT_WORD, ReplicaStart, RunningEngines
from autoauto.records.errors import BadInput

SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=2")
"""A connection that is cut ends within seconds, on both sides."""


class SshLauncher:
    """Starts every replica on the host of its machine; see `EngineLauncher`.

    Args:
        argument: hosts as `ssh` takes them, with commas, one for each machine of the cluster.
    """

    def __init__(self, argument: str) -> None:
        self._hosts = tuple(argument.split(","))
        if any(not host or host.startswith("-") for host in self._hosts):
            raise BadInput(f"--launch ssh:HOST names a host, got ssh:{argument:.60}; try ssh:node1, or ssh:node1,node2")
        self.where, self.n_machines = f"ssh:{argument}", len(self._hosts)

    def start(
        self, replicas: Sequence[ReplicaStart], ready_path: str, limit_s: float
    ) -> AbstractContextManager[RunningEngines]:
        """Implements `EngineLauncher`."""
        hosts = [self._hosts[each.machine] for each in replicas]
        programs = [(*SSH, host, f"python3 -c {shlex.quote(GUARD)}") for host in hosts]

        def tunnel(number: int, port: int) -> GuardTask:
            forward = f"127.0.0.1:{PORT_WORD}:127.0.0.1:{port}"
            return GuardTask((*SSH, "-o", "ExitOnForwardFailure=yes", "-N", "-L", forward, hosts[number]))

        return guarded_engines([task_of(each) for each in replicas], programs, ready_path, limit_s, tunnel)


LAUNCHER = SshLauncher
