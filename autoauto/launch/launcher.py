"""Ways to start engines, `EngineLauncher`, each in a file, and engines that run: `RunningEngines`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib import import_module
from pkgutil import iter_modules
from time import monotonic, sleep
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import autoauto.launch as launch_package
from autoauto.engines.command import GPU_ORDER, Command
from autoauto.launch.faults import EngineFault, FaultKind
from autoauto.load.openai import api_key
from autoauto.records.errors import BadInput, did_you_mean

PORT_WORD = "{port}"
"""Stands for the port in the words of a command, until it is chosen where the engine is started."""
POLL_S = 0.1
_OK = 200
_ANSWER_S = 10.0


class ReplicaStart(NamedTuple):
    """A replica that is to be started.

    Attributes:
        machine: on which, counted over the cluster.
        gpus: of the machine, in the order of the stages.
        folder: of the model on the machine; "" where it is a name on Hugging Face.
    """

    command: Command  # with `PORT_WORD` for the port
    machine: int
    gpus: tuple[int, ...]
    image: str
    folder: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the command, and which GPUs it sees."""
        return {GPU_ORDER: ",".join(map(str, self.gpus)), **self.command.environment}


class RunningEngines(Protocol):
    """Engines that were started."""

    @property
    def urls(self) -> tuple[str, ...]:
        """URLs of the replicas, or of one balancer in front of them."""

    def fault(self, timeout_s: float = 0.0) -> EngineFault | None:
        """Why one of them has ended, now or within a time; None while all run, and where nobody can say."""

    def log(self) -> tuple[str, ...]:
        """The last lines that they wrote; () where nobody can say."""


class EngineLauncher(Protocol):
    """A way to start engines.

    Attributes:
        where: what it is and where, as it is shown and stored.
        n_machines: of the cluster, that it can start engines on; None for any.
    """

    where: str
    n_machines: int | None

    def start(
        self, replicas: Sequence[ReplicaStart], ready_path: str, limit_s: float
    ) -> AbstractContextManager[RunningEngines]:
        """A context in which all replicas answer; afterwards none runs that it started.

        Args:
            ready_path: answers 200 once an engine serves.
            limit_s: seconds until that must be.

        Raises:
            EngineFault: one does not come up.
        """


def launcher_of(text: str) -> EngineLauncher:
    """The way that a text names, with what stands behind a colon, for example "ssh:node1".

    Raises:
        BadInput: there is no such way.
    """
    ways = launchers()
    name, _, argument = text.partition(":")
    if name not in ways:
        raise BadInput(
            f"engines are started by {', '.join(ways)}, got {text!r:.60}; {did_you_mean(name, ways, 'try local')}"
        )
    return ways[name](argument)


def launchers() -> Mapping[str, Callable[[str], EngineLauncher]]:
    """All ways by their names: the `LAUNCHER` of every file of this folder that has one."""
    ways: dict[str, Callable[[str], EngineLauncher]] = {}
    for each in iter_modules(launch_package.__path__):
        module = import_module(f"{launch_package.__name__}.{each.name}")
        if hasattr(module, "LAUNCHER"):
            ways[each.name] = module.LAUNCHER
    return ways


def wait_until_ready(engines: RunningEngines, path: str, limit_s: float) -> None:
    """Wait until all answer; raises EngineFault if one has ended, or does not answer in time."""
    end_s = monotonic() + limit_s
    for url in engines.urls:
        while not answers(url + path):
            if fault := engines.fault():
                raise fault
            if monotonic() > end_s:
                raise EngineFault(FaultKind.TIME, f"the engine did not answer {path} within {limit_s:g} s")
            sleep(POLL_S)


def answers(url: str) -> bool:
    """True if a server answers 200 there. Its key is that of `KEY_VARIABLE`."""
    parts, key = urlsplit(url), api_key()
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connect(parts.netloc, timeout=_ANSWER_S)
    with suppress(OSError, HTTPException):
        try:
            connection.request("GET", parts.path or "/", headers={"Authorization": f"Bearer {key}"} if key else {})
            return connection.getresponse().status == _OK
        finally:
            connection.close()
    return False
