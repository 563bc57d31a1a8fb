"""A sub-model as processes of a machine share it: `SubModelFile`."""

from __future__ import annotations

import os
from multiprocessing.reduction import DupFd
from typing import Any


class SubModelFile:
    """A sub-model in a file without a name; it can be pickled as an argument of a new process."""

    def __init__(self, content: bytes = b"") -> None:
        self._fd = os.memfd_create("autoauto-model")
        self.write(content)

    def __getstate__(self) -> dict[str, Any]:
        return {"handle": DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fd = state["handle"].detach()

    def write(self, content: bytes) -> None:
        """Replace the content, for every process that has the file."""
        with open(self.path, "wb") as file:
            file.write(content)

    def append(self, content: bytes) -> None:
        """Write behind what is there."""
        with open(self.path, "ab") as file:
            file.write(content)

    @property
    def path(self) -> str:
        """The path by which this process opens the file."""
        return f"/proc/self/fd/{self._fd}"

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
