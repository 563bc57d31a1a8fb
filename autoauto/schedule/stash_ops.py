"""Stashes for what a later stage on the same device reads: stages of one cycle work on different micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoauto.records.pipeline import OpKind, PipelineGraph, PipelineOp, Stash


def find_stashes(ops: Sequence[PipelineOp], graph: PipelineGraph) -> tuple[Stash, ...]:
    """A stash for every tensor that is read in a later stage than it is made or arrives in.

    None for variables, constants and optimizer tensors, nor for what the reading stage recomputes. The restored value
    takes the place of the tensor, unless that is anchored or copied when all stages have computed (PopART).

    >>> from autoauto.schedule.autodiff import backward_ops, forward_ops
    >>> from autoauto.schedule.copies import add_copies
    >>> from autoauto.schedule.pipeline_input import simple_pipeline
    >>> graph = simple_pipeline(3)
    >>> stashes = find_stashes(add_copies((*forward_ops(graph), *backward_ops(graph)), graph), graph)
    >>> [(s.tensor, s.device, s.stage, s.restore_stages, s.n_entries) for s in stashes]
    [('in', 0, 0, (4,), 5), ('A:0@1', 1, 1, (3,), 3)]
    """
    main = [op for op in ops if op.kind is OpKind.MAIN]
    made: dict[str, set[int]] = {}
    read: dict[str, set[int]] = {}
    devices: dict[str, int] = {}
    for op in main:
        for name in op.outputs:
            made.setdefault(name, set()).add(op.stage)
        for name in filter(graph.changes, op.inputs):
            read.setdefault(name, set()).add(op.stage)
            devices[name] = op.device
    kept = graph.anchors | {op.inputs[0] for op in ops if op.kind is OpKind.COPY}
    stashes = []
    for name, stages in read.items():
        first = min(made.get(name, stages))
        later = sorted(stages - made.get(name, set()) - {first})
        if later:
            stashes.append(Stash(name, devices[name], first, tuple(later), name not in kept))
    return tuple(stashes)


def add_stashes(ops: Sequence[PipelineOp], stashes: Sequence[Stash]) -> tuple[PipelineOp, ...]:
    """Restore before anything else in a stage, stash when all else is done."""
    restores, ends = [], []
    renamed: dict[tuple[str, int], str] = {}
    for stash in stashes:
        buffer = f"stash({stash.tensor})"
        ends.append(
            PipelineOp(f"stash {stash.tensor}", OpKind.STASH, stash.stage, stash.device, (stash.tensor,), (buffer,))
        )
        for stage in stash.restore_stages:
            restored = stash.tensor if stash.in_place else f"{stash.tensor}~{stage}"
            restores.append(
                PipelineOp(
                    f"restore {stash.tensor}~{stage}", OpKind.RESTORE, stage, stash.device, (buffer,), (restored,)
                )
            )
            renamed[stash.tensor, stage] = restored
    moved = (
        replace(op, inputs=tuple(renamed.get((name, op.stage), name) for name in op.inputs))
        if op.kind is OpKind.MAIN
        else op
        for op in ops
    )
    return (*restores, *moved, *ends)
