"""Which device of which machine holds what: `placement_table`."""

from __future__ import annotations

from itertools import product

from autoauto.records.hardware import MachineDevice
from autoauto.records.plan import Plan
from autoauto.report.tables.table import Column, Table

MAX_COLUMNS = 8
"""Devices in a row; a machine with more of them has several rows."""


def placement_table(plan: Plan) -> Table | None:
    """One row a machine, and in it the replica and the stage that each of its devices holds.

    Replicas are counted in the order of their first devices.

    Returns:
        None where the stages say all, for one pipeline or single devices in one machine, and where the cluster is not
        known.
    """
    holders, n_replicas = _holders(plan), sum(len(each.placement) for each in plan.plans)
    if not any(device.machine for device in holders) and (n_replicas <= 1 or len(plan.stages) == 1):
        return None
    width = min(MAX_COLUMNS, max((device.device for device in holders), default=0) + 1)
    cells: dict[tuple[int, int], list[str]] = {}
    for (machine, device), holder in holders.items():
        row = cells.setdefault((machine, device // width), ["-"] * width)
        row[device % width] = holder
    several_rows = any(part for _, part in cells)
    rows = (
        (f"{machine}, from device {part * width}" if several_rows else str(machine), *row)
        for (machine, part), row in sorted(cells.items())
    )
    what = "replica and stage" if len(plan.stages) > 1 else "replica"
    columns = (Column("machine"), *(Column(f"device {device}") for device in range(width)))
    return Table(f"What every device holds: {what}", columns, tuple(rows))


def _holders(plan: Plan) -> dict[MachineDevice, str]:
    """What every used device holds."""
    holders: dict[MachineDevice, str] = {}
    for each, replicas in zip(plan.plans, plan.replica_numbers, strict=True):
        for (replica, devices), (number, stage) in product(
            zip(replicas, each.placement, strict=True), enumerate(each.stages)
        ):
            for device in map(devices.__getitem__, stage.devices):
                if device in holders:
                    holders[device] += f", {number}"
                else:
                    holders[device] = f"{replica}: {number}" if len(each.stages) > 1 else str(replica)
    return holders
