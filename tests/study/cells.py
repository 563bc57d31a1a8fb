"""Cells of different searches compared: `essence`."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.space.knobs import Knobs
from autoauto.space.trial import Cell


def essence(cells: Sequence[Cell]) -> list[tuple[Knobs, Knobs | None, Knobs | None, float, str]]:
    """What does not depend on when, and in which order, the trials of the cells ran.

    The smallest batch size, the largest that fits, the first that does not, the best throughput, and why none fits.
    """
    return [
        (
            cell.knobs,
            cell.largest.knobs if cell.largest else None,
            cell.first_unfit.knobs if cell.first_unfit else None,
            cell.best.samples_per_s if cell.best else 0.0,
            "" if cell.best else cell.trials[0].reason,
        )
        for cell in cells
    ]
