"""The passes of the transformation, each from ops to ops, in the order in which `transform` runs them.

Layers become ops with gradients, neighbouring stages on one device are merged, copies go between devices, some layers
run again, and stashes hold the tensors that later stages read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from autoauto.programs.popart.graph import OpKind, PipelineGraph, PipelineOp, Stash, TensorKind
from autoauto.programs.popart.rules import device_of, stage_of
from autoauto.records.errors import BadInput


def forward_ops(graph: PipelineGraph) -> tuple[PipelineOp, ...]:
    """An op for every layer of a graph that `check_graph` accepts."""
    return tuple(
        PipelineOp(layer.name, OpKind.MAIN, stage_of(layer), device_of(layer), layer.inputs, layer.outputs)
        for layer in graph.layers
    )


def backward_ops(graph: PipelineGraph) -> tuple[PipelineOp, ...]:
    """An op X' for every layer X: from the gradients of X's outputs it makes those of X's inputs.

    The loss is an output of the last stage that no layer reads. The gradients of stage k are in stage 2 * last - k, on
    the same device, so those of the last stage are in the last stage itself [popart-pipelining]. A layer that does not
    lead to the loss has no gradient. Raises BadInput if a stage has no gradient.
    """
    stages = {stage_of(layer) for layer in graph.layers}
    ops = tuple(_gradients(graph, max(stages)))
    backward = {2 * max(stages) - op.stage for op in ops}
    without = sorted(stages - backward)
    if without:
        raise BadInput(
            f"there must be as many backward stages as forward ones, {len(stages)}, got {len(backward)}: "
            f"no layer of stage {', '.join(map(str, without))} leads to the loss in the last stage; connect or drop it"
        )
    return ops


def _gradients(graph: PipelineGraph, last: int) -> Iterator[PipelineOp]:
    """From the loss backwards; a tensor with several readers gets a part of its gradient from each."""
    n_readers: Counter[str] = Counter()
    for layer in graph.layers:
        n_readers.update(layer.inputs)
    results = graph.results
    parts: dict[str, list[str]] = {}
    for layer in reversed(graph.layers):
        gradients: list[str] = []
        for name in layer.outputs:
            gradients += parts.get(name, [])
        is_loss = stage_of(layer) == last and not results.isdisjoint(layer.outputs)
        if not gradients and not is_loss:
            continue
        made = []
        for name in layer.inputs:
            if graph.tensors[name].kind is TensorKind.ACTIVATION:
                part = f"d({name})"
                if n_readers[name] > 1:
                    part = f"d({name}) of {layer.name}"
                made.append(part)
                parts.setdefault(name, []).append(part)
        stage = 2 * last - stage_of(layer)
        inputs = tuple(gradients) + layer.gradient_needs
        yield PipelineOp(f"{layer.name}'", OpKind.MAIN, stage, device_of(layer), inputs, tuple(made), backward=True)


def stage_devices(ops: Sequence[PipelineOp]) -> tuple[int, ...]:
    """The device of every stage."""
    devices = {op.stage: op.device for op in ops}
    return tuple(devices[stage] for stage in sorted(devices))


def merge_stages(ops: Sequence[PipelineOp]) -> tuple[PipelineOp, ...]:
    """Number the stages anew so that neighbours are on different devices (PopART: mergeConsecutivePipelineStages).

    Stages on devices 0, 0, 1, 0 become stages 0, 0, 1, 2.
    """
    merged = [0]
    for before, device in pairwise(stage_devices(ops)):
        merged.append(merged[-1] + (device != before))
    return tuple(replace(op, stage=merged[op.stage]) for op in ops)


def add_copies(ops: Sequence[PipelineOp], graph: PipelineGraph) -> tuple[PipelineOp, ...]:
    """Bring every tensor to the devices that read it; "x@2" is the copy of x that arrives in stage 2.

    With x made in stage 0 and read in stages 1 and 3, each on a device of its own: x -> x@1 -> x@2 -> x@3. A tensor
    moves one stage a cycle, along with its micro-batch: all copies of a cycle read before any writes. On each device
    the first stage that reads a tensor takes a copy; later stages there restore it from a stash. The host streams to
    the first stage that reads. Variables, constants and optimizer tensors lie on each device that reads them.
    """
    origins = _origins(ops)
    arrivals: dict[str, dict[int, int]] = {}
    for op in ops:
        for name in op.inputs:
            if graph.changes(name) and op.device != origins[name].device:
                stages = arrivals.setdefault(name, {})
                stages[op.device] = min(op.stage, stages.get(op.device, op.stage))
    devices = stage_devices(ops)
    moved = []
    for op in ops:
        inputs = {}  # a dictionary, because an op may read one tensor twice
        for name in op.inputs:
            arrived = arrivals.get(name, {}).get(op.device)
            inputs[name] = name if arrived is None else f"{name}@{arrived}"
        moved.append(replace(op, inputs=tuple(inputs.values())))
    for name, stages in arrivals.items():
        source = name
        for stage in range(origins[name].stage, max(stages.values())):
            target = f"{name}@{stage + 1}"
            copy = PipelineOp(f"copy {source} -> {target}", OpKind.COPY, stage, devices[stage], (source,), (target,))
            moved.append(copy)
            source = target
    return tuple(moved)


def _origins(ops: Sequence[PipelineOp]) -> dict[str, PipelineOp]:
    """For every tensor the op that makes it; for one that no op makes, the first op that reads it."""
    origins: dict[str, PipelineOp] = {}
    for op in sorted(ops, key=lambda op: -op.stage):  # from the last stage, so that the first reader stays
        origins.update(dict.fromkeys(op.inputs, op))
    for op in ops:
        origins.update(dict.fromkeys(op.outputs, op))
    return origins


def add_recompute(ops: Sequence[PipelineOp], graph: PipelineGraph) -> tuple[PipelineOp, ...]:
    """Run layers a second time, before the gradients that need their outputs (PopART: RecomputationType::Pipeline).

    Layers of the loss stage do not run again, because their gradients follow them at once. Layers whose output a later
    stage on the device reads do not run again, because the output is stashed for that stage. A second run overwrites
    the tensors of the first one, so copies and the host read a clone in the meantime. Raises BadInput if an input of a
    second run is an anchor, so a stash cannot restore it in place.
    """
    forward = [op for op in ops if op.kind is OpKind.MAIN and not op.backward]
    again = _second_runs(ops, forward)
    anchors = graph.anchors
    remade, read = set[str](), set[str]()
    for op in again:
        remade.update(op.outputs)
        read.update(filter(graph.changes, op.inputs))
    restored = read - remade
    if restored & anchors:
        raise BadInput(
            f"a layer that is recomputed reads {min(restored & anchors)}, so a stash must restore it in place, but it "
            "is anchored; drop the anchor or the recomputation"
        )
    # The forward ops come first among the ops, then their second runs, then all others.
    others = list(ops[len(forward) :])
    return _with_clones(forward + again + others, copied=remade | restored, stored=remade & anchors)


def _second_runs(ops: Sequence[PipelineOp], forward: Sequence[PipelineOp]) -> list[PipelineOp]:
    """For every backward stage, the forward ops that its inputs need and that no stash gives, in order."""
    made_in: dict[str, int] = {}
    for op in forward:
        made_in.update(dict.fromkeys(op.outputs, op.stage))
    stashed: set[str] = set()
    for op in forward:
        stashed.update(name for name in op.inputs if made_in.get(name, op.stage) < op.stage)
    again = []
    for stage in sorted({op.stage for op in ops if op.backward}):
        wanted: set[str] = set()
        for op in ops:
            if op.backward and op.stage == stage:
                wanted.update(op.inputs)
        wanted -= stashed
        # Backwards, as a layer that runs again needs its own inputs, which other layers may have to make again.
        for op in reversed(forward):
            if op.stage < stage and not wanted.isdisjoint(op.outputs):
                wanted |= set(op.inputs) - stashed
                again.append(replace(op, name=f"{op.name}~", stage=stage, recompute=True))
    return again[::-1]


def _with_clones(ops: Sequence[PipelineOp], copied: set[str], stored: set[str]) -> tuple[PipelineOp, ...]:
    """Clone tensors that are overwritten before they leave, in the stage that copies or stores them."""
    makers: dict[str, PipelineOp] = {}  # the op in whose stage a tensor is cloned
    for op in ops:
        if not op.recompute:
            makers.update((name, op) for name in op.outputs if name in stored)
    leaving = {op.inputs[0]: op for op in ops if op.kind is OpKind.COPY and op.inputs[0] in copied}
    copies = {op: replace(op, inputs=(clone_of(name),)) for name, op in leaving.items()}
    cloned = [copies.get(op, op) for op in ops]
    for name, op in (makers | leaving).items():
        cloned.append(PipelineOp(f"clone {name}", OpKind.CLONE, op.stage, op.device, (name,), (clone_of(name),)))
    return tuple(cloned)


def clone_of(name: str) -> str:
    """The name of a tensor's clone."""
    return f"clone({name})"


def find_stashes(ops: Sequence[PipelineOp], graph: PipelineGraph) -> tuple[Stash, ...]:
    """A stash for every tensor that is read in a later stage than the one that makes or receives it.

    There is none for variables, constants and optimizer tensors, nor for tensors that the reading stage recomputes. The
    value is restored in place, unless the tensor is an anchor or is copied when all stages have computed (PopART).
    """
    made: dict[str, set[int]] = {}  # the stages that make a tensor
    read: dict[str, set[int]] = {}  # the stages that read it
    devices: dict[str, int] = {}
    for op in ops:
        if op.kind is not OpKind.MAIN:
            continue
        for name in op.outputs:
            made.setdefault(name, set()).add(op.stage)
        for name in filter(graph.changes, op.inputs):
            read.setdefault(name, set()).add(op.stage)
            devices[name] = op.device
    read_later = graph.anchors | {op.inputs[0] for op in ops if op.kind is OpKind.COPY}
    stashes = []
    for name, stages in read.items():
        first = min(made.get(name, stages))  # what no stage makes arrives in the first one that reads it
        later = sorted(stages - made.get(name, set()) - {first})  # a stage that recomputes a tensor needs no stash
        if later:
            stashes.append(Stash(name, devices[name], first, tuple(later), name not in read_later))
    return tuple(stashes)


def add_stashes(ops: Sequence[PipelineOp], stashes: Sequence[Stash]) -> tuple[PipelineOp, ...]:
    """Add the ops that restore a tensor, first in their stage, and the ops that stash one, last in theirs."""
    restores, moved, ends = [], [], []
    renamed: dict[tuple[str, int], str] = {}
    for stash in stashes:
        tensor, device, buffer = stash.tensor, stash.device, f"stash({stash.tensor})"
        ends.append(PipelineOp(f"stash {tensor}", OpKind.STASH, stash.stage, device, (tensor,), (buffer,)))
        for stage in stash.restore_stages:
            name = f"{tensor}~{stage}"
            restored = tensor if stash.in_place else name
            restores.append(PipelineOp(f"restore {name}", OpKind.RESTORE, stage, device, (buffer,), (restored,)))
            renamed[tensor, stage] = restored
    for op in ops:
        inputs = op.inputs
        if op.kind is OpKind.MAIN:
            inputs = tuple(renamed.get((name, op.stage), name) for name in inputs)
        moved.append(replace(op, inputs=inputs))
    return tuple(restores + moved + ends)
