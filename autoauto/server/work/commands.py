"""Commands that a server runs for its clients, in a process beside it: `Commands`.

    handler ──words──▶ child: autoauto report search-... ──Printed──▶ handler

So clients read the lines that the command prints, a report of ten thousand trials costs other requests nothing, and
what takes all memory or never ends costs the child only. One runs at a time; what was printed of a search is cached
until the search changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from threading import Lock
from types import MappingProxyType
from typing import NamedTuple

from autoauto.processes.channel import BadMessage, Channel
from autoauto.processes.start import RecycledChild
from autoauto.records.errors import AutoautoError
from autoauto.study.store.database import hide_storage

MAX_S = 120.0
"""Maximum time of a command."""
_HINTS = {"export": ", or leave out the check"}
MAX_COMMANDS = 200
"""Commands after which the child is replaced."""
MAX_CACHE_BYTES = 32 << 20


class CommandFailed(AutoautoError):
    """A command has not ended as a command does."""


class CommandTooLong(AutoautoError):
    """A command takes longer than a server gives it; it would again."""


class Printed(NamedTuple):
    """The output of a command, and its exit code."""

    exit_code: int
    stdout: str
    stderr: str


RunCommand = Callable[[Sequence[str], int | None, Mapping[str, str]], Printed]
"""Runs a command of some words, for a terminal with so many columns or for none, whose reader calls uploaded files by
these names; a function of a module."""


class Commands:
    """Runs commands over the studies of one database."""

    def __init__(self, storage: str, run: RunCommand) -> None:
        self._storage = storage
        self._child = RecycledChild(_run_all, (storage, run), MAX_COMMANDS)
        self._lock = Lock()
        self._cache: OrderedDict[Hashable, Printed] = OrderedDict()

    def printed(
        self,
        words: Sequence[str],
        columns: int | None = None,
        key: Hashable | None = None,
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> Printed:
        """Run a command and return its output, or return what an equal one printed before.

        Args:
            words: of the command, with neither program nor storage.
            columns: of the reader's terminal; None for none.
            key: equal ones have printed the same; None where it writes files.
            names: of uploaded files by their digests, as the reader calls them.

        Raises:
            CommandTooLong: it does not end in time.
            CommandFailed: its process has died.
        """
        whole = (key, tuple(words), columns, tuple(names.items()))
        with self._lock:
            if key is not None and whole in self._cache:
                self._cache.move_to_end(whole)  # the one that was used longest ago is dropped first
                return self._cache[whole]
            printed = self._printed(([*words, "--storage", self._storage], columns, dict(names)))
            if key is not None:
                self._cache[whole] = printed
                total = sum(len(each.stdout) for each in self._cache.values())
                while total > MAX_CACHE_BYTES:
                    total -= len(self._cache.popitem(last=False)[1].stdout)
            return printed

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._child.close()

    def _printed(self, command: tuple[list[str], int | None, dict[str, str]]) -> Printed:
        name = command[0][0]
        child = self._child.use()
        try:
            with suppress(OSError):  # it died while it was idle
                child.channel.send(command)
            if not wait([*child.descriptors], MAX_S):
                raise CommandTooLong(
                    f"a server runs a command for {MAX_S:g} s at most, {name} takes longer than that; run "
                    f"`autoauto {name}` on a machine that reaches the database{_HINTS.get(name, '')}"
                )
            printed: Printed = child.channel.recv()
        except (EOFError, OSError, BadMessage) as error:
            self._child.close()
            raise CommandFailed(f"the process of {name} has died; try again later") from error
        except CommandTooLong:
            self._child.close()
            raise
        return printed


def _run_all(channel: Channel, storage: str, run: RunCommand) -> None:
    hide_storage(storage)
    with suppress(EOFError, OSError):
        while True:
            channel.send(run(*channel.recv()))
