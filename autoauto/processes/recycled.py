"""A child process that is replaced after a number of uses, so that what libraries leave behind does not add up."""

from __future__ import annotations

from collections.abc import Callable

from autoauto.processes.start import ChildProcess


class RecycledChild:
    """A `ChildProcess` with a guard, which is started when it is first used, and again where it has ended."""

    def __init__(self, main: Callable[..., None], args: tuple[object, ...], max_uses: int) -> None:
        self._main = main
        self._args = args
        self._max_uses = max_uses
        self._n_uses = 0
        self._child: ChildProcess | None = None

    def use(self) -> ChildProcess:
        """The process, for one use; it may still end before it reads what it is sent."""
        if self._child is not None and (self._n_uses >= self._max_uses or self._child.ending() is not None):
            self.close()
        if self._child is None:
            self._child = ChildProcess(self._main, self._args, has_guard=True)
            self._n_uses = 0
        self._n_uses += 1
        return self._child

    def close(self) -> None:
        """End the process, if there is one; a later use starts another."""
        if self._child is not None:
            self._child.close()
            self._child = None
