"""Tables of inputs and of studies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from autoauto.records.units import GIB, digits, gbps
from autoauto.report.tables.table import Column, Style, Table, TableCell, Value

if TYPE_CHECKING:
    from autoauto.records.costs.profile import ModelProfile
    from autoauto.records.hardware import Cluster, Link
    from autoauto.records.target import Origin


def models_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """One row per model, with its `name`, `n_layers`, `n_kinds` and `weight_bytes`."""
    columns = (
        Column("name"),
        Column("layers", "n_layers"),
        Column("kinds", "n_kinds"),
        Column("weights (fp16)", "weight_bytes"),
    )
    cells = tuple((row["name"], row["n_layers"], row["n_kinds"], row["weight_bytes"]) for row in rows)
    return Table("Built-in models", columns, cells)


MODELLED = "modelled decoders are "
"""What the reason of a decoder that is not read ends with."""


def decoders_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """One row per decoder, with its `name`, `n_weights`, the format of its `weights`, or the `reason` for none."""
    cells: list[tuple[str, str, str]] = []
    known = ""  # what is read instead, which the reasons repeat
    for row in rows:
        if row["reason"]:
            reason, _, others = row["reason"].partition(f"; {MODELLED}")
            known = others or known
            cells.append((row["name"], "not read", reason))
        else:
            cells.append((row["name"], f"{row['n_weights'] / 1e9:,.1f} billion", row["weights"]))
    caption = "any other: the folder of its config.json"
    if known:
        caption += f"\n{MODELLED}{known}"
    columns = (Column("name"), Column("parameters"), Column("format of weights"))
    return Table("Decoders whose configs come with autoauto or extra gpu", columns, tuple(cells), caption)


def ends_table(inputs: Iterable[Sequence[str]], outputs: Iterable[Sequence[str]]) -> Table:
    """One row per input and output of a model, each (name, element type, shape)."""
    rows = [("input", *end) for end in inputs] + [("output", *end) for end in outputs]
    columns = (Column("end"), Column("name"), Column("type"), Column("shape"))
    return Table("Inputs and outputs", columns, tuple(rows), grouped=True)


def operators_table(uses: Iterable[tuple[str, int, bool]]) -> Table:
    """One row per operator of a model: its name, how many layers it has, and its price on IPUs."""
    columns = (Column("operator"), Column("layers", "n_layers"), Column("on ipu"))
    rows = []
    for name, n_layers, has_rule in uses:
        rows.append((name, n_layers, "priced" if has_rule else "as elementwise"))
    return Table("Operators", columns, tuple(rows))


def studies_table(rows: Iterable[Mapping[str, Any]], now: datetime) -> Table:
    """Two lines per study, so that they have room for names: what was searched, the best, and its last trial."""
    columns = (
        Column("name\nmodel on cluster, objective"),
        Column("best\nunit", "value"),
        Column("trials", "n_trials"),
        Column("last trial\nstate"),
    )
    cells = []
    for row in rows:
        searched = f"{row['model']} on {row['cluster']}, {row['objective'].replace(',', ' and ')}"
        best = f"{digits(row['values'][0], 6)}\n{row['unit']}" if row["values"] else None
        age = _age(now, row["last_trial"]) if row["last_trial"] else "-"
        cells.append((f"{row['name']}\n{searched}", best, row["n_trials"], f"{age}\n{row['state']}"))
    return Table("Studies", columns, tuple(cells), "an unfinished search runs, or was interrupted")


def _age(now: datetime, then: str) -> str:
    """The time since a moment, in the largest unit of which it is at least one.

    >>> _age(datetime(2026, 11, 4, 5), "2026-11-04T04:58:01"), _age(datetime(2026, 11, 4, 5), "2026-11-01")
    ('1 min ago', '3 d ago')
    """
    seconds = max(int((now - datetime.fromisoformat(then)).total_seconds()), 0)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def clusters_table(clusters: Iterable[Cluster], title: str = "Built-in clusters") -> Table:
    """One row per cluster, or per kind of its devices: the first device, the links into the first and second."""
    columns = (
        Column("name"),
        Column("target"),
        Column("devices"),
        Column("clock", "clock"),
        Column("memory", "memory_bytes"),
        Column("host link", "link"),
        Column("device link", "link"),
    )
    rows: list[tuple[Value, ...]] = []
    for cluster in clusters:
        names = (cluster.name, cluster.target)
        # Where the order of unlike devices is given, all of them are one kind.
        kinds = [(cluster, cluster.receive_links[1] if len(cluster) > 1 else None)]
        if cluster.kinds:
            kinds = [(alone, kind.device_link) for alone, kind in zip(cluster.by_kind, cluster.kinds, strict=True)]
        for devices, device_link in kinds:
            first = devices.devices[0]
            rows.append(
                (
                    *names,
                    f"{len(devices)} x {first.name}",
                    f"{first.clock_hz / 1e9:.2f} GHz",
                    first.memory_bytes,
                    _link(devices.receive_links[0]),
                    _link(device_link) if device_link else None,
                )
            )
            names = ("", "")  # further kinds of devices stand below the first one of their cluster
    return Table(title, columns, tuple(rows), "a link waits its idle cycles, then moves so many GiB a second")


def systems_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """One row per system of GPUs, with its `name`, `n_gpus_per_node`, `memory_bytes` and `engines`."""
    columns = (Column("system"), Column("a node", "n_devices"), Column("memory of a GPU"), Column("engines"))
    cells = []
    for row in rows:
        memory = f"{row['memory_bytes'] / GIB:.1f} GiB"
        cells.append((row["name"], row["n_gpus_per_node"], memory, ", ".join(row["engines"])))
    caption = (
        "a cluster is SYSTEM-N: h100_sxm-6, h100_sxm-16, h100_sxm-8+l40s-8; memory is what a program can have of it"
    )
    return Table("GPUs with measured kernels", columns, tuple(cells), caption)


def _link(link: Link) -> str:
    return f"{gbps(link.bytes_per_s):.1f} GiB/s\n+{link.idle_cycles:,} cycles"


def profile_table(profile: ModelProfile, origin: Origin, top: int = 20, clock_hz: float | None = None) -> Table:
    """One row per kind of layer, sorted by the cycles of all its layers together."""
    from autoauto.report.wording import duration  # imports all that a report may say

    cycles = [layer.forward_cycles + layer.backward_cycles for layer in profile.layers]
    total = max(1, sum(cycles))
    kinds: dict[str, list[int]] = {}
    for index, kind in enumerate(profile.kinds):
        kinds.setdefault(kind, []).append(index)
    by_cycles = sorted(kinds.values(), key=lambda layers: -sum(cycles[i] for i in layers))
    measure = "cycles" if clock_hz is None else "time"
    columns = (
        Column("first layer"),
        Column("layers", "n_layers"),
        Column(f"{measure}\neach", "cycles"),
        Column(f"of all\n{measure}", "cycles_fraction"),
        Column("always live", "always_live_bytes"),
        Column("temporary", "temporary_bytes"),
    )
    rows: list[tuple[Value, ...]] = []
    for layers in by_cycles[:top]:
        first = layers[0]
        layer = profile.layers[first]
        rows.append(
            (
                TableCell(profile.names[first], Style.LAYER),
                len(layers),
                cycles[first] if clock_hz is None else duration(cycles[first], clock_hz),
                sum(cycles[i] for i in layers) / total,
                sum(layer.shared.values()) + sum(layer.exclusive.values()),
                layer.temporary_bytes,
            )
        )
    caption = f"{len(rows)} of {len(kinds)} kinds; {len(profile)} layers, {duration(total, clock_hz)}"
    return Table(f"Layers compiled alone, {origin}", columns, tuple(rows), caption)
