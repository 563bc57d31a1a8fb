"""A cluster as a TOML file, which `load_cluster` reads: `cluster_toml`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from autoauto.records.hardware import Cluster, Topology
from autoauto.targets.clusters import CLUSTER_SCHEMA


def cluster_toml(cluster: Cluster, source: str, comments: tuple[str, ...] = ()) -> str:
    """The text of a file with every device and link of a cluster, in pipeline order.

    Args:
        cluster: devices in a line, which have no overlapped host links.
        source: where its figures come from; part of the file.
        comments: lines above everything else.
    """
    assert not cluster.kinds
    assert cluster.overlapped_host_links is None
    return "\n".join(_lines(cluster, source, comments)) + "\n"


def _lines(cluster: Cluster, source: str, comments: tuple[str, ...]) -> Iterator[str]:
    yield from (f"# {comment}" for comment in comments)
    head = {"schema": CLUSTER_SCHEMA, "name": cluster.name, "target": cluster.target}
    topology = {} if cluster.topology is Topology.LINE else {"topology": str(cluster.topology)}
    yield from _entries({**head, **topology, "source": source})
    for name in ("machine", "streaming_memory"):
        if (value := getattr(cluster, name)) is not None:
            yield from _table(f"[{name}]", asdict(value))
    for name in ("devices", "receive_links", "send_links"):
        for value in getattr(cluster, name):
            yield from _table(f"[[{name}]]", asdict(value))


def _table(head: str, entries: Mapping[str, object]) -> Iterator[str]:
    yield ""
    yield head
    yield from _entries(entries)


def _entries(entries: Mapping[str, object]) -> Iterator[str]:
    """Texts, numbers and truth values are written in TOML as in JSON."""
    return (f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entries.items())
