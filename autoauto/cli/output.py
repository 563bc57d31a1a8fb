"""What several commands print: a plan, or why there is none."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autoauto.cli.arguments import describe, describe_plan, print_json
from autoauto.records.errors import DoesNotFit
from autoauto.records.phased import PhasedPlan

if TYPE_CHECKING:
    from autoauto.flow import Flow
    from autoauto.records.plan import Plan
    from autoauto.records.trial import Cell, Counts, Knobs
    from autoauto.search import BestTrial, SearchResult


def show_plan(args: argparse.Namespace, flow: Flow, knobs: Knobs, make_plan: Callable[[], Plan], source: str) -> int:
    """Print the plan that `make_plan` returns, or why nothing fits.

    Returns:
        0, or 3 when nothing fits.
    """
    try:
        plan = make_plan()
    except DoesNotFit as failure:
        return show_infeasible(args, failure)
    if args.json:
        print_json(describe(flow, knobs, plan) | {"source": source})
        return 0
    from rich.console import Console

    from autoauto.report import stages_table

    console = Console()
    console.print(stages_table(plan, flow.names, source))
    timeline = flow.timeline(knobs, plan) if knobs.training else None
    if timeline is not None:
        step = f"a step of {knobs.n_micro_batches} micro-batches, {knobs.schedule}"
        console.print(f"{step}: {timeline.makespan_cycles:,.0f} cycles, simulated")
    console.print(f"throughput: {flow.samples_per_s(knobs, plan, timeline):,.1f} samples/s, {source}")
    return 0


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
    return {
        "best": result.best and describe_best(result.best),
        **result.counts._asdict(),
        "study_name": result.study_name,
        "storage": storage,
        "cells": [asdict(cell.knobs) | _beside_knobs(asdict(cell)) for cell in result.cells],
    }


def _beside_knobs(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "knobs"}


def describe_best(best: BestTrial) -> dict[str, Any]:
    """The best trial as plain values."""
    return {
        **asdict(best.knobs),
        "samples_per_s": best.samples_per_s,
        "estimated_samples_per_s": best.estimated_samples_per_s,
        "makespan_cycles": best.makespan_cycles,
        "value": best.value,
        "trial": best.number,
        **describe_plan(best.measured),
    }


def show_best(best: BestTrial, counts: Counts, cells: Sequence[Cell], names: Sequence[str] | None = None) -> None:
    """Print the best configuration and its stages, with the layers' names where they are known.

    Of a search for training also what fits in which cell: the schedules differ in memory.
    """
    from rich.console import Console

    from autoauto.report import MEASURED, best_table, cells_table, phases_table, stages_table

    console = Console()
    speeds = (best.samples_per_s, best.estimated_samples_per_s)
    console.print(best_table(best.knobs, best.measured, *speeds, counts, best.makespan_cycles))
    console.print()
    if isinstance(best.measured, PhasedPlan):
        console.print(phases_table(best.measured, MEASURED))
    else:
        console.print(stages_table(best.measured, names, MEASURED))
    if best.knobs.training:
        console.print()
        console.print(cells_table(cells))
