"""Copies between devices, chained from stage to stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from autoauto.records.pipeline import OpKind, PipelineGraph, PipelineOp
from autoauto.schedule.stage_merge import stage_devices


def add_copies(ops: Sequence[PipelineOp], graph: PipelineGraph) -> tuple[PipelineOp, ...]:
    """Bring every tensor to the devices that read it; "x@2" is what arrives of x in stage 2.

    With x made in stage 0 and read in stages 1 and 3, each on a device of its own: x -> x@1 -> x@2 -> x@3. A tensor
    moves one stage a cycle, along with its micro-batch: all copies of a cycle read before any writes. On each device
    the first stage that reads a tensor takes a copy, later stages there find it in a stash. The host streams to the
    first stage that reads. Variables, constants and optimizer tensors lie on each device that reads them.
    """
    homes = _homes(ops)
    arrivals: dict[str, dict[int, int]] = {}
    for op in ops:
        for name in op.inputs:
            if graph.changes(name) and op.device != homes[name].device:
                stages = arrivals.setdefault(name, {})
                stages[op.device] = min(op.stage, stages.get(op.device, op.stage))
    devices = stage_devices(ops)
    copies = (
        copy
        for name, stages in arrivals.items()
        for copy in _chain(name, homes[name].stage, max(stages.values()), devices)
    )
    return (*(_with_arrived(op, arrivals) for op in ops), *copies)


def _homes(ops: Sequence[PipelineOp]) -> dict[str, PipelineOp]:
    """For every tensor the op that makes it, or the first that reads it."""
    readers = {name: op for op in sorted(ops, key=lambda op: -op.stage) for name in op.inputs}
    return readers | {name: op for op in ops for name in op.outputs}


def _chain(name: str, start: int, stop: int, devices: Sequence[int]) -> Iterator[PipelineOp]:
    """A copy out of every stage in [start, stop)."""
    source = name
    for stage in range(start, stop):
        target = f"{name}@{stage + 1}"
        yield PipelineOp(f"copy {source} -> {target}", OpKind.COPY, stage, devices[stage], (source,), (target,))
        source = target


def _with_arrived(op: PipelineOp, arrivals: dict[str, dict[int, int]]) -> PipelineOp:
    """Read what has arrived on the op's device."""
    stages = {name: arrivals.get(name, {}).get(op.device) for name in op.inputs}
    return replace(op, inputs=tuple(name if stage is None else f"{name}@{stage}" for name, stage in stages.items()))
