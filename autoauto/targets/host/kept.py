"""What was measured of this machine, in the cache folder: `Kept`."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from autoauto.records.places import cache_dir
from autoauto.targets.host.machine import identity

Made = TypeVar("Made")


class Kept:
    """A file of numbers that are this machine's own.

    A file that is broken is as good as none, which is told on stderr; a folder that cannot be written is left alone.

    Args:
        name: what the file begins with.
        about: what the numbers depend on besides the machine.
    """

    def __init__(self, name: str, *about: object) -> None:
        self._name, self._key = name, repr((*about, identity()))
        self._path = cache_dir() / f"{name}-{hashlib.sha256(self._key.encode()).hexdigest()[:16]}.json"

    def read(self, make: Callable[[Mapping[str, Any]], Made]) -> Made | None:
        """What `make` makes of the numbers; None where there are none."""
        try:
            return make(json.loads(self._path.read_text(encoding="utf-8")))
        except OSError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            told = f"the file of {self._name} times {self._path} is broken ({error!r}); they are measured again"
            print(f"autoauto: {told}", file=sys.stderr)
            return None

    def write(self, numbers: Mapping[str, float | list[int]]) -> None:
        """Replace all of the file or nothing, whatever ends this process."""
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            whole = self._path.with_suffix(f".{os.getpid()}")
            whole.write_text(json.dumps({"machine": self._key, **numbers}, indent=1) + "\n", encoding="utf-8")
            whole.replace(self._path)
