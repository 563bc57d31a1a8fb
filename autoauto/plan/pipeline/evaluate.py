"""From a partition to a `Plan` with its costs, `evaluate`; refuse one that does not fit its devices, `check_memory`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from autoauto.records.cost import CostTable
from autoauto.records.errors import BadInput, OutOfMemory
from autoauto.records.layers import LayerRange
from autoauto.records.phased import Phase
from autoauto.records.plan import Plan, Stage
from autoauto.records.units import format_bytes


def evaluate(table: CostTable, partition: Sequence[int]) -> Plan:
    """The plan that cuts at `partition`, the n_devices + 1 boundaries from 0 to n_layers; no limit is checked.

    Raises:
        BadInput: the partition is not the boundaries of non-empty stages, one a device.
    """
    wanted = f"{table.n_devices + 1} ascending boundaries from 0 to {table.n_layers}"
    ascending = all(start < stop for start, stop in pairwise(partition))
    if len(partition) != table.n_devices + 1 or not ascending or (partition[0], partition[-1]) != (0, table.n_layers):
        raise BadInput(f"a partition for {table.n_devices} devices needs {wanted}, got {list(partition)}")
    stages = (stage_of(table, device, *layers) for device, layers in enumerate(pairwise(partition)))
    return Plan(tuple(stages), table.period, table.host_cycles)


def stage_of(table: CostTable, device: int, start: int, stop: int) -> Stage:
    """A range of layers as a stage on a device."""
    backward_cycles = table.backward_cycles(start, stop, device)
    return Stage(
        layers=LayerRange(start, stop),
        device=device,
        forward_cycles=table.compute_cycles(start, stop, device) - backward_cycles,
        backward_cycles=backward_cycles,
        receive_cycles=table.stage_receive_cycles(device, start, stop),
        send_cycles=table.stage_send_cycles(device, start, stop),
        memory_bytes=table.memory_bytes(start, stop, device),
        limit_bytes=int(table.memory_limit_bytes[device]),
        weight_cycles=table.weight_cycles(start, stop, device),
        recomputes=table.memory.recompute,
    )


def check_memory(*plans: Sequence[Stage | Phase]) -> None:
    """Refuse plans of stages or phases if a phase exceeds its device, or the stages of a device do together.

    Raises:
        OutOfMemory: one does; the message names the one that exceeds it most, and its largest stage.
    """
    groups: dict[tuple[int, int], list[Stage | Phase]] = defaultdict(list)
    for number, parts in enumerate(plans):
        for index, part in enumerate(parts):
            groups[number, part.device if isinstance(part, Stage) else index].append(part)
    tightest = max(groups.values(), key=_excess_bytes)
    excess, largest = _excess_bytes(tightest), max(tightest, key=lambda part: part.total_bytes)
    if excess > 0:
        device = f" {largest.device}" if isinstance(largest, Stage) else ""
        ranges = " and ".join(str(part.layers) for part in tightest)
        raise OutOfMemory(
            f"layers {ranges} need {format_bytes(sum(part.total_bytes for part in tightest))} on device{device}, which "
            f"has {format_bytes(largest.limit_bytes)}: {format_bytes(excess)} too much; try a smaller batch size or "
            "more devices",
            excess,
            largest.layers,
            largest.memory_bytes,
        )


def _excess_bytes(parts: Sequence[Stage | Phase]) -> int:
    """By how much parts exceed the one device that they are on."""
    return sum(part.total_bytes for part in parts) - parts[0].limit_bytes
