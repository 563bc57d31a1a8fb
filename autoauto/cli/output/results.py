"""What several commands print: a plan or why there is none, the best of a search, all of it as plain values too."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autoauto.records.errors import DoesNotFit
from autoauto.records.phased import PhasedPlan
from autoauto.records.trial import ExpectedCell

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.records.knobs import Aim, Knobs
    from autoauto.records.plan import Plan
    from autoauto.records.study_summary import Findings
    from autoauto.records.timeline import Run, Timeline
    from autoauto.records.trial import Cell, Counts
    from autoauto.study.analysis.best import BestTrial
    from autoauto.study.run import SearchResult
from typing import TYPE_CHECKING

from autoauto.records.layers import LayerRange

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.records.knobs import Knobs


def print_json(record: dict[str, Any]) -> None:
    """Print one JSON object on stdout."""
    print(json.dumps(record, indent=1))


def show_plan(
    args: argparse.Namespace, flow: Flow, knobs: Knobs, plan: Plan, source: str, run: Run | None = None
) -> int:
    """Print a plan and its throughput; when devices ran it, what they did.

    Returns:
        0.
    """
    really = run if flow.runner is not None else None
    timeline = flow.timeline(knobs, plan) if knobs.training else None
    speed = flow.measured_samples_per_s(knobs, really) if really else flow.samples_per_s(knobs, plan, timeline)
    if args.json:
        record = describe(flow, knobs, plan, speed, timeline) | {"source": source}
        print_json(record | ({} if really is None else describe_run(really)))
        return 0
    from rich.console import Console

    from autoauto.report.text.compare import run_table
    from autoauto.report.text.plans import stages_table

    console = Console()
    console.print(stages_table(plan, flow.names, source))
    if timeline is not None:
        step = f"a step of {knobs.n_micro_batches} micro-batches, {knobs.schedule}"
        console.print(f"{step}: {timeline.makespan_cycles:,.0f} cycles, simulated")
    if really is not None:
        console.print()
        console.print(run_table(really, source))
        latency_s = really.latency_cycles / flow.cluster.devices[0].clock_hz
        console.print(f"a micro-batch every {really.period_cycles:,.0f} cycles, after {latency_s:.4f} s, {source}")
    console.print(f"throughput: {speed:,.1f} samples/s, {source}")
    return 0


def describe(flow: Flow, knobs: Knobs, plan: Plan, samples_per_s: float, timeline: Timeline | None) -> dict[str, Any]:
    """A plan of one configuration as plain values, named as the fields are; `timeline` is that of training."""
    return {
        **describe_flow(flow, knobs),
        "samples_per_s": samples_per_s,
        "makespan_cycles": timeline and timeline.makespan_cycles,
        **describe_plan(plan),
    }


def describe_flow(flow: Flow, knobs: Knobs) -> dict[str, Any]:
    """One configuration of a model on a cluster as plain values."""
    names = {"model": flow.graph.name, "cluster": flow.cluster.name, "precision": str(flow.precision)}
    return names | asdict(knobs)


def describe_plan(plan: Plan | PhasedPlan) -> dict[str, Any]:
    """A plan as plain values."""
    if isinstance(plan, PhasedPlan):
        return describe_phases(plan)
    return {
        "fits": True,
        "overlap": plan.overlap,
        "partition": list(plan.partition),
        "compute_cycles": plan.compute_cycles,
        "transfer_cycles": plan.transfer_cycles,
        "host_cycles": plan.host_cycles,
        "cost_cycles": plan.cost_cycles,
        "stages": [asdict(stage) | {"total_bytes": stage.total_bytes} for stage in plan.stages],
    }


def describe_phases(plan: PhasedPlan) -> dict[str, Any]:
    """Phases and their buffers as plain values."""
    return {
        "fits": True,
        "io_mode": str(plan.io_mode),
        "steps": plan.steps,
        "n_replicas": plan.n_replicas,
        "partition": list(plan.partition),
        "cost_cycles": plan.cost_cycles,
        "naive_cycles": plan.naive_cycles,
        "phases": [
            asdict(phase) | {"total_bytes": phase.total_bytes, "cycles": cycles}
            for phase, cycles in zip(plan.phases, plan.phase_cycles, strict=True)
        ],
        "buffers": [
            asdict(buffer) | {"n_entries": buffer.n_entries, "n_bytes": buffer.n_bytes} for buffer in plan.buffers
        ],
    }


def describe_run(run: Run) -> dict[str, Any]:
    """What devices did, as plain values."""
    return {
        "period_cycles": run.period_cycles,
        "latency_cycles": run.latency_cycles,
        "core_fraction": run.core_fraction,
        "pipelines": [
            {
                "n_micro_batches": timeline.schedule.n_micro_batches,
                "busy_cycles": timeline.busy_cycles,
                "exchange_cycles": timeline.exchange_cycles,
                "bubble_cycles": timeline.bubble_cycles,
            }
            for timeline in run.timelines
        ],
    }


def show_infeasible(args: argparse.Namespace, failure: DoesNotFit) -> int:
    """Print that nothing fits, on stdout as JSON and on stderr as a line, and return 3."""
    if args.json:
        print_json(
            {
                "fits": False,
                "excess_bytes": failure.excess_bytes,
                "layers": failure.layers,
                "memory_bytes": failure.memory_bytes,
                "reason": str(failure),
            }
        )
    print(f"autoauto: {failure}", file=sys.stderr)
    return 3


def describe_result(result: SearchResult, storage: str) -> dict[str, Any]:
    """What came of a search as plain values."""
    from autoauto.study.store.database import shown_storage

    return {
        "best": result.best and describe_best(result.best),
        **({"front": list(map(describe_best, result.front))} if result.front and not result.best else {}),
        **result.counts._asdict(),
        "study_name": result.study_name,
        "storage": shown_storage(storage),
        "cells": [describe_cell(cell) for cell in result.cells],
    }


def describe_cell(cell: Cell | ExpectedCell) -> dict[str, Any]:
    """A cell as plain values, its knobs among them."""
    told = cell._asdict() if isinstance(cell, ExpectedCell) else asdict(cell)
    return asdict(cell.knobs) | {name: value for name, value in told.items() if name != "knobs"}


def describe_best(best: BestTrial) -> dict[str, Any]:
    """The best trial as plain values."""
    return {
        **asdict(best.knobs),
        "samples_per_s": best.samples_per_s,
        "estimated_samples_per_s": best.estimated_samples_per_s,
        "latency_s": best.latency_s,
        "makespan_cycles": best.makespan_cycles,
        "value": best.value,
        "values": best.values,
        "trial": best.number,
        **describe_plan(best.measured),
    }


def describe_compared(found: Findings) -> dict[str, Any]:
    """The winner against others, and what was measured again turn by turn, as plain values."""
    from autoauto.study.analysis.comparisons import study_comparisons

    told = found.verification
    rows = told.repeated if told else ()
    return {
        "compared": [
            one._asdict() | {"knobs": one.knobs and asdict(one.knobs), "speed": one.speed and one.speed._asdict()}
            for one in study_comparisons(found)
        ],
        "n_repeats": told.n_repeats if told else 0,
        "verdict": told and str(told.verdict),
        "repeated": [
            row._asdict() | {"knobs": asdict(row.knobs), "speed": row.speed and row.speed._asdict()} for row in rows
        ],
    }


def findings_of(study_name: str, storage: str, best: BestTrial) -> Findings | None:
    """A study as a whole, where the best of a search is its winner, too; None where that lies outside the space."""
    from autoauto.study.analysis.summary import study_findings
    from autoauto.study.store.study import load_study

    found = study_findings(load_study(storage, study_name), storage)
    return found if found.winner is not None and found.winner.tried.knobs == best.knobs else None


def show_compared(found: Findings) -> None:
    """Print the winner of a study against others."""
    from rich.console import Console

    from autoauto.report.text.study_explanation import comparisons_table
    from autoauto.study.analysis.comparisons import study_comparisons

    console = Console()
    console.print()
    console.print(comparisons_table(found, study_comparisons(found)))


def show_best(
    best: BestTrial, counts: Counts, cells: Sequence[Cell], target: str, names: Sequence[str] | None = None
) -> None:
    """Print the best configuration and its stages, with the layers' names where they are known.

    Of a search for training also what fits in which cell: the schedules differ in memory. `target` is the version of
    the target that measured.
    """
    from rich.console import Console

    from autoauto.report.style import measured_by
    from autoauto.report.text.plans import phases_table, stages_table
    from autoauto.report.text.trials import best_table, cells_table

    console = Console()
    speeds, origin = (best.samples_per_s, best.estimated_samples_per_s), measured_by(target)
    numbers = (*speeds, counts, best.makespan_cycles, origin, best.latency_s)
    console.print(best_table(best.knobs, best.measured, *numbers))
    console.print()
    if isinstance(best.measured, PhasedPlan):
        console.print(phases_table(best.measured, origin))
    else:
        console.print(stages_table(best.measured, names, origin))
    if best.knobs.training:
        console.print()
        console.print(cells_table(cells))


def show_front(front: Sequence[BestTrial], counts: Counts, aim: Aim, target: str) -> None:
    """Print the configurations that no other beats in one objective without losing in another."""
    from rich.console import Console

    from autoauto.report.style import measured_by
    from autoauto.report.text.trials import front_table

    rows = [(best.number, best.knobs, best.samples_per_s, best.latency_s, best.values) for best in front]
    Console().print(front_table(rows, aim, counts, measured_by(target)))


def tell_unbounded(flow: Flow, knobs: Knobs) -> None:
    """Name the layers that were planned without the bound, as Poplar warns when it does so; say nothing without any."""
    names = unbounded(flow, knobs)
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        print(
            f"autoauto: no plan of {names[0]}{more} meets memory proportion {knobs.memory_proportion:g}, so the bound "
            "was dropped there; try a larger --memory-proportion or a smaller --batch-size",
            file=sys.stderr,
        )


def unbounded(flow: Flow, knobs: Knobs) -> list[str]:
    """The layers of which a product does not meet the bound on temporary memory."""
    from autoauto.targets.ipu.target import IpuTarget, works_of

    if not isinstance(flow.target, IpuTarget):
        return []
    layers = LayerRange(0, len(flow.graph))
    works = works_of(flow.graph, layers, flow.cluster.devices[0], flow.options(knobs), flow.target.settings)
    return [name for name, work in zip(flow.names, works, strict=True) if not work.within_bound]
