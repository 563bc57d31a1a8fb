"""Recompute in the backward stage what the forward stage made, so that only the inputs of stages are stashed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoauto.records.errors import BadInput
from autoauto.records.pipeline import OpKind, PipelineGraph, PipelineOp


def add_recompute(ops: Sequence[PipelineOp], graph: PipelineGraph) -> tuple[PipelineOp, ...]:
    """Run layers a second time, before the gradients that need what they make (PopART: RecomputationType::Pipeline).

    Layers of the loss stage are not: their gradients run right after them. Nor are those whose output a layer of a
    later stage on the device reads, as it is stashed for that layer anyway. A layer runs again on its own tensors, so
    what leaves them in the meantime leaves from a clone.

    Raises:
        BadInput: what a second run reads is anchored, so that a stash could not restore it in place.
    """
    forward = [op for op in ops if op.kind is OpKind.MAIN and not op.backward]
    again = _second_runs(ops, forward)
    anchors = graph.anchors
    remade = {name for op in again for name in op.outputs}
    restored = {name for op in again for name in op.inputs if graph.changes(name)} - remade
    for name in sorted(restored & anchors):
        raise BadInput(
            f"a layer that is recomputed reads {name}, so a stash must restore it in place, but it is anchored; "
            "drop the anchor or the recomputation"
        )
    return _with_clones((*forward, *again, *ops[len(forward) :]), copied=remade | restored, stored=remade & anchors)


def _second_runs(ops: Sequence[PipelineOp], forward: Sequence[PipelineOp]) -> list[PipelineOp]:
    makers = {name: op for op in forward for name in op.outputs}
    kept = {name for op in forward for name in op.inputs if name in makers and makers[name].stage < op.stage}
    again = []
    for stage in sorted({op.stage for op in ops if op.backward}):
        wanted = {name for op in ops if op.backward and op.stage == stage for name in op.inputs} - kept
        for op in reversed(forward):
            if op.stage < stage and not wanted.isdisjoint(op.outputs):
                wanted |= set(op.inputs) - kept
                again.append(replace(op, name=f"{op.name}~", stage=stage, recompute=True))
    return again[::-1]


def _with_clones(ops: Sequence[PipelineOp], copied: set[str], stored: set[str]) -> tuple[PipelineOp, ...]:
    """Clone what is written again before it leaves: in the stage that copies it, or that makes it for the host."""
    leaving = {op.inputs[0]: op for op in ops if op.kind is OpKind.COPY and op.inputs[0] in copied}
    makers = {name: op for op in ops if not op.recompute for name in op.outputs if name in stored}
    clones = [
        PipelineOp(f"clone {name}", OpKind.CLONE, op.stage, op.device, (name,), (clone_of(name),))
        for name, op in (makers | leaving).items()
    ]
    copies = {op: replace(op, inputs=(clone_of(name),)) for name, op in leaving.items()}
    return (*(copies.get(op, op) for op in ops), *clones)


def clone_of(name: str) -> str:
    """The name of a tensor's clone."""
    return f"clone({name})"
