"""What there is to choose from: built-in models and clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from autoauto.records.hardware import Cluster, Link
from autoauto.records.units import format_bytes, gbps
from autoauto.report.style import plain_table


def models_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """One row a model, with its `name`, `n_layers`, `n_kinds` and `weight_bytes`."""
    columns = ["name", "layers", "kinds", "weights (fp16)"]
    table = plain_table("Built-in models", columns, columns[1:])
    for row in rows:
        table.add_row(
            str(row["name"]), f"{row['n_layers']:,}", f"{row['n_kinds']:,}", format_bytes(row["weight_bytes"])
        )
    return table


def clusters_table(clusters: Iterable[Cluster], title: str = "Built-in clusters") -> Table:
    """One row a cluster, with its first device and the links into its first and second."""
    columns = ["name", "target", "devices", "clock", "memory", "host link", "device link"]
    table = plain_table(title, columns, columns[3:])
    for cluster in clusters:
        device, links = cluster.devices[0], cluster.receive_links
        table.add_row(
            cluster.name,
            cluster.target,
            f"{len(cluster)} x {device.name}",
            f"{device.clock_hz / 1e9:.2f} GHz",
            format_bytes(device.memory_bytes),
            _link(links[0]),
            _link(links[1]) if len(links) > 1 else "-",
        )
    table.caption = "a link waits its idle cycles, then moves so many GiB a second"
    return table


def _link(link: Link) -> str:
    return f"{gbps(link.bytes_per_s):.1f} GiB/s\n+{link.idle_cycles:,} cycles"
