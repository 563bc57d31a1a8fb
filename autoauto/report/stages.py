"""The stages of a plan: layers, cycles, memory against the limit, and which stages set the period."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.text import Text

from autoauto.records.plan import Plan, Stage
from autoauto.records.units import format_bytes
from autoauto.report.style import REALLY_MEASURED, LayerName, plain_table


def stages_table(plan: Plan, names: Sequence[str] | None, origin: str) -> RenderableType:
    """One row a stage, two lines high.

    The largest compute and the largest transfer of a device make the period (`Plan`), so "slowest" and "longest" mark
    what binds: every stage of such a device. Where devices have several stages, each says which it is on.

    Args:
        plan: what to show.
        names: the name of every layer; None when they are not known.
        origin: where the numbers come from, for example `MEASURED`.
    """
    named = [] if names is None else ["first, last layer"]
    cycles = ["compute\ncycles", "transfer\ncycles"]
    table = plain_table(f"Stages, {origin}", ["stage", "layers", *named, *cycles, "memory of\nits limit"], cycles)
    compute, transfer = plan.device_compute_cycles, plan.device_transfer_cycles
    several = len(compute) < len(plan.stages)
    for index, stage in enumerate(plan.stages):
        table.add_row(
            f"{index} on {stage.device}" if several else str(index),
            str(stage.layers),
            *_ends(stage, names),
            _cycles(
                stage.compute_cycles,
                "slowest" if plan.compute_binds and compute[stage.device] == plan.compute_cycles else "",
            ),
            _cycles(
                stage.transfer_cycles,
                "longest" if plan.transfer_binds and transfer[stage.device] == plan.transfer_cycles else "",
            ),
            _memory(stage),
        )
    if origin == REALLY_MEASURED:  # what then sets the period is in the run, not in the plan
        return table
    return Group(table, Text(f"period: {plan.cost_cycles:,} cycles, {_period(plan)}", "table.caption"))


def _period(plan: Plan) -> str:
    """What a period is made of."""
    if plan.host_binds:
        return "the host's transfers behind the devices"
    return (
        f"{'the larger of the slowest compute and' if plan.overlap else 'the slowest compute +'} the longest transfer"
    )


def _ends(stage: Stage, names: Sequence[str] | None) -> list[Group]:
    if names is None:
        return []
    return [Group(LayerName(names[stage.layers.start]), LayerName(names[stage.layers.stop - 1]))]


def _cycles(cycles: int, mark: str) -> Text:
    return Text(f"{cycles:,}\n{mark}", "bold" if mark else "")


def _memory(stage: Stage) -> Group:
    percent = 100 * stage.total_bytes / max(stage.limit_bytes, 1)
    return Group(
        Text(f"{format_bytes(stage.total_bytes)}, {percent:.0f} %"),
        ProgressBar(total=stage.limit_bytes, completed=stage.total_bytes, width=16),
    )
