"""Consecutive stages on one device run in one slot, so they are one stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoauto.records.pipeline import PipelineOp


def stage_devices(ops: Sequence[PipelineOp]) -> tuple[int, ...]:
    """The device of every stage."""
    devices = {op.stage: op.device for op in ops}
    return tuple(devices[stage] for stage in sorted(devices))


def merge_stages(ops: Sequence[PipelineOp]) -> tuple[PipelineOp, ...]:
    """Number the stages anew so that neighbours are on different devices (PopART: mergeConsecutivePipelineStages).

    Stages on devices 0, 0, 1, 0 become stages 0, 0, 1, 2.
    """
    merged: list[int] = []
    devices = stage_devices(ops)
    for stage, device in enumerate(devices):
        merged.append(merged[-1] + (device != devices[stage - 1]) if stage else 0)
    return tuple(replace(op, stage=merged[op.stage]) for op in ops)
