"""Tables of plans, of their stages and phases, and of devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from autoauto.records.errors import DoesNotFit
from autoauto.records.hardware import MachineDevice, Period
from autoauto.records.plans.phased import BufferRow, PhasedPlan, PhaseKind
from autoauto.records.plans.plan import Explanation, Move, Plan, Stage
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import CHECK
from autoauto.records.target import Origin
from autoauto.records.units import format_bytes
from autoauto.report.style import format_value
from autoauto.report.tables.table import Column, Style, Table, TableCell, Value
from autoauto.report.wording import duration, stage_devices
from autoauto.space.knobs import Knobs

_PLAIN = Knobs()
MAX_COLUMNS = 8
"""Devices in a row; a machine with more of them has several rows."""


def placement_table(plan: Plan, knobs: Knobs = _PLAIN) -> Table | None:
    """One row a machine, and in it the replica and the stage that each of its devices holds.

    Replicas are counted in the order of their first devices. None where the stages say all, for one pipeline or single
    devices in one machine, and where the cluster is not known.
    """
    holders, n_replicas = _holders(plan), sum(len(each.placement) for each in plan.plans)
    is_one_machine = not any(device.machine for device in holders)
    if is_one_machine and (n_replicas <= 1 or len(plan.stages) == 1):
        return None
    width = min(MAX_COLUMNS, max((device.device for device in holders), default=0) + 1)
    cells: dict[tuple[int, int], list[str]] = {}  # by machine and part of its devices, which are one row
    for (machine, device), holder in holders.items():
        row = cells.setdefault((machine, device // width), ["-"] * width)
        row[device % width] = holder
    noun = knobs.session.words.single(knobs.session.group_size).partition(" ")[0]
    has_parts = any(part for _, part in cells)
    rows = []
    for (machine, part), row in sorted(cells.items()):
        name = f"{machine}, from {noun} {part * width}" if has_parts else str(machine)
        rows.append((name, *row))
    what = "replica and stage" if len(plan.stages) > 1 else "replica"
    columns = [Column("machine")] + [Column(f"{noun} {device}") for device in range(width)]
    return Table(f"What every {noun} holds: {what}", tuple(columns), tuple(rows))


def _holders(plan: Plan) -> dict[MachineDevice, str]:
    """For every used device the replica and the stage that it holds; a device with several stages lists them all."""
    holders: dict[MachineDevice, str] = {}
    for each, replicas in zip(plan.plans, plan.replica_numbers, strict=True):
        for replica, devices in zip(replicas, each.placement, strict=True):
            for number, stage in enumerate(each.stages):
                for index in stage.devices:
                    if devices[index] in holders:
                        holders[devices[index]] += f", {number}"
                    else:
                        holders[devices[index]] = f"{replica}: {number}" if len(each.stages) > 1 else str(replica)
    return holders


def timeline_table(timeline: Timeline, stash_entries: Iterable[int]) -> Table:
    """One row per device: its cycles by use, the most activations that it holds at once, and those it has room for."""
    columns = (
        Column("device"),
        Column("busy\ncycles", "cycles"),
        Column("exchange\ncycles", "cycles"),
        Column("bubble\ncycles", "cycles"),
        Column("bubble", "bubble_fraction"),
        Column("peak in\nflight", "n_in_flight"),
        Column("stash\nentries", "n_entries"),
    )
    of_devices = zip(
        timeline.busy_cycles,
        timeline.exchange_cycles,
        timeline.bubble_cycles,
        timeline.schedule.peak_in_flight,
        stash_entries,
        strict=True,
    )
    rows = []
    for device, (busy, exchange, bubble, n_in_flight, n_entries) in enumerate(of_devices):
        share = bubble / (timeline.makespan_cycles or 1)
        rows.append((str(device), busy, exchange, bubble, share, n_in_flight, n_entries))
    makespan = format_value("cycles", timeline.makespan_cycles)
    ideal = format_value("cycles", timeline.ideal_cycles)
    period = format_value("cycles", timeline.period_cycles)
    checks = ", checks count as idle" if timeline.schedule.has(CHECK) else ""
    caption = (
        f"makespan: {makespan} cycles, ideal: {ideal}\n"
        f"{step_parts_text(timeline)}"
        f"steady period: {period} cycles a micro-batch\n"
        f"bubble: {100 * timeline.bubble_fraction:.1f} % of all devices' time{checks}"
    )
    return Table(f"Devices, {timeline.origin}", columns, tuple(rows), caption)


def step_parts_text(timeline: Timeline, clock_hz: float | None = None) -> str:
    """The parts of a step of training in a line; empty where the end of the step is not known."""
    if timeline.step_end is None:
        return ""
    if clock_hz is not None:
        return f"step: {', '.join(f'{name} {duration(n, clock_hz)}' for name, n in timeline.step_parts.items())}\n"
    parts = (f"{name} {format_value('cycles', cycles)}" for name, cycles in timeline.step_parts.items())
    return f"step: {', '.join(parts)} cycles\n"


_PERIODS = {
    Period.BARRIER: "the slowest compute + the longest transfer",
    Period.OVERLAP: "the larger of the slowest compute and the longest transfer",
    Period.SERIAL: "the longest compute and transfer of one device",
    Period.DUPLEX: "the largest of all computes, receives and sends",
}
_PASSES = {PhaseKind.FORWARD: "F", PhaseKind.BACKWARD: "B", PhaseKind.BOTH: "F B"}


def parts_tables(
    plan: Plan | PhasedPlan,
    names: Sequence[str] | None,
    origin: Origin | None,
    clock_hz: float | None = None,
    knobs: Knobs = _PLAIN,
) -> list[Table]:
    """The phases of a plan; or its stages, for every plan of its replicas, and which device holds which."""
    if isinstance(plan, PhasedPlan):
        return [phases_table(plan, origin)]
    tables = []
    for each, replicas in zip(plan.plans, plan.replica_numbers, strict=True):
        table = stages_table(each, names, origin, clock_hz, knobs)
        if plan.other_plans:
            table = replace(table, title=f"{table.title}: replica {', '.join(map(str, replicas))}")
        tables.append(table)
    placement = placement_table(plan, knobs)
    if placement is not None:
        tables.append(placement)
    return tables


def stages_table(
    plan: Plan,
    names: Sequence[str] | None,
    origin: str | None,
    clock_hz: float | None = None,
    knobs: Knobs = _PLAIN,
) -> Table:
    """One row per stage, two lines high.

    "slowest" and "longest" mark the stages whose compute or transfer determines the period (`Period`), "busiest" those
    whose compute and transfer together do. Where devices have several stages, or a stage has several devices, the first
    column also has them, and where they are of several kinds, the kind. Cycles of a stage with several devices are
    those of one device, divided by how many they are.

    Args:
        names: the name of every layer; None when they are not known.
        origin: of the numbers; None where it is not known.
        clock_hz: of the cycles, where time is shown instead.
        knobs: the configuration, which says what its target calls devices and layers.
    """
    mode, n_layers = knobs.mode, plan.partition[-1]
    slowest, longest = "slowest", "longest"
    if plan.period is Period.SERIAL:  # the sum of both is what binds
        slowest = longest = "busiest"
    columns = (
        Column("stage"),
        Column(mode.parts),
        Column("first, last layer"),
        _of_cycles("compute", clock_hz),
        _of_cycles("transfer", clock_hz),
        Column("memory of\nits limit"),
    )
    rows = []
    for index, stage in enumerate(plan.stages):
        first, last = (names[stage.layers.start], names[stage.layers.stop - 1]) if names else ("", "")
        compute_mark = slowest if index in plan.compute_bottlenecks else ""
        transfer_mark = longest if index in plan.transfer_bottlenecks else ""
        share = stage.total_bytes / max(stage.limit_bytes, 1)
        rows.append(
            (
                _stage(plan, index),
                mode.parts_of(stage.layers, n_layers),
                TableCell(f"{first}\n{last}", Style.LAYER),
                _cycles(stage, stage.compute_cycles, compute_mark, clock_hz),
                _cycles(stage, stage.transfer_cycles, transfer_mark, clock_hz),
                TableCell(f"{format_bytes(stage.total_bytes)}, {100 * share:.0f} %", share=share),
            )
        )
    caption = ""
    if origin != Origin.MEASURED:  # the period that devices measured does not follow from the stages' cycles
        period = _period(plan).replace("device", knobs.session.words.unit)
        caption = f"period: {duration(plan.cost_cycles, clock_hz)}, {period}"
    table = Table(_titled("Stages", origin), columns, tuple(rows), caption)
    return table.without("first, last layer") if names is None else table


def _of_cycles(head: str, clock_hz: float | None) -> Column:
    return Column(f"{head}\ncycles" if clock_hz is None else head, "cycles")


def _value(cycles: int, clock_hz: float | None) -> Value:
    return cycles if clock_hz is None else duration(cycles, clock_hz)


def _titled(name: str, origin: str | None) -> str:
    return name if origin is None else f"{name}, {origin}"


def _period(plan: Plan) -> str:
    """The parts of which the period of a plan consists, in words."""
    if plan.host_binds:
        shared = plan.shared_cycles > plan.host_cycles
        return "what all pipelines of a machine move" if shared else "the host's transfers behind the devices"
    return _PERIODS[plan.period]


def _stage(plan: Plan, index: int) -> str:
    """The number of a stage, and in further lines what that does not say: its devices, their kind, recomputation."""
    stage, is_one_each = plan.stages[index], plan.n_devices == len(plan.stages)
    lines = [str(index) if is_one_each else f"{index} on {stage_devices(stage)}"]
    if stage.device_kind:
        lines.append(stage.device_kind)
    if stage.recomputes and not all(each.recomputes for each in plan.stages):
        lines.append("recomputes")
    return "\n".join(lines)


def _cycles(stage: Stage, cycles: int, mark: str, clock_hz: float | None) -> Value:
    """Cycles of one device of a stage; with a mark they are emphasised, because they set the period."""
    value = _value(-(-cycles // stage.n_replicas), clock_hz)
    if not mark:
        return value
    text = f"{value:,}" if isinstance(value, int) else value
    return TableCell(f"{text}\n{mark}", Style.STRONG)


def plans_table(
    title: str, label: str, rows: Iterable[tuple[str, Plan | DoesNotFit]], clock_hz: float | None = None
) -> Table:
    """One row per plan, or per failure with the bytes that are missing."""
    columns = (
        Column(label),
        _of_cycles("cost", clock_hz),
        _of_cycles("compute", clock_hz),
        _of_cycles("transfer", clock_hz),
        Column("peak\nmemory", "peak_memory_bytes"),
        Column("stages begin at layers"),
    )
    cells: list[tuple[Value, ...]] = []
    for name, plan in rows:
        if isinstance(plan, DoesNotFit):
            lacks = "too few positions to cut"
            if plan.excess_bytes:
                lacks = f"does not fit: {format_bytes(plan.excess_bytes)} missing"
            cells.append((name, None, None, None, None, lacks))
        else:
            cycles = (plan.cost_cycles, plan.compute_cycles, plan.transfer_cycles)
            costs = [_value(each, clock_hz) for each in cycles]
            cells.append((name, *costs, plan.peak_memory_bytes, " ".join(map(str, plan.partition[:-1]))))
    return Table(title, columns, tuple(cells))


def explanation_table(explanation: Explanation, plan: Plan, clock_hz: float | None = None) -> Table:
    """One row per cut, with the additional cost if the cut moved to the next legal position on either side."""
    more = _of_cycles("costs more", clock_hz)
    columns = (Column("cut"), Column("earlier"), more, Column("later"), more)
    rows = []
    for cut in explanation.cuts:
        earlier = _move_cells(cut.earlier, plan, clock_hz)
        later = _move_cells(cut.later, plan, clock_hz)
        rows.append((str(cut.layer), *earlier, *later))
    lines = []
    if explanation.compute_stages:
        lines.append(f"compute binds: stage {', '.join(map(str, explanation.compute_stages))}")
    if explanation.transfer_stages:
        lines.append(f"transfer binds: stage {', '.join(map(str, explanation.transfer_stages))}")
    spare = format_bytes(explanation.spare_bytes)
    lines.append(f"least memory to spare: stage {explanation.memory_stage}, {spare}")
    return Table("If one cut moved", columns, tuple(rows), "\n".join(lines))


def _move_cells(move: Move | None, plan: Plan, clock_hz: float | None) -> tuple[str, str]:
    if move is None:
        return "-", "-"
    if move.excess_bytes:
        return str(move.layer), f"{format_bytes(move.excess_bytes)} missing"
    more = move.cost_cycles - plan.cost_cycles
    return str(move.layer), f"{more:+,}" if clock_hz is None else f"+{duration(more, clock_hz)}"


def phases_table(plan: PhasedPlan, origin: Origin | None) -> Table:
    """One row per phase, two lines high: what it runs, its cycles, the rows it loads and stores, its memory.

    The first column of kilocycles has the variables above all steps; the other three are the parts of one step.
    """
    columns = (
        Column("phase\npasses"),
        Column("layers\ngraph(row)"),
        Column("variables\nall steps", "kilocycles"),
        Column("load\nkcycles", "kilocycles"),
        Column("compute\nkcycles", "kilocycles"),
        Column("store\nkcycles", "kilocycles"),
        Column("loads\nstores"),
        Column("memory of\nits limit"),
    )
    rows = []
    for index, (phase, cycles) in enumerate(zip(plan.phases, plan.phase_cycles, strict=True)):
        is_first = phase.layers.start == 0 and phase.kind is not PhaseKind.BACKWARD
        is_last = phase.layers.stop == plan.partition[-1] and phase.kind is PhaseKind.FORWARD
        loads = _rows(phase.loads, "host" if is_first else "-")
        stores = _rows(phase.stores, "host" if is_last else "-")
        rows.append(
            (
                f"{index}\n{_PASSES[phase.kind]}",
                f"{phase.layers}\n{phase.graph}({phase.row})",
                f"{_thousands(phase.variable_cycles)}\n{_thousands(cycles)}",
                _thousands(phase.load_cycles),
                _thousands(phase.compute_cycles),
                _thousands(phase.store_cycles),
                f"{loads}\n{stores}",
                f"{format_bytes(phase.total_bytes)}\n{100 * phase.total_bytes / max(phase.limit_bytes, 1):.0f} %",
            )
        )
    gain = plan.naive_cycles / max(plan.cost_cycles, 1)
    mode = f"{plan.steps} steps, {plan.io_mode}"
    caption = f"{mode}: {plan.cost_cycles:,} cycles; naive loop {plan.naive_cycles:,} ({gain:.2f} times)"
    return Table(_titled("Phases", origin), columns, tuple(rows), caption)


def buffers_table(plan: PhasedPlan) -> Table:
    """One row per buffer in streaming memory: rows are phases, steps are micro-batches."""
    columns = (
        Column("buffer"),
        Column("rows", "n_rows"),
        Column("steps", "n_steps"),
        Column("bytes of\nan entry", "entry_bytes"),
        Column("all", "n_bytes"),
    )
    rows = ((buffer.name, buffer.rows, buffer.steps, buffer.entry_bytes, buffer.n_bytes) for buffer in plan.buffers)
    return Table("Buffers in streaming memory", columns, tuple(rows))


def _thousands(cycles: int) -> str:
    return f"{cycles / 1000:,.0f}"


def _rows(rows: Sequence[BufferRow], if_none: str) -> str:
    return " ".join(map(str, rows)) or if_none
