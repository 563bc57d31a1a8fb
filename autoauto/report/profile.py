"""The kinds of layers that a profile compiled, dearest first."""

from __future__ import annotations

from rich.table import Table

from autoauto.records.profile import LayerProfile, ModelProfile
from autoauto.records.units import format_bytes
from autoauto.report.style import LayerName, measured_by, plain_table


def profile_table(profile: ModelProfile, top: int = 20) -> Table:
    """One row a kind of layer, by the cycles of all its layers together.

    Args:
        profile: what to show.
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
