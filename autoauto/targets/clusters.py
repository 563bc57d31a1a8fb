"""Built-in clusters and cluster files (`load_cluster`): TOML with the field names of `Device`, `Link` and `Cluster`.

`cluster_toml` writes such a file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from msgspec import Meta, Struct

from autoauto.engines.registry import equal_groups_note
from autoauto.records.errors import BadInput, did_you_mean
from autoauto.records.files.fields import MAX_RATE, PositiveWhole, Text, Whole, table_form
from autoauto.records.files.toml import TomlFile, read_toml
from autoauto.records.hardware import MAX_DEVICES, Cluster, Device, DeviceKind, Link, Machine, StreamingMemory, Topology
from autoauto.records.installation import data_dir

CLUSTER_SCHEMA = 1
PROFILED = "profile"
"""The target of devices that were profiled elsewhere."""
GPU = "gpu"
_IN_SECONDS = (PROFILED, GPU)
"""Targets of devices whose times are known in seconds: clock and tiles make no difference."""
_OF_SECONDS = {"clock_hz": 1e9, "n_tiles": 1, "tile_memory_bytes": 1}
"""The values of what makes no difference there, for files that leave it out."""
Rate = Annotated[int, Meta(ge=1000, le=MAX_RATE)] | Annotated[float, Meta(ge=1000, le=MAX_RATE)]
"""Bytes a second, of which gigabytes a second would be fewer than 1,000.

A whole number stays an int, because the digits of a cluster are part of the fingerprint of a study.
"""
_Clock = Annotated[int, Meta(ge=10**6, le=MAX_RATE)] | Annotated[float, Meta(ge=10**6, le=MAX_RATE)]
"""Hertz, of which megahertz would be fewer."""

_DeviceCount = Annotated[int, Meta(ge=1, le=MAX_DEVICES)]
_Speed = Annotated[float, Meta(ge=1e-6, le=1e6)]


if TYPE_CHECKING:
    _DeviceTable = Struct
else:
    # Only imported profiles and io tiles make fractions of bytes.
    _DeviceTable = table_form(Device, clock_hz=_Clock, memory_bytes=PositiveWhole)


class _LinkTable(Struct, forbid_unknown_fields=True):
    bytes_per_s: Rate
    idle_cycles: Whole


class _MachineLinkTable(_LinkTable, forbid_unknown_fields=True):
    every: PositiveWhole | None = None


class _PodLinkTable(_LinkTable, forbid_unknown_fields=True):
    every: PositiveWhole


class _MachineTable(Struct, forbid_unknown_fields=True):
    n_devices: _DeviceCount
    host_bytes_per_s: Rate


class _StreamingTable(_LinkTable, forbid_unknown_fields=True):
    capacity_bytes: PositiveWhole


class _ClusterTable(Struct, forbid_unknown_fields=True, kw_only=True):
    name: Text
    target: Text
    topology: Topology = Topology.LINE
    machine: _MachineTable | None = None
    streaming_memory: _StreamingTable | None = None
    source: str = ""


class _EqualDevices(_ClusterTable, forbid_unknown_fields=True, kw_only=True):
    n_devices: _DeviceCount
    device: _DeviceTable
    host_link: _LinkTable
    device_link: _LinkTable | None = None
    machine_link: _MachineLinkTable | None = None
    pod_link: _PodLinkTable | None = None


class _ListedDevices(_ClusterTable, forbid_unknown_fields=True, kw_only=True):
    devices: list[_DeviceTable]
    receive_links: list[_LinkTable]
    send_links: list[_LinkTable]


class _KindTable(Struct, forbid_unknown_fields=True):
    n_devices: _DeviceCount
    device: _DeviceTable
    device_link: _LinkTable
    host_link: _LinkTable
    speed: _Speed | None = None


class _KindsOfDevices(Struct, forbid_unknown_fields=True, kw_only=True):
    name: Text
    target: Text
    kinds: list[_KindTable]
    topology: Topology = Topology.LINE
    source: str = ""


Table = TypeVar("Table", bound=Struct)
Record = TypeVar("Record", Device, Link, Machine, StreamingMemory)


def builtin_clusters() -> dict[str, Path]:
    """The clusters that come with autoauto, by name.

    >>> "bow-2000" in builtin_clusters()
    True
    """
    return {path.stem: path for path in sorted((data_dir() / "clusters").glob("*.toml"))}


def load_cluster(name_or_path: str, known_targets: Collection[str] = ()) -> Cluster:
    """Read a built-in cluster by its name, or a cluster file by its path, which ends in ".toml".

    Equal devices are written once: `n_devices`, `[device]`, `[host_link]` (both ends of the pipeline) and
    `[device_link]` (between neighbours; not needed for one device). With a `[machine_link]`, `every` devices make a
    machine, and that link leads to the next machine; with a `[pod_link]` `every` devices, whole machines, make a pod,
    and that link leads to the next pod. Unequal devices are listed in pipeline order: `[[devices]]`,
    `[[receive_links]]`, `[[send_links]]`. Both forms may have a `[machine]`: `n_devices` neighbours share a connection
    to the host that moves `host_bytes_per_s` each way (`every` is then the same number, or left out); a `topology`,
    "line" or "all-to-all" (`Topology`); a `[streaming_memory]`, the same for every device; and a `source` of the
    figures. Devices of several kinds that stand in any order are `[[kinds]]` with `n_devices`, `[kinds.device]`,
    `[kinds.device_link]`, from and to any other device, and `[kinds.host_link]`, from and to the host; such a file has
    neither `[machine]` nor `[streaming_memory]`. A kind may have a `speed`, how many times as fast as the profiled
    device it is, for a profile of one kind. Devices whose times are known in seconds, those with the targets "profile"
    and "gpu", need neither clock nor tiles. `schema = 1` is the number of these forms.

    Where `known_targets` are given, its target is one of them, or "profile".

    Raises:
        BadInput: there is no such cluster, or its file does not describe one.

    >>> cluster = load_cluster("seed-2-ipu")
    >>> len(cluster), cluster.receive_links[1].bytes_per_s == 70 * 1024**3
    (2, True)
    """
    builtin = builtin_clusters()
    if name_or_path not in builtin and not name_or_path.endswith(".toml"):
        raise BadInput(
            f"a cluster is {', '.join(builtin)}, cpu, GPUs such as h100_sxm-8 or 8xH100 (`autoauto clusters --target "
            f"gpu`), or the path of a .toml file, got {name_or_path!r}; "
            f"{did_you_mean(name_or_path, builtin, '`autoauto clusters` describes them')}"
        )
    file = read_toml(builtin.get(name_or_path, Path(name_or_path)))
    target = file.table.get("target")  # of which an error tells before others say what devices lack
    if known_targets and isinstance(target, str) and target not in (*known_targets, PROFILED):
        hint = did_you_mean(target, known_targets, f"other devices are a {PROFILED}, planned with --profile FILE")
        known = ", ".join((*known_targets, PROFILED))
        raise file.bad(["target"], f"target must be one of {known}, got {target!r:.60}; {hint}")
    if "kinds" in file.table:
        return _of_kinds(file)
    if "devices" in file.table:
        return _listed(file)
    return _equal(file)


def target_of_file(path: Path) -> str:
    """The target that the file of a cluster names; raises BadInput if it cannot be read, or names none."""
    file = read_toml(path)
    target = file.table.get("target")
    if not isinstance(target, str):
        raise file.bad(["target"], "target must name what the devices are for, for example ipu, host or gpu")
    return target


def check_fp8(cluster: Cluster) -> None:
    """Refuse devices that do not multiply in fp8, by a BadInput that names all of them."""
    without = sorted({device.name for device in cluster.devices if not device.fp8})
    if without:
        raise BadInput(
            f"fp8 needs devices that multiply in it, {cluster.name} has {', '.join(without)}; "
            "try --cluster c600 or --precision fp16"
        )


def _read(file: TomlFile, kind: type[Table]) -> Table:
    """The tables of a file; one without a schema number is of the first schema."""
    if file.table.get("target") in _IN_SECONDS:
        # The tables of [device], [kinds.device] and [[devices]]; other types are left to `read`.
        devices: list[object] = [file.table.get("device")]
        if isinstance(kinds := file.table.get("kinds"), list):
            devices += [each.get("device") for each in kinds if isinstance(each, dict)]
        if isinstance(listed := file.table.get("devices"), list):
            devices += listed
        for device in devices:
            if isinstance(device, dict):
                device.update({name: value for name, value in _OF_SECONDS.items() if name not in device})
    return file.read(kind, CLUSTER_SCHEMA)


def _equal(file: TomlFile) -> Cluster:
    table = _read(file, _EqualDevices)
    host = _record(table.host_link, Link)
    between = _between(table, file)
    return Cluster(
        name=table.name,
        target=table.target,
        devices=(_record(table.device, Device),) * table.n_devices,
        receive_links=(host, *between),
        send_links=(*between, host),
        streaming_memory=_optional(table.streaming_memory, StreamingMemory),
        topology=table.topology,
        machine=_optional(table.machine, Machine),
    )


def _between(table: _EqualDevices, file: TomlFile) -> tuple[Link, ...]:
    if table.n_devices == 1:
        return ()
    if table.device_link is None:
        raise file.bad(["n_devices"], f"{table.n_devices} devices must have a [device_link] between them; add it")
    links = [_record(table.device_link, Link)] * (table.n_devices - 1)
    if table.machine_link is not None:
        # After how many devices a link to the next machine follows.
        n_devices = table.machine.n_devices if table.machine else table.machine_link.every
        if n_devices is None:
            raise file.bad(["machine_link"], "a machine_link must have every, the devices of a machine, or a [machine]")
        every = n_devices
        if table.machine_link.every not in (None, every):
            raise file.bad(
                ["machine_link", "every"],
                f"every must be the n_devices of [machine], {every}, got {table.machine_link.every}; leave one of them "
                "out",
            )
        links[every - 1 :: every] = [_record(table.machine_link, Link)] * (len(links) // every)
    if (pod := table.pod_link) is not None:  # between pods its link takes the place of that between machines
        if table.machine_link is not None and pod.every % every:
            raise file.bad(["pod_link", "every"], f"every must be whole machines of {every} devices, got {pod.every}")
        links[pod.every - 1 :: pod.every] = [_record(pod, Link)] * (len(links) // pod.every)
    return tuple(links)


def _listed(file: TomlFile) -> Cluster:
    table = _read(file, _ListedDevices)
    lengths = {name: len(getattr(table, name)) for name in ("devices", "receive_links", "send_links")}
    if len(set(lengths.values())) > 1 or not table.devices:
        given = ", ".join(f"{n} {name}" for name, n in lengths.items())
        raise file.bad(["devices"], f"every device must have one receive link and one send link, got {given}; add them")
    return Cluster(
        name=table.name,
        target=table.target,
        devices=tuple(_record(device, Device) for device in table.devices),
        receive_links=tuple(_record(link, Link) for link in table.receive_links),
        send_links=tuple(_record(link, Link) for link in table.send_links),
        streaming_memory=_optional(table.streaming_memory, StreamingMemory),
        topology=table.topology,
        machine=_optional(table.machine, Machine),
    )


def _of_kinds(file: TomlFile) -> Cluster:
    for name in ("machine", "machine_link", "streaming_memory"):
        if name in file.table:
            raise file.bad([name], f"a cluster with [[kinds]] has no [{name}]; leave it out, or write one kind a file")
    _check_groups(file)
    table = _read(file, _KindsOfDevices)
    kinds = []
    for kind in table.kinds:
        device, device_link = _record(kind.device, Device), _record(kind.device_link, Link)
        host_link = _record(kind.host_link, Link)
        kinds.append(DeviceKind(device, kind.n_devices, device_link, host_link, speed=kind.speed))
    names = [kind.device.name for kind in kinds]
    if len(set(names)) < len(names) or not names:
        given = ", ".join(names) or "none"
        raise file.bad(["kinds"], f"kinds must be one or more with devices of different names, got {given}")
    return Cluster.of_kinds(table.name, table.target, kinds, table.topology)


def _check_groups(file: TomlFile) -> None:
    """Refuse a size of groups for a kind: serving engines have one for all stages of a pipeline [unequal-groups]."""
    kinds = file.table["kinds"]
    if file.table.get("target") != GPU or not isinstance(kinds, list):
        return
    for number, kind in enumerate(kinds):
        if isinstance(kind, dict) and "tensor_parallel" in kind:
            raise file.bad(
                ["kinds", number, "tensor_parallel"],
                f"{equal_groups_note()}, got tensor_parallel of a kind; give --tensor-parallel for all, or search "
                "every kind as a cluster of its own",
            )


def _optional(table: Struct | None, kind: type[Record]) -> Record | None:
    return None if table is None else _record(table, kind)


def _record(table: Struct, kind: type[Record]) -> Record:
    return kind(**{name: getattr(table, name) for name in kind.__dataclass_fields__})


def cluster_toml(cluster: Cluster, source: str, comments: tuple[str, ...] = ()) -> str:
    """The text of a file with every device and link of a cluster, in pipeline order or by kind.

    `source` says where its figures come from; `comments` are lines above everything else.
    """
    assert cluster.overlapped_host_links is None
    return "\n".join(_lines(cluster, source, comments)) + "\n"


def _lines(cluster: Cluster, source: str, comments: tuple[str, ...]) -> Iterator[str]:
    for comment in comments:
        yield f"# {comment}"
    topology = None if cluster.topology is Topology.LINE else str(cluster.topology)
    head = {"schema": CLUSTER_SCHEMA, "name": cluster.name, "target": cluster.target, "topology": topology}
    yield from _entries(head | {"source": source})
    if cluster.machine is not None:
        yield from _table("[machine]", asdict(cluster.machine))
    if cluster.streaming_memory is not None:
        yield from _table("[streaming_memory]", asdict(cluster.streaming_memory))
    if cluster.kinds:
        for kind in cluster.kinds:
            yield from _table("[[kinds]]", {"n_devices": kind.n_devices, "speed": kind.speed})
            yield from _table("[kinds.device]", asdict(kind.device))
            yield from _table("[kinds.device_link]", asdict(kind.device_link))
            yield from _table("[kinds.host_link]", asdict(kind.host_link))
        return
    for name in ("devices", "receive_links", "send_links"):
        for value in getattr(cluster, name):
            yield from _table(f"[[{name}]]", asdict(value))


def _table(head: str, entries: Mapping[str, object]) -> Iterator[str]:
    yield ""
    yield head
    yield from _entries(entries)


def _entries(entries: Mapping[str, object]) -> Iterator[str]:
    """Texts, numbers and truth values are written in TOML as in JSON; None is left out."""
    for name, value in entries.items():
        if value is not None:
            yield f"{name} = {json.dumps(value, ensure_ascii=False)}"
