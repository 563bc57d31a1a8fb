"""PopART's pipeline as text, as [popart-pipelining] draws it: `program_text`, `stages_view`, `devices_view`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from autoauto.runtimes.popart.graph import Cycle, Fragment, PopartPipeline

Cells = list[str]
"""The texts of one column or row."""

_FORMS = {Fragment.TO_DEVICE: "D{}.", Fragment.MAIN: "M{}", Fragment.TO_HOST: ".H{}"}


def program_text(pipeline: PopartPipeline) -> str:
    """Every fragment in the order in which it is added, with the main phase as a loop.

    Tensors that the fill phase copies enter the loop (loop_in), are carried from one cycle to the next (loop_carry) and
    leave the loop for the flush phase (loop_out). Stashes stay on their devices.
    """
    program = pipeline.program
    return "\n".join(
        [
            "poplar::Program::Sequence seq;  // the full pipeline program",
            *(line for cycle in program.fill for line in _added("seq", cycle)),
            *_added("seq", (f"loop_in[{name}]" for name in program.carried)),
            "poplar::Program::Sequence main;  // the main cycle",
            *_added("main", program.main),
            *_added("main", (f"loop_carry[{name}]" for name in program.carried)),
            f"seq.add(poplar::Program::Repeat({program.n_main}, main));",
            *_added("seq", (f"loop_out[{name}]" for name in program.carried)),
            *(line for cycle in program.flush for line in _added("seq", cycle)),
        ]
    )


def _added(sequence: str, parts: Cycle | Iterable[str]) -> list[str]:
    return [f"{sequence}.add({part});" for part in parts]


def stages_view(pipeline: PopartPipeline) -> str:
    """A row for every stage, a column for every cycle: "D2.M2.H2." loads, computes and stores micro-batch 2.

    C are the copies of all stages at the end of every cycle.
    """
    cycles = enumerate(pipeline.program.cycles())
    columns = [_stage_cells(cycle, number, pipeline.n_stages) for number, cycle in cycles]
    columns, header = _under_phases(pipeline, columns, str.rjust)
    rows = []
    for stage in range(pipeline.n_stages):
        bar = "C" if stage == pipeline.n_stages // 2 else "|"
        rows.append("".join(f"{column[stage]}{bar} " for column in columns))
    return _labelled([f"PS{stage}:" for stage in range(pipeline.n_stages)], [header, *rows])


def devices_view(pipeline: PopartPipeline) -> str:
    """A row for every device, a column for every cycle.

    "PS0(4).PS4(0)" runs stage 0 on micro-batch 4, then stage 4 on micro-batch 0.
    """
    devices = sorted(set(pipeline.devices))
    cycles = enumerate(pipeline.program.cycles())
    columns = [[_device_cell(cycle, number, pipeline, device) for device in devices] for number, cycle in cycles]
    columns, header = _under_phases(pipeline, columns, str.ljust)
    rows = [_device_row([column[index] for column in columns]) for index in range(len(devices))]
    return _labelled([f"IPU{device}:" for device in devices], [header, *rows])


def _stage_cells(cycle: Cycle, number: int, n_stages: int) -> Cells:
    """A cell for every stage, with room for the kinds of fragments that any of them has in this cycle."""
    texts = {
        (step.fragment, step.stage): _FORMS[step.fragment].format(number - step.stage)
        for step in cycle
        if step.stage is not None
    }
    widths = {kind: max(len(text) for (other, _), text in texts.items() if other is kind) for kind, _ in texts}
    cells = []
    for stage in range(n_stages):
        slots = (texts.get((kind, stage), "").ljust(width) for kind, width in widths.items())
        cells.append("".join(slots) + ("." if (Fragment.MAIN, stage) in texts else " "))
    return cells


def _device_cell(cycle: Cycle, number: int, pipeline: PopartPipeline, device: int) -> str:
    stages = (step.stage for step in cycle if step.fragment is Fragment.MAIN and step.stage is not None)
    return ".".join(f"PS{stage}({number - stage})" for stage in stages if pipeline.devices[stage] == device)


def _device_row(cells: Cells) -> str:
    """A comma stands between two cells in which the device is active."""
    active = [index for index, cell in enumerate(cells) if cell.strip()]
    commas = set(active[:-1])
    return "".join(cell + (", " if index in commas else "  ") for index, cell in enumerate(cells))


def _under_phases(
    pipeline: PopartPipeline, columns: list[Cells], align: Callable[[str, int], str]
) -> tuple[list[Cells], str]:
    """The columns, each padded to one width, and the line above them with the names of the phases."""
    program = pipeline.program
    rest = iter(columns)
    widened, bars = [], []
    for name, n_cycles in (("fill", len(program.fill)), ("main", program.n_main), ("flush", len(program.flush))):
        phase = list(islice(rest, n_cycles))
        widths = [max(map(len, column)) for column in phase]
        if not phase:
            continue
        width = max(sum(widths) + 2 * (len(phase) - 1), len(f"<{name}>"))
        widths[-1] = width - sum(widths[:-1]) - 2 * (len(phase) - 1)
        widened += [[align(cell, width) for cell in column] for column, width in zip(phase, widths, strict=True)]
        bars.append(f"<{f' {name} ':-^{width - 2}}>" if width >= len(name) + 4 else f"<{name:-^{width - 2}}>")
    return widened, "  ".join(bars)


def _labelled(labels: Cells, rows: Cells) -> str:
    """The first row has no label."""
    width = max(map(len, labels))
    return "\n".join(f"{label:<{width}} {row}".rstrip() for label, row in zip(["", *labels], rows, strict=True))
