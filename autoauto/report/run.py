"""What the stages of a plan did while it really ran: `run_table`."""

from __future__ import annotations

import numpy as np
from rich.table import Table

from autoauto.records.run import Run
from autoauto.report.style import plain_table


def run_table(run: Run, origin: str) -> Table:
    """One row a stage of every pipeline: the shares of its time that it computed, moved tensors, and waited.

    Args:
        run: what was measured.
        origin: where the numbers come from, for example "measured".
    """
    several = len(run.timelines) > 1
    columns = [*(["pipeline"] if several else []), "stage", "micro-batches", "computes", "moves", "waits"]
    table = plain_table(f"What every stage did, {origin}", columns, columns[-4:])
    for number, timeline in enumerate(run.timelines):
        for stage, (starts, stops) in enumerate(zip(timeline.starts, timeline.stops, strict=True)):
            moved = timeline.exchanges[stage]
            whole = max(int(moved[-1, 1] - moved[0, 0]), 1)
            shares = np.array([(stops - starts).sum(), (moved[:, 1] - moved[:, 0]).sum()]) / whole
            row = (*shares, 1 - shares.sum())
            place = [str(number)] if several else []
            table.add_row(*place, str(stage), str(len(starts)), *(f"{100 * share:.1f} %" for share in row))
    table.caption = disturbance(run)
    return table


def disturbance(run: Run) -> str | None:
    """What to say of a run that others on the machine disturbed; None for a quiet one."""
    if run.quiet:
        return None
    had = f"a stage had {100 * run.core_fraction:.0f} % of its core"
    return f"{had}, other processes, or a tenant with whom it is shared, the rest; measure again on a quiet machine"
