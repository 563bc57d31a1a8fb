"""A plan as values that a trial's attributes hold, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from autoauto.records.layers import LayerRange
from autoauto.records.phased import BufferLayout, BufferRow, IoMode, Phase, PhasedPlan, PhaseKind
from autoauto.records.plan import Plan, Stage


def describe_stages(plan: Plan | PhasedPlan) -> list[dict[str, Any]]:
    """Stage by stage, or phase by phase: all fields, and the memory over all categories."""
    parts: Sequence[Stage | Phase] = plan.stages if isinstance(plan, Plan) else plan.phases
    return [{**asdict(part), "total_bytes": part.total_bytes} for part in parts]


def describe_plan(plan: Plan | PhasedPlan) -> dict[str, Any]:
    """What is not told stage by stage; `overlap` and `host_cycles` only where they matter."""
    partition = {"partition": list(plan.partition)}
    if isinstance(plan, Plan):
        told: dict[str, Any] = {"overlap": plan.overlap, "host_cycles": plan.host_cycles}
        return partition | {name: value for name, value in told.items() if value}
    phased = asdict(plan)
    del phased["phases"]
    return partition | {"phased": phased}


def plan_of(attributes: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> Plan | PhasedPlan:
    """The plan that a trial's attributes, and of them `stages` or `estimated_stages`, describe."""
    if "phased" not in attributes:
        found = tuple(Stage(**_fields(Stage, stage)) for stage in stages)
        return Plan(found, attributes.get("overlap", False), attributes.get("host_cycles", 0))
    told = attributes["phased"]
    phases = tuple(map(_phase, stages))
    io_mode, steps = IoMode(told["io_mode"]), told["steps"]
    known = {
        "io_mode": io_mode,
        "buffers": tuple(BufferLayout(**buffer) for buffer in told["buffers"]),
        "phase_cycles": tuple(phase.cycles(io_mode, steps) for phase in phases),
        "naive_cycles": steps * sum(phase.variable_cycles + phase.step_cycles for phase in phases),
    }
    return PhasedPlan(phases=phases, **{**told, **known})


def _phase(row: Mapping[str, Any]) -> Phase:
    rows = {name: tuple(BufferRow(*place) for place in row[name]) for name in ("loads", "stores")}
    return Phase(**{**_fields(Phase, row), **rows, "kind": PhaseKind(row["kind"])})


def _fields(noun: type[Stage | Phase], row: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name: row[field.name] for field in fields(noun)}
    return {**known, "layers": LayerRange(*row["layers"])}
