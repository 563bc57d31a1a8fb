"""The answers of the package of kernel times for one model, in a file of the cache folder: `StoredAnswers`.

    CACHE/gpu-kernel-times/KEY    a checksum of the key and of the next line
                                  specification, names of operations or why there are none, milliseconds by size

A key covers all on which answers depend, so they are never stale. Numbers are written so that they are read to the last
digit. A file that is damaged, or cannot be read, is taken for none; what cannot be written is asked again next time.
"""

from __future__ import annotations

import atexit
import fcntl
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple, TypeVar

from msgspec import Struct

from autoauto.records.errors import BadInput
from autoauto.records.files.json import from_json, to_json
from autoauto.records.installation import cache_dir

SCHEMA = 1
_FOLDER = "gpu-kernel-times"
_MAX_BYTES = 2**26
"""Maximum size of all files; a process that writes and finds more deletes the oldest."""
_MAX_SIZES = 5000
"""Maximum number of sizes in a file for operations that are asked together; the newest are stored."""
Size = tuple[int, ...]
"""The arguments of the package for which operations are asked."""
Value = TypeVar("Value")
Milliseconds = tuple[float, ...]
"""The time of every operation."""


class NamedOperation(NamedTuple):
    """An operation of a step: its name, or why the package has no times of it."""

    name: str
    reason: str = ""


class Asked(NamedTuple):
    """Operations that are asked together."""

    is_prompt: bool  # of a step over prompts
    numbers: tuple[int, ...]  # that they have in the package


class _Answered(NamedTuple):
    """The answers at every size, all in one list, because few lists are read faster than many."""

    asked: Asked
    sizes: list[int]
    milliseconds: list[float]

    @staticmethod
    def of(asked: Asked, answers: Mapping[Size, Milliseconds]) -> _Answered:
        """The newest answers; there must be one."""
        sizes: list[int] = []
        milliseconds: list[float] = []
        for size, times in list(answers.items())[-_MAX_SIZES:]:  # in the order in which they were added
            sizes += size
            milliseconds += times
        return _Answered(asked, sizes, milliseconds)

    @property
    def answers(self) -> dict[Size, Milliseconds]:
        times = _parts(self.milliseconds, len(self.asked.numbers))
        sizes = _parts(self.sizes, len(self.sizes) // len(times))
        return dict(zip(sizes, times, strict=True))


def _parts(values: Sequence[Value], n_each: int) -> list[tuple[Value, ...]]:
    return [tuple(values[start : start + n_each]) for start in range(0, len(values), n_each)]


class _Content(Struct):
    specification: bytes = b""
    decode: Sequence[NamedOperation] = ()
    prompt: Sequence[NamedOperation] = ()
    answered: Sequence[_Answered] = ()


class StoredAnswers:
    """Answers of one model of the package, read when it is made; `write_all` writes what was added.

    The `specification` is what the package compiled of the model, `decode` and `prompt` are the operations of the
    steps; they are empty where they are not known.
    """

    def __init__(self, content: str) -> None:
        self._key = sha256(repr((SCHEMA, content)).encode()).hexdigest()
        self._path = cache_dir() / _FOLDER / self._key
        self._state: tuple[int, ...] | None = None
        self._answers: dict[Asked, dict[Size, Milliseconds]] = {}
        stored = self._read()
        self.specification, self.decode, self.prompt = stored.specification, stored.decode, stored.prompt

    def of(self, asked: Asked) -> Mapping[Size, Milliseconds]:
        """The answers that are known, by size."""
        return self._answers.setdefault(asked, {})

    def add(self, asked: Asked, answers: Mapping[Size, Milliseconds]) -> None:
        """Add answers, which `write_all` writes."""
        self._answers.setdefault(asked, {}).update(answers)
        _UNWRITTEN.add(self)

    def describe(
        self, specification: bytes, decode: Sequence[NamedOperation], prompt: Sequence[NamedOperation]
    ) -> None:
        """Set what the package compiled, and its operations, which `write_all` writes."""
        self.specification, self.decode, self.prompt = specification, decode, prompt
        _UNWRITTEN.add(self)

    def _read(self) -> _Content:
        content = _Content()
        with suppress(OSError, BadInput):
            self._state = _state_of(self._path)
            checksum, _, text = self._path.read_bytes().partition(b"\n")
            if checksum == self._checksum(text):
                content = from_json(_Content, text, self._key)
        for each in content.answered:
            self._answers[each.asked] = each.answers | self._answers.get(each.asked, {})
        return content

    def write(self) -> None:
        """Write the file, with what other processes added to it; raises OSError if it cannot be written."""
        folder = self._path.parent
        folder.mkdir(parents=True, exist_ok=True)
        _make_room(folder)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Where the file system has locks no other process writes, so that none loses what another adds.
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(OSError):
                if _state_of(self._path) != self._state:  # another process has written: its answers are added
                    self._read()
            answered = [_Answered.of(asked, answers) for asked, answers in self._answers.items() if answers]
            text = to_json(_Content(self.specification, self.decode, self.prompt, answered))
            _replace(self._path, self._checksum(text) + b"\n" + text)
            self._state = _state_of(self._path)
        finally:
            os.close(descriptor)

    def _checksum(self, text: bytes) -> bytes:
        return sha256(self._key.encode() + text).hexdigest().encode()


_UNWRITTEN: set[StoredAnswers] = set()


@atexit.register
def write_all() -> None:
    """Write what was added to all answers; a file that cannot be written is left, since only time is lost."""
    while _UNWRITTEN:
        with suppress(OSError):
            _UNWRITTEN.pop().write()


def _state_of(path: Path) -> tuple[int, ...]:
    """Numbers of a file that change when another process writes it."""
    given = path.stat()
    return given.st_ino, given.st_mtime_ns, given.st_size


def _replace(path: Path, content: bytes) -> None:
    """Write a file that other processes see whole or not at all."""
    with NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(content)
            file.flush()
            Path(file.name).replace(path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise


@cache
def _make_room(folder: Path) -> None:
    """Delete the oldest files of a folder that holds too much; once a process, since it looks at all of them."""
    with suppress(OSError):
        files = sorted((each.stat().st_mtime_ns, each.stat().st_size, each.path) for each in os.scandir(folder))
        n_bytes = sum(size for _, size, _ in files)
        for _, size, path in files:
            if n_bytes <= _MAX_BYTES:
                break
            Path(path).unlink(missing_ok=True)
            n_bytes -= size
