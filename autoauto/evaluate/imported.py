"""A profile of another program as a model, with its target and its devices: `profiled_model`, `profiled_devices`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from autoauto.graph.load import find_model, load_graph
from autoauto.profile.importers.importer import FileNode, Importer, ProfiledFile
from autoauto.profile.importers.recorded import Layers, ProfileTarget, RecordedProfile, line_graph
from autoauto.profile.importers.registry import IMPORTERS
from autoauto.records.errors import BadInput
from autoauto.records.hardware import MAX_DEVICES, Cluster, Device, Link
from autoauto.records.layers import AS_IN_FILE, LayerGraph, ModelInputs
from autoauto.records.units import GIB, Precision
from autoauto.space.requests.problem import ProfileFiles, named_file
from autoauto.targets.clusters import PROFILED

CLOCK_HZ = 1e9
"""Times of profiles become nanoseconds: cycles of this clock."""


class ProfiledModel(NamedTuple):
    """A model, the target that has its profile, and its devices."""

    graph: LayerGraph
    target: ProfileTarget


def profiled_model(
    files: ProfileFiles, model: str | None, precision: Precision, given: ModelInputs = AS_IN_FILE
) -> ProfiledModel:
    """Read the files of a profile, of the profiled ONNX file or a built-in name; alone where `model` is None.

    Raises BadInput if a file cannot be read, or is of another model.
    """
    importer = IMPORTERS.named(files.profile_format, "the format of a profile")
    if model is not None:
        return _joined(files, importer, model, precision, given)
    target = _target((kind, importer.read(file, details, size)) for kind, file, details, size in _each(files))
    return ProfiledModel(line_graph(target.recorded), target)


def profiled_devices(files: ProfileFiles) -> Cluster | None:
    """The devices of --devices; None where a cluster is named."""
    if files.devices is None or files.device_memory_gib is None or files.link_gb_per_s is None:
        return None
    memory_bytes = int(min(files.device_memory_gib * GIB, 2.0**62))
    devices = like_devices("device", files.devices, memory_bytes, Link(files.link_gb_per_s * 1e9, 0))
    return replace(devices, name=f"{files.devices}x{files.device_memory_gib:g}gib", target=PROFILED)


def like_devices(name: str, n_devices: int, memory_bytes: float, link: Link) -> Cluster:
    """A line of equal devices; the host's links are like those between them. Raises BadInput if they are too many."""
    if n_devices > MAX_DEVICES:
        raise BadInput(f"a cluster has at most {MAX_DEVICES} devices, got {n_devices}; try fewer")
    device = Device(name, CLOCK_HZ, memory_bytes, n_tiles=1, tile_memory_bytes=int(memory_bytes))
    links = (link,) * n_devices
    return Cluster(name, "imported", (device,) * n_devices, links, links)


def _joined(
    files: ProfileFiles, importer: Importer, model: str, precision: Precision, given: ModelInputs
) -> ProfiledModel:
    """The layers of a model with the times of the profile."""
    from autoauto.graph.onnx_file import read_model

    join = importer.join
    if join is None:
        raise BadInput(f"a profile of {importer.name} has no MODEL, got {model}; leave it out")
    graph, proto = load_graph(model, given), read_model(find_model(model))
    nodes = [FileNode(node.name, node.op_type, tuple(node.output)) for node in proto.graph.node]
    file = ProfiledFile(graph, nodes, precision)
    target = _target((kind, join(path, memory, size, file)) for kind, path, memory, size in _each(files))
    return ProfiledModel(graph, target)


def _each(files: ProfileFiles) -> Iterator[tuple[str | None, Path, Path | None, int | None]]:
    """The kind of devices of every file where it is given, the file, its second file, and its batch size."""
    details = {(each.kind, each.batch_size): each.path for each in map(named_file, files.profile_details)}
    profiles = list(map(named_file, files.profile))
    known = {(each.kind, each.batch_size) for each in profiles}
    if details.keys() - known or len(details) < len(files.profile_details):
        raise BadInput(
            "every --profile-details is of one --profile, by the same kind and batch size; write B=FILE or "
            "KIND:B=FILE in both"
        )
    if len({each.kind is None for each in profiles}) > 1:
        without = next(each.path for each in profiles if each.kind is None)
        raise BadInput(f"either every --profile names its kind of devices or none, {without} has none; add KIND:")
    return ((kind, path, details.get((kind, size)), size) for kind, size, path in profiles)


def _target(read: Iterable[tuple[str | None, RecordedProfile]]) -> ProfileTarget:
    """The target of files, each with its kind of devices: one profile of all files of a kind."""
    files: dict[str | None, list[RecordedProfile]] = {}
    for kind, profile in read:
        files.setdefault(kind, []).append(profile)
    profiles = {kind: _joined_sizes(kind, each) for kind, each in files.items()}
    of_kinds = {kind: each for kind, each in profiles.items() if kind is not None}
    return ProfileTarget(next(iter(profiles.values())), of_kinds)


def _joined_sizes(kind: str | None, profiles: Sequence[RecordedProfile]) -> RecordedProfile:
    layers: dict[int, Layers] = {}
    for profile in profiles:
        for size, each in profile.layers_at.items():
            if size in layers:
                of = prefix = ""
                if kind is not None:
                    of, prefix = f" of {kind}", f"{kind}:"
                raise BadInput(
                    f"every batch size has one profile, got several of {size}{of}; write their batch sizes: --profile "
                    f"{prefix}8=FILE"
                )
            layers[size] = each
    notes = dict.fromkeys(chain.from_iterable(profile.notes for profile in profiles))
    return RecordedProfile(profiles[0].name, layers, tuple(notes))
