"""A way to start the servers of a configuration, `Platform`. Each is the `PLATFORM` of a file of this folder.

processes of a plan --> script each           what every file starts, and is compared with
                  +--> file of a platform     one where it can start them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from autoauto.engines.command import Command
from autoauto.engines.engine import Engine
from autoauto.exporters.exporter import Check
from autoauto.exporters.serving.launches import ServedProcess

Content = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A document of YAML, or several."""


class Started(NamedTuple):
    """The processes of all replicas."""

    processes: Sequence[ServedProcess]
    engine: Engine
    model: str  # as requests name it
    weight_bytes: int  # of its checkpoint


class ReadBack(NamedTuple):
    """An artifact that was written, as it is read for checks."""

    folder: Path
    scripts: Mapping[str, Command]  # the commands of its scripts, by the names of their processes


class Platform(NamedTuple):
    """A way to start processes; `checks` say whether what is read back starts the commands of the scripts."""

    file: str  # the name of the file that it reads
    apply: str  # the command that starts all; empty where whoever has the platform knows it
    starts: Callable[[Started], bool]  # whether it can start them
    content: Callable[[Started], Content]  # of the file
    beside: Callable[[Started], Mapping[str, str]] = lambda _: {}  # the content of other files, by their names
    checks: Callable[[Started, ReadBack], Iterable[Check]] = lambda *_: ()


def counted(n: int, what: str) -> str:
    """For example "2 pods"."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
