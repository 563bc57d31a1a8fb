"""`transform`, a graph into PopART's pipeline: all passes, then streams, the program of cycles, and a check of it.

PopART's pipeline as text, as [popart-pipelining] draws it: `program_text`, `stages_view`, `devices_view`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, pairwise, product

from autoauto.programs.popart.graph import (
    Cycle,
    Fragment,
    FragmentCall,
    OpKind,
    PipelineGraph,
    PipelineOp,
    PipelineProgram,
    PopartPipeline,
    TensorKind,
)
from autoauto.programs.popart.passes import (
    add_copies,
    add_recompute,
    add_stashes,
    backward_ops,
    clone_of,
    find_stashes,
    forward_ops,
    merge_stages,
    stage_devices,
)
from autoauto.programs.popart.rules import check_depth, check_graph
from autoauto.records.errors import BadInput
from autoauto.schedule.orders.popart import popart_phases

_ORDER = list(Fragment)


def transform(graph: PipelineGraph, n_micro_batches: int, *, training: bool, recompute: bool) -> PopartPipeline:
    """Pipeline a graph: gradients, stages, copies, recomputation, stashes, streams, and the program of all cycles.

    Without training there is nothing to recompute. Raises BadInput if the graph breaks one of PopART's rules, or there
    are too few micro-batches to fill the pipeline.
    """
    check_graph(graph)
    ops = forward_ops(graph)
    if training:
        ops += backward_ops(graph)
    ops = merge_stages(ops)
    devices = stage_devices(ops)
    check_depth(len(devices), n_micro_batches, training=training)
    ops = add_copies(ops, graph)
    if recompute:
        ops = add_recompute(ops, graph)
    stashes = find_stashes(ops, graph)
    ops = add_streams(add_stashes(ops, stashes), graph)
    program = assemble(ops, n_micro_batches)
    check_parallel(program, devices)
    return PopartPipeline(ops, devices, n_micro_batches, stashes, program)


def add_streams(ops: Sequence[PipelineOp], graph: PipelineGraph) -> tuple[PipelineOp, ...]:
    """Load every stream in the first stage that reads it; store every anchor in the stage that makes it."""
    firsts: dict[str, PipelineOp] = {}  # the first op that reads or makes a tensor
    for op in sorted(ops, key=lambda op: -op.stage):
        firsts.update(dict.fromkeys(op.inputs + op.outputs, op))
    clones = {op.inputs[0] for op in ops if op.kind is OpKind.CLONE}
    streams = []
    for name, tensor in graph.tensors.items():
        if tensor.kind is TensorKind.STREAM:
            first = firsts[name]
            streams.append(PipelineOp(f"load {name}", OpKind.TO_DEVICE, first.stage, first.device, (), (name,)))
    for name in sorted(graph.anchors):
        source = clone_of(name) if name in clones else name
        maker = firsts[name]
        streams.append(PipelineOp(f"store {name}", OpKind.TO_HOST, maker.stage, maker.device, (source,), ()))
    return (*ops, *streams)


def assemble(ops: Sequence[PipelineOp], n_micro_batches: int) -> PipelineProgram:
    """Put the fragments of all stages into cycles; stage s is active in the cycles [s, s + n_micro_batches).

    Raises BadInput if there is no cycle in which all stages are active, so no main phase.
    """
    fragments = {(op.fragment, op.stage) for op in ops}
    n_stages = max(stage for _, stage in fragments) + 1
    fill, n_main, flush = popart_phases(n_stages, n_micro_batches, training=False)  # `ops` has the backward
    if n_main < 1:
        raise BadInput(
            f"the main phase needs 1 cycle or more, got {n_main} with {n_micro_batches} micro-batches in {n_stages} "
            "stages; try more micro-batches"
        )

    def cycle(number: int) -> Cycle:
        active = range(max(0, number - n_micro_batches + 1), min(number + 1, n_stages))
        calls = []
        for kind, stage in product((Fragment.TO_DEVICE, Fragment.MAIN, Fragment.TO_HOST), active):
            if (kind, stage) in fragments:
                calls.append(FragmentCall(kind, stage))
        calls.append(FragmentCall(Fragment.COPY))
        return tuple(calls)

    carried: list[str] = []
    for op in ops:
        if op.kind is OpKind.COPY:
            carried += op.outputs
    return PipelineProgram(
        fill=tuple(map(cycle, range(fill))),
        main=cycle(fill),
        n_main=n_main,
        flush=tuple(map(cycle, range(fill + n_main, fill + n_main + flush))),
        carried=tuple(carried),
    )


def check_parallel(program: PipelineProgram, devices: Sequence[int]) -> None:
    """Check every cycle of a program; stage s is on `devices[s]`.

    A cycle has its fragments in the order D, M, H, C, and C once: devices wait for each other in C and for the host in
    D and H, so none of these may come between two stages that compute. Neighbours among the M are on different devices.
    Two stages further apart may share a device, as stages 0 and 4 on 3 devices do: they run one after the other there.
    Raises BadInput if a cycle breaks these rules; the message names the fragments.
    """
    for index, cycle in enumerate(program.fill):
        _check_cycle(f"fill cycle {index}", cycle, devices)
    _check_cycle("the main cycle", program.main, devices)
    for index, cycle in enumerate(program.flush):
        _check_cycle(f"flush cycle {index}", cycle, devices)


def _check_cycle(where: str, cycle: Cycle, devices: Sequence[int]) -> None:
    for first, second in pairwise(cycle):
        if _ORDER.index(first.fragment) > _ORDER.index(second.fragment):
            raise BadInput(f"{where} must have its fragments in the order D, M, H, C, got {second} after {first}")
        both_main = first.fragment is second.fragment is Fragment.MAIN
        if both_main and devices[first.stage or 0] == devices[second.stage or 0]:
            raise BadInput(
                f"{where} must have neighbours on different devices, got {first} and {second} both on device "
                f"{devices[first.stage or 0]}; merge their stages"
            )
    n_copies = sum(step.fragment is Fragment.COPY for step in cycle)
    if n_copies != 1:
        raise BadInput(f"{where} must copy for all stages at once, got C {n_copies} times")


Cells = list[str]
"""The texts of one column, or of one row."""

_FORMS = {Fragment.TO_DEVICE: "D{}.", Fragment.MAIN: "M{}", Fragment.TO_HOST: ".H{}"}


def program_text(pipeline: PopartPipeline) -> str:
    """Every fragment in the order in which it is added, with the main phase as a loop.

    Tensors that the fill phase copies enter the loop (loop_in), are carried from one cycle to the next (loop_carry) and
    leave the loop for the flush phase (loop_out). Stashes stay on their devices.
    """
    program = pipeline.program
    lines = ["poplar::Program::Sequence seq;  // the full pipeline program"]
    for cycle in program.fill:
        lines += _added("seq", cycle)
    lines += _added("seq", (f"loop_in[{name}]" for name in program.carried))
    lines.append("poplar::Program::Sequence main;  // the main cycle")
    lines += _added("main", program.main)
    lines += _added("main", (f"loop_carry[{name}]" for name in program.carried))
    lines.append(f"seq.add(poplar::Program::Repeat({program.n_main}, main));")
    lines += _added("seq", (f"loop_out[{name}]" for name in program.carried))
    for cycle in program.flush:
        lines += _added("seq", cycle)
    return "\n".join(lines)


def _added(sequence: str, parts: Cycle | Iterable[str]) -> list[str]:
    return [f"{sequence}.add({part});" for part in parts]


def stages_view(pipeline: PopartPipeline) -> str:
    """A row for every stage, a column for every cycle: "D2.M2.H2." loads, computes and stores micro-batch 2.

    C are the copies of all stages at the end of every cycle.
    """
    cycles = enumerate(pipeline.program.cycles())
    columns = [_stage_cells(cycle, number, pipeline.n_stages) for number, cycle in cycles]
    columns, header = _under_phases(pipeline, columns, str.rjust)
    rows = {"": header}
    for stage in range(pipeline.n_stages):
        bar = "C" if stage == pipeline.n_stages // 2 else "|"
        rows[f"PS{stage}:"] = "".join(f"{column[stage]}{bar} " for column in columns)
    return _labelled(rows)


def devices_view(pipeline: PopartPipeline) -> str:
    """A row for every device, a column for every cycle.

    "PS0(4).PS4(0)" runs stage 0 on micro-batch 4, then stage 4 on micro-batch 0.
    """
    devices = sorted(set(pipeline.devices))
    columns = []
    for number, cycle in enumerate(pipeline.program.cycles()):
        columns.append([_device_cell(cycle, number, pipeline, device) for device in devices])
    columns, header = _under_phases(pipeline, columns, str.ljust)
    rows = {"": header}
    for index, device in enumerate(devices):
        cells = [column[index] for column in columns]
        active = [number for number, cell in enumerate(cells) if cell.strip()]
        row = ""
        for number, cell in enumerate(cells):
            # A comma stands behind every cell in which the device is active but the last one.
            row += cell
            row += ", " if number in active[:-1] else "  "
        rows[f"IPU{device}:"] = row
    return _labelled(rows)


def _stage_cells(cycle: Cycle, number: int, n_stages: int) -> Cells:
    """A cell for every stage, with room for the kinds of fragments that any of them has in this cycle."""
    texts: dict[tuple[Fragment, int], str] = {}
    widths: dict[Fragment, int] = {}
    for step in cycle:
        if step.stage is not None:
            text = _FORMS[step.fragment].format(number - step.stage)
            texts[step.fragment, step.stage] = text
            widths[step.fragment] = max(len(text), widths.get(step.fragment, 0))
    cells = []
    for stage in range(n_stages):
        cell = ""
        for kind, width in widths.items():
            cell += texts.get((kind, stage), "").ljust(width)
        mark = "." if (Fragment.MAIN, stage) in texts else " "
        cells.append(cell + mark)
    return cells


def _device_cell(cycle: Cycle, number: int, pipeline: PopartPipeline, device: int) -> str:
    """The stages that a device runs in a cycle, each with its micro-batch: stage s is s micro-batches behind."""
    texts = []
    for step in cycle:
        if step.fragment is Fragment.MAIN and step.stage is not None and pipeline.devices[step.stage] == device:
            texts.append(f"PS{step.stage}({number - step.stage})")
    return ".".join(texts)


def _under_phases(
    pipeline: PopartPipeline, columns: list[Cells], align: Callable[[str, int], str]
) -> tuple[list[Cells], str]:
    """The columns, each padded to one width, and the line above them with the names of the phases."""
    program = pipeline.program
    rest = iter(columns)
    widened, bars = [], []
    for name, n_cycles in (("fill", len(program.fill)), ("main", program.n_main), ("flush", len(program.flush))):
        phase = list(islice(rest, n_cycles))
        if not phase:
            continue
        widths = [max(map(len, column)) for column in phase]
        n_between = 2 * (len(phase) - 1)
        width = max(sum(widths) + n_between, len(f"<{name}>"))
        widths[-1] = width - sum(widths[:-1]) - n_between  # the last column fills up to the end of the name
        for column, column_width in zip(phase, widths, strict=True):
            widened.append([align(cell, column_width) for cell in column])
        label = f" {name} " if width >= len(name) + 4 else name
        bars.append(f"<{label:-^{width - 2}}>")
    return widened, "  ".join(bars)


def _labelled(rows: Mapping[str, str]) -> str:
    width = max(map(len, rows))
    return "\n".join(f"{label:<{width}} {row}".rstrip() for label, row in rows.items())
