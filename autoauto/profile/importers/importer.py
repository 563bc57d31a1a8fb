"""A format of profiles: an `Importer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # formats are listed before any is read
    from autoauto.profile.importers.recorded import RecordedProfile
    from autoauto.records.layers import LayerGraph
    from autoauto.records.units import Precision


class FileNode(NamedTuple):
    """A node of an ONNX file: its name, operator, and the names of its outputs."""

    name: str
    op: str
    outputs: tuple[str, ...]


class ProfiledFile(NamedTuple):
    """The ONNX file of the model that was recorded: its layers, its nodes, and its precision."""

    graph: LayerGraph
    nodes: Sequence[FileNode]
    precision: Precision


@dataclass(frozen=True, slots=True)
class Importer:
    """A format in which another program records the layers of a model, in the order in which they run.

    Attributes:
        name: of the format.
        read: the layers of a file, from its path, that of a second file about the same layers, and the batch size, the
            latter two where they are given; raises `BadInput` for a file of another kind.
        join: the same on the layers of the model's ONNX file; None where the layers are those of the profile.
    """

    name: str
    read: Callable[[Path, Path | None, int | None], RecordedProfile]
    join: Callable[[Path, Path | None, int | None, ProfiledFile], RecordedProfile] | None = None
