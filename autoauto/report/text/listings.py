"""Tables of inputs: `models_table` and `clusters_table` of what is built in, `profile_table` of a profile's layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from autoauto.records.hardware import Cluster, Link
from autoauto.records.profile import LayerProfile, ModelProfile
from autoauto.records.units import format_bytes, gbps
from autoauto.report.style import LayerName, measured_by, plain_table


def models_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """One row per model, with its `name`, `n_layers`, `n_kinds` and `weight_bytes`."""
    columns = ["name", "layers", "kinds", "weights (fp16)"]
    table = plain_table("Built-in models", columns, columns[1:])
    for row in rows:
        table.add_row(
            str(row["name"]), f"{row['n_layers']:,}", f"{row['n_kinds']:,}", format_bytes(row["weight_bytes"])
        )
    return table


def clusters_table(clusters: Iterable[Cluster], title: str = "Built-in clusters") -> Table:
    """One row per cluster, with its first device and the links into its first and second."""
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


def profile_table(profile: ModelProfile, top: int = 20) -> Table:
    """One row per kind of layer, sorted by the cycles of all its layers together.

    Args:
        profile: the profile.
        top: how many kinds to show.
    """
    cycles = [layer.forward_cycles + layer.backward_cycles for layer in profile.layers]
    total = max(1, sum(cycles))
    kinds = sorted(_kinds(profile), key=lambda layers: -sum(cycles[i] for i in layers))
    columns = ["first layer", "layers", "cycles\neach", "of all\ncycles", "always live", "temporary"]
    table = plain_table(f"Layers compiled alone, {measured_by(profile.target)}", columns, columns[1:])
    for layers in kinds[:top]:
        first = profile.layers[layers[0]]
        table.add_row(
            LayerName(profile.names[layers[0]]),
            f"{len(layers):,}",
            f"{cycles[layers[0]]:,}",
            f"{100 * sum(cycles[i] for i in layers) / total:.1f} %",
            format_bytes(_always_live_bytes(first)),
            format_bytes(first.temporary_bytes),
        )
    table.caption = f"{min(top, len(kinds))} of {len(kinds)} kinds; {len(profile)} layers, {total:,} cycles"
    return table


def _kinds(profile: ModelProfile) -> list[list[int]]:
    """The layers of every kind, as indices."""
    kinds: dict[str, list[int]] = {}
    for index, kind in enumerate(profile.kinds):
        kinds.setdefault(kind, []).append(index)
    return list(kinds.values())


def _always_live_bytes(layer: LayerProfile) -> int:
    return sum(layer.shared.values()) + sum(layer.exclusive.values())
