"""Whether measured stages or phases fit their devices."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.records.errors import OutOfMemory
from autoauto.records.phased import Phase
from autoauto.records.plan import Stage
from autoauto.records.units import format_bytes


def check_memory(parts: Sequence[Stage | Phase]) -> None:
    """Refuse stages or phases of which one exceeds its device.

    Raises:
        OutOfMemory: one does; the tightest is told.
    """
    tightest = max(parts, key=lambda part: part.total_bytes - part.limit_bytes)
    excess = tightest.total_bytes - tightest.limit_bytes
    if excess > 0:
        device = f" {tightest.device}" if isinstance(tightest, Stage) else ""
        raise OutOfMemory(
            f"layers {tightest.layers} need {format_bytes(tightest.total_bytes)} on device{device}, which has "
            f"{format_bytes(tightest.limit_bytes)}: {format_bytes(excess)} too much; try a smaller batch size or more "
            "devices",
            excess,
            tightest.layers,
            tightest.memory_bytes,
        )
