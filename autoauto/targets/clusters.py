"""Built-in clusters and cluster files (`load_cluster`): TOML with the field names of `Device`, `Link` and `Cluster`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, get_type_hints

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Link, StreamingMemory
from autoauto.records.installation import data_dir

Fields = Mapping[str, type]

_HEAD: Fields = {"name": str, "target": str}
_EQUAL_DEVICES: Fields = {
    **_HEAD,
    "n_devices": int,
    "device": dict,
    "host_link": dict,
    "device_link": dict,
    "streaming_memory": dict,
}
_LISTED_DEVICES: Fields = {
    **_HEAD,
    "devices": list,
    "receive_links": list,
    "send_links": list,
    "streaming_memory": dict,
}
_DEVICE: Fields = {**get_type_hints(Device), "memory_bytes": int}  # only imported profiles and io tiles make fractions
_LINK: Fields = get_type_hints(Link)
_MACHINE_LINK: Fields = {**_LINK, "every": int}
_STREAMING: Fields = get_type_hints(StreamingMemory)
_OPTIONAL = frozenset({"source", "streaming_memory"})

_DESCRIPTIONS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table",
    list: "a list of tables",
}
_MAY_BE_ZERO = frozenset({"idle_cycles"})


def builtin_clusters() -> dict[str, Path]:
    """The clusters that come with autoauto, by name.

    >>> "bow-2000" in builtin_clusters()
    True
    """
    return {path.stem: path for path in sorted((data_dir() / "clusters").glob("*.toml"))}


def load_cluster(name_or_path: str) -> Cluster:
    """Read a built-in cluster by its name, or a cluster file by its path, which ends in ".toml".

    Equal devices are written once: `n_devices`, `[device]`, `[host_link]` (both ends of the pipeline) and
    `[device_link]` (between neighbours; not needed for one device). With a `[machine_link]`, `every` devices make a
    machine, and that link leads to the next machine. Unequal devices are listed in pipeline order: `[[devices]]`,
    `[[receive_links]]`, `[[send_links]]`. Both forms may have a `[streaming_memory]`, the same for every device, and a
    `source` of the figures.

    Raises:
        BadInput: there is no such cluster, or its file does not describe one.

    >>> cluster = load_cluster("seed-2-ipu")
    >>> len(cluster), cluster.receive_links[1].bytes_per_s == 70 * 1024**3
    (2, True)
    """
    table = _read(name_or_path)
    return _listed(table, name_or_path) if "devices" in table else _equal(table, name_or_path)


def check_fp8(cluster: Cluster) -> None:
    """Refuse devices that do not multiply in fp8.

    Raises:
        BadInput: a device does not; the message names all that do not.
    """
    without = sorted({device.name for device in cluster.devices if not device.fp8})
    if without:
        raise BadInput(
            f"fp8 needs devices that multiply in it, {cluster.name} has {', '.join(without)}; "
            "try --cluster c600 or --precision fp16"
        )


def _read(name_or_path: str) -> dict[str, Any]:
    builtin = builtin_clusters()
    if name_or_path not in builtin and not name_or_path.endswith(".toml"):
        raise BadInput(
            f"a cluster is {', '.join(builtin)} or the path of a .toml file, got {name_or_path!r}; "
            "`autoauto clusters` describes them"
        )
    try:
        return tomllib.loads(builtin.get(name_or_path, Path(name_or_path)).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"a cluster file must be readable, {name_or_path}: {error.strerror}; check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"a cluster file must be TOML, {name_or_path}: {error}; correct it there") from error


def _equal(table: dict[str, Any], where: str) -> Cluster:
    alone = table.get("n_devices") == 1
    optional = _OPTIONAL | {"machine_link"} | ({"device_link"} if alone else set())
    _check(table, _EQUAL_DEVICES, where, optional=optional)
    between = () if alone else _between(table, where)
    host = _link(table["host_link"], f"{where} [host_link]")
    device = _device(table["device"], f"{where} [device]")
    return Cluster(
        name=table["name"],
        target=table["target"],
        devices=(device,) * table["n_devices"],
        receive_links=(host, *between),
        send_links=(*between, host),
        streaming_memory=_streaming(table, where),
    )


def _between(table: dict[str, Any], where: str) -> tuple[Link, ...]:
    """The links between neighbours."""
    links = [_link(table["device_link"], f"{where} [device_link]")] * (table["n_devices"] - 1)
    if "machine_link" in table:
        fields = dict(_check(table["machine_link"], _MACHINE_LINK, f"{where} [machine_link]"))
        every = fields.pop("every")
        links[every - 1 :: every] = [Link(**fields)] * (len(links) // every)
    return tuple(links)


def _listed(table: dict[str, Any], where: str) -> Cluster:
    _check(table, _LISTED_DEVICES, where, optional=_OPTIONAL)
    lengths = {name: len(table[name]) for name in ("devices", "receive_links", "send_links")}
    if len(set(lengths.values())) > 1 or not table["devices"]:
        given = ", ".join(f"{n} {name}" for name, n in lengths.items())
        raise BadInput(f"{where} needs one receive link and one send link for every device, got {given}")
    return Cluster(
        name=table["name"],
        target=table["target"],
        devices=tuple(_device(item, f"{where} devices[{d}]") for d, item in enumerate(table["devices"])),
        receive_links=tuple(
            _link(item, f"{where} receive_links[{d}]") for d, item in enumerate(table["receive_links"])
        ),
        send_links=tuple(_link(item, f"{where} send_links[{d}]") for d, item in enumerate(table["send_links"])),
        streaming_memory=_streaming(table, where),
    )


def _device(table: object, where: str) -> Device:
    return Device(**_check(table, _DEVICE, where, optional={"fp8"}))


def _link(table: object, where: str) -> Link:
    return Link(**_check(table, _LINK, where))


def _streaming(table: dict[str, Any], where: str) -> StreamingMemory | None:
    if "streaming_memory" not in table:
        return None
    return StreamingMemory(**_check(table["streaming_memory"], _STREAMING, f"{where} [streaming_memory]"))


def _check(
    table: object, expected: Fields, where: str, optional: frozenset[str] | set[str] = frozenset()
) -> dict[str, Any]:
    """Return `table` if it has the expected fields, each with a value of the right kind.

    Raises:
        BadInput: a field is missing, unknown, or has a wrong value.
    """
    if not isinstance(table, dict):
        raise BadInput(f"{where} must be a table with {', '.join(expected)}, got {table!r}")
    missing = [name for name in expected if name not in table and name not in optional]
    unknown = [name for name in table if name not in expected and name not in optional]
    if missing or unknown:
        wrong = [f"{what}: {', '.join(names)}" for what, names in (("missing", missing), ("unknown", unknown)) if names]
        raise BadInput(f"{where} needs the fields {', '.join(expected)}, got {'; '.join(wrong)}")
    for name, kind in expected.items():
        if name in table:
            _check_value(table[name], kind, f"{where}: {name}", at_least_zero=name in _MAY_BE_ZERO)
    return table


def _check_value(value: object, kind: type, where: str, *, at_least_zero: bool) -> None:
    kinds = (int, float) if kind is float else (kind,)
    if not isinstance(value, kinds) or isinstance(value, bool) != (kind is bool) or value == "":
        raise BadInput(f"{where} must be {_DESCRIPTIONS[kind]}, got {value!r}")
    if not isinstance(value, int | float) or kind is bool:
        return
    if not isfinite(value) or value < 0 or (value == 0 and not at_least_zero):
        raise BadInput(f"{where} must be {'0 or more' if at_least_zero else 'above 0'}, got {value!r}")
