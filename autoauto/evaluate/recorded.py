"""Open a profile that another tool recorded as a `Flow`: `ProfileFiles`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from autoauto.graph.load import find_model, load_graph
from autoauto.profile.importers.imported import like_devices
from autoauto.profile.importers.layer_table import read_layer_table
from autoauto.profile.importers.onnxruntime_join import FileNode, join_model
from autoauto.profile.importers.onnxruntime_trace import line_of_nodes, read_onnxruntime
from autoauto.profile.importers.profile_target import ProfileTarget
from autoauto.profile.importers.recorded import Layers, RecordedProfile, line_graph
from autoauto.profile.importers.tensorrt import read_tensorrt
from autoauto.profile.importers.torch_trace import read_torch_trace
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Link
from autoauto.records.layers import LayerGraph
from autoauto.records.profile import RecordedFormat
from autoauto.records.units import GIB, Precision
from autoauto.targets.clusters import PROFILED

_READERS: Mapping[str, Callable[[Path, Path | None, int | None], RecordedProfile]] = {
    RecordedFormat.CSV: read_layer_table,
    RecordedFormat.TORCH: read_torch_trace,
    RecordedFormat.TENSORRT: read_tensorrt,
}
"""The formats in which a file has all layers; for others a model may be joined with the profile."""


class ProfiledModel(NamedTuple):
    """A model, the target that has its profile, and its devices."""

    graph: LayerGraph
    target: ProfileTarget


@dataclass(frozen=True, slots=True)
class ProfileFiles:
    """A profile that another tool recorded, and the devices that it is of, as they are named on the command line.

    Attributes:
        profile: paths, each alone or after its batch size, for example "8=FILE".
        profile_format: one of `RecordedFormat`.
        profile_details: second files of the same batch sizes.
        devices: so many equal devices; None where a cluster is named.
        device_memory_gib: of each.
        link_gb_per_s: 10**9 bytes a second that each receives from its neighbour or the host, or sends there.
    """

    profile: tuple[str, ...]
    profile_format: str
    profile_details: tuple[str, ...] = ()
    devices: int | None = None
    device_memory_gib: float | None = None
    link_gb_per_s: float | None = None

    def __post_init__(self) -> None:
        devices = (self.devices, self.device_memory_gib, self.link_gb_per_s)
        if None in devices and devices != (None, None, None):
            raise BadInput("--devices, --device-memory-gib and --link-gb-per-s go together; give all three")

    def resolved(self) -> ProfileFiles:
        """The same with absolute paths."""
        return replace(
            self,
            profile=tuple(map(_resolved, self.profile)),
            profile_details=tuple(map(_resolved, self.profile_details)),
        )

    def model(self, model: str | None, precision: Precision) -> ProfiledModel:
        """Read the files.

        Args:
            model: the ONNX file that was profiled, or a built-in name; None is the profile alone.
            precision: of the file.

        Raises:
            BadInput: a file cannot be read, or is of another model.
        """
        if self.profile_format not in set(RecordedFormat):
            raise BadInput(f"a profile is of {', '.join(RecordedFormat)}, got {self.profile_format}; correct it there")
        if model is not None and self.profile_format != RecordedFormat.ONNXRUNTIME:
            raise BadInput(f"a profile of {self.profile_format} has no MODEL, got {model}; leave it out")
        if model is not None:
            return self._joined(model, precision)
        profiles = [_READERS.get(self.profile_format, _read_line)(*files) for files in self._files()]
        layers: dict[int, Layers] = {}
        for profile in profiles:
            for size, each in profile.layers_at.items():
                _add(layers, size, each)
        recorded = RecordedProfile(profiles[0].name, layers, _notes(profile.notes for profile in profiles))
        return ProfiledModel(line_graph(recorded), ProfileTarget(recorded))

    def cluster(self) -> Cluster | None:
        """The devices of --devices; None where a cluster is named."""
        if self.devices is None or self.device_memory_gib is None or self.link_gb_per_s is None:
            return None
        memory_bytes = int(min(self.device_memory_gib * GIB, 2.0**62))
        devices = like_devices("device", self.devices, memory_bytes, Link(self.link_gb_per_s * 1e9, 0))
        return replace(devices, name=f"{self.devices}x{self.device_memory_gib:g}gib", target=PROFILED)

    def _joined(self, model: str, precision: Precision) -> ProfiledModel:
        """The layers of a model with the times of the profile."""
        from autoauto.graph.read.onnx_file import read_model

        path, graph = find_model(model), load_graph(model)
        file_nodes = [FileNode(node.name, node.op_type, tuple(node.output)) for node in read_model(path).graph.node]
        layers: dict[int, Layers] = {}
        notes = []
        for file, memory, batch_size in self._files():
            records = read_onnxruntime(file, memory)
            joined = join_model(graph, file_nodes, records.nodes, precision, batch_size, str(file))
            _add(layers, *joined)
            notes.append(records.notes)
        recorded = RecordedProfile(graph.name, layers, _notes(notes))
        return ProfiledModel(graph, ProfileTarget(recorded))

    def _files(self) -> Iterator[tuple[Path, Path | None, int | None]]:
        """Every file, its second file, and its batch size where it is given."""
        details = dict(map(_numbered, self.profile_details))
        files = list(map(_numbered, self.profile))
        sizes = [size for size, _ in files]
        unknown = [size for size in details if size not in sizes]
        if unknown or len(details) < len(self.profile_details):
            raise BadInput("every --profile-details is of one --profile, by the same batch size; write B=FILE in both")
        return ((path, details.get(size), size) for size, path in files)


def _numbered(text: str) -> tuple[int | None, Path]:
    """A path and its batch size, if it has one.

    >>> _numbered("8=trace")[0], _numbered("a=b")[0]
    (8, None)
    """
    size, equals, path = text.partition("=")
    if equals and size.isascii() and size.isdecimal() and 0 < len(size) < 10 and int(size) > 0:
        return int(size), Path(path)
    return None, Path(text)


def _resolved(text: str) -> str:
    size, path = _numbered(text)
    return f"{path.resolve()}" if size is None else f"{size}={path.resolve()}"


def _read_line(path: Path, details: Path | None, batch_size: int | None) -> RecordedProfile:
    return line_of_nodes(path, read_onnxruntime(path, details), batch_size)


def _add(layers: dict[int, Layers], size: int, each: Layers) -> None:
    if size in layers:
        raise BadInput(
            f"every batch size has one profile, got several of {size}; write their batch sizes: --profile 8=FILE"
        )
    layers[size] = each


def _notes(notes: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(note for each in notes for note in each))
