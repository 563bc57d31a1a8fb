"""Ops -> the program of fragments, cycle by cycle: D, M and H of the active stages, then C of all (seed 000)."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.records.errors import BadInput
from autoauto.records.pipeline import (
    Cycle,
    Fragment,
    OpKind,
    PipelineGraph,
    PipelineOp,
    PipelineProgram,
    Step,
    TensorKind,
)
from autoauto.schedule.popart import phases
from autoauto.schedule.recompute import clone_of


def add_streams(ops: Sequence[PipelineOp], graph: PipelineGraph) -> tuple[PipelineOp, ...]:
    """Load every stream in the first stage that reads it; store what the host wants in the stage that makes it."""
    firsts = {name: op for op in sorted(ops, key=lambda op: -op.stage) for name in (*op.inputs, *op.outputs)}
    loads = [_load(name, firsts[name]) for name, tensor in graph.tensors.items() if tensor.kind is TensorKind.STREAM]
    clones = {op.inputs[0] for op in ops if op.kind is OpKind.CLONE}
    stores = [_store(name, clone_of(name) if name in clones else name, firsts[name]) for name in sorted(graph.anchors)]
    return (*ops, *loads, *stores)


def _load(name: str, first: PipelineOp) -> PipelineOp:
    return PipelineOp(f"load {name}", OpKind.TO_DEVICE, first.stage, first.device, (), (name,))


def _store(name: str, source: str, maker: PipelineOp) -> PipelineOp:
    return PipelineOp(f"store {name}", OpKind.TO_HOST, maker.stage, maker.device, (source,), ())


def assemble(ops: Sequence[PipelineOp], n_micro_batches: int) -> PipelineProgram:
    """Put the fragments of all stages into cycles; stage s is active in the cycles [s, s + n_micro_batches).

    Raises:
        BadInput: there is no cycle in which all stages are active, so no main phase.

    >>> from autoauto.schedule.autodiff import forward_ops
    >>> from autoauto.schedule.pipeline_input import simple_pipeline
    >>> program = assemble(forward_ops(simple_pipeline(2)), n_micro_batches=4)
    >>> [" ".join(map(str, cycle)) for cycle in (*program.fill, program.main, *program.flush)], program.n_main
    (['ps0[M] C', 'ps0[M] ps1[M] C', 'ps1[M] C'], 3)
    """
    there = {(op.fragment, op.stage) for op in ops}
    n_stages = max(stage for _, stage in there) + 1
    fill, n_main, flush = phases(n_stages, n_micro_batches, training=False)  # backward stages are counted already
    if n_main < 1:
        raise BadInput(
            f"the main phase needs 1 cycle or more, got {n_main} with {n_micro_batches} micro-batches in {n_stages} "
            "stages; try more micro-batches"
        )

    def cycle(number: int) -> Cycle:
        active = range(max(0, number - n_micro_batches + 1), min(number + 1, n_stages))
        kinds = (Fragment.TO_DEVICE, Fragment.MAIN, Fragment.TO_HOST)
        return (*(Step(kind, s) for kind in kinds for s in active if (kind, s) in there), Step(Fragment.COPY))

    return PipelineProgram(
        fill=tuple(map(cycle, range(fill))),
        main=cycle(fill),
        n_main=n_main,
        flush=tuple(map(cycle, range(fill + n_main, fill + n_main + flush))),
        carried=tuple(name for op in ops if op.kind is OpKind.COPY for name in op.outputs),
    )
