"""Engines that somebody else starts: `EndpointLauncher` prints the commands, and waits until their servers answer."""

from __future__ import annotations

import os
import select
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from autoauto.engines.command import quoted
from autoauto.launch.faults import EngineFault, FaultKind
from autoauto.launch.guarded import GuardedEngines
from autoauto.launch.launcher import POLL_S, PORT_WORD, ReplicaStart, RunningEngines, answers
from autoauto.load.openai import KEY_VARIABLE, base_of
from autoauto.records.errors import BadInput

MODELS_PATH = "/v1/models"


class EndpointLauncher:
    """Asks on stderr for every configuration; see `EngineLauncher`.

    The first is measured as soon as all servers answer. For the next ones a server must have been restarted: it was
    seen not to answer, or a file was touched, or Enter was pressed.

    Args:
        argument: URLs with commas: one of each replica, or one that shares requests out among them.
    """

    n_machines: int | None = None

    def __init__(self, argument: str) -> None:
        self._urls = tuple(base_of(url) for url in argument.split(","))
        if any("@" in url for url in self._urls):
            raise BadInput(f"--endpoint takes no user or password in a URL; put a key into the variable {KEY_VARIABLE}")
        self.where = f"endpoint:{','.join(self._urls)}"
        self._last: Sequence[ReplicaStart] | None = None

    @contextmanager
    def start(self, replicas: Sequence[ReplicaStart], ready_path: str, limit_s: float) -> Iterator[RunningEngines]:
        """Implements `EngineLauncher`; the limit begins when the commands are printed."""
        urls = self._urls[: len(replicas)]
        if 1 < len(self._urls) < len(replicas):
            raise BadInput(
                f"--endpoint names a URL for each of {len(replicas)} replicas, or one for all, got {len(self._urls)}"
            )
        if self._last != replicas:
            _say("\n".join(["start, on GPUs of its own each:", *map(_shown, replicas)]))
            self._wait(urls, limit_s, must_change=self._last is not None)
            self._last = replicas
        elif not all(answers(url + MODELS_PATH) for url in urls):
            self._wait(urls, limit_s, must_change=False)
        yield GuardedEngines((), urls)

    def _wait(self, urls: tuple[str, ...], limit_s: float, *, must_change: bool) -> None:
        signal = Path(tempfile.gettempdir(), f"autoauto-restarted-{os.getpid()}")
        waiting: set[str] = set()  # servers of which a restart must be seen
        asked = f"waiting for {', '.join(urls)}"
        if must_change:
            waiting = set(urls)
            asked += f", or, where it was restarted unseen: touch {signal}, or press Enter"
        _say(asked)
        end_s = monotonic() + limit_s
        try:
            while True:
                up = {url for url in urls if answers(url + MODELS_PATH)}
                waiting &= up  # one that does not answer is being restarted
                if _is_said(signal):
                    waiting = set()
                if not waiting and len(up) == len(urls):
                    return
                if monotonic() > end_s:
                    raise EngineFault(FaultKind.TIME, f"no restarted server answered {MODELS_PATH} in {limit_s:g} s")
                sleep(POLL_S)
        finally:
            with suppress(OSError):  # of another user
                signal.unlink(missing_ok=True)


def _is_said(signal: Path) -> bool:
    if signal.exists():
        return True
    with suppress(OSError, ValueError):
        if sys.stdin.isatty() and select.select([sys.stdin], [], [], 0)[0]:
            return bool(sys.stdin.readline())
    return False


def _shown(replica: ReplicaStart) -> str:
    """A command as a shell reads it; whoever runs it chooses the port."""
    files = [f"# {name}:\n{text.rstrip()}\n" for name, text in replica.command.files.items()]
    words = [f"{name}={value}" for name, value in replica.environment.items()]
    words += [quoted(word.replace(PORT_WORD, "8000")) for word in replica.command.words]
    return "".join(files) + " ".join(words)


def _say(text: str) -> None:
    print(f"autoauto: {text}", file=sys.stderr, flush=True)


LAUNCHER = EndpointLauncher
