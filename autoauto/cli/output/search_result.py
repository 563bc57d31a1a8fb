"""What commands print of a search or a study: its best configuration, its Pareto front, its winner against others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autoauto.cli.output.plans import describe_plan
from autoauto.records.phased import PhasedPlan
from autoauto.records.plan import Plan
from autoauto.records.trial import ExpectedCell

if TYPE_CHECKING:
    from autoauto.records.knobs import Objectives
    from autoauto.records.study_summary import Finalist, StudySummary
    from autoauto.records.timeline import Timeline
    from autoauto.records.trial import Cell, Counts
    from autoauto.study.analysis.best import BestTrial
    from autoauto.study.run import SearchResult


def show_best(
    best: BestTrial, counts: Counts, cells: Sequence[Cell], target: str, names: Sequence[str] | None = None
) -> None:
    """Print the best configuration and its stages; after a search for training also what fits in which cell.

    Args:
        best: the best trial.
        counts: how far the search went.
        cells: of the search; the schedules of training differ in memory.
        target: the version of the target that measured.
        names: of the layers; None when they are not known.
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


def show_front(front: Sequence[BestTrial], counts: Counts, objectives: Objectives, target: str) -> None:
    """Print the Pareto front: no configuration of it is better in one objective without being worse in another."""
    from rich.console import Console

    from autoauto.report.style import measured_by
    from autoauto.report.text.trials import front_table

    rows = [(best.number, best.knobs, best.samples_per_s, best.latency_s, best.values) for best in front]
    Console().print(front_table(rows, objectives, counts, measured_by(target)))


def show_comparisons(summary: StudySummary) -> None:
    """Print the winner of a study against others."""
    from rich.console import Console

    from autoauto.report.text.study_explanation import comparisons_table
    from autoauto.study.analysis.comparisons import study_comparisons

    console = Console()
    console.print()
    console.print(comparisons_table(summary, study_comparisons(summary)))


def describe_result(result: SearchResult, storage: str) -> dict[str, Any]:
    """The result of a search as plain values."""
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
    values = cell._asdict() if isinstance(cell, ExpectedCell) else asdict(cell)
    return asdict(cell.knobs) | {name: value for name, value in values.items() if name != "knobs"}


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


def describe_comparisons(summary: StudySummary) -> dict[str, Any]:
    """The winner against others, and the verification turn by turn, as plain values."""
    from autoauto.study.analysis.comparisons import study_comparisons

    verification = summary.verification
    rows = verification.repeated if verification else ()
    return {
        "compared": [
            comparison._asdict()
            | {
                "knobs": comparison.knobs and asdict(comparison.knobs),
                "speed": comparison.speed and comparison.speed._asdict(),
            }
            for comparison in study_comparisons(summary)
        ],
        "n_repeats": verification.n_repeats if verification else 0,
        "verdict": verification and str(verification.verdict),
        "repeated": [
            row._asdict() | {"knobs": asdict(row.knobs), "speed": row.speed and row.speed._asdict()} for row in rows
        ],
    }


def summary_with_best(study_name: str, storage: str, best: BestTrial) -> StudySummary | None:
    """The summary of a study whose winner is the best of a search; None when the study has a better configuration.

    A study may hold trials of other spaces than the search's.
    """
    from autoauto.study.analysis.summary import summarise_study
    from autoauto.study.store.study import load_study

    summary = summarise_study(load_study(storage, study_name), storage)
    return summary if summary.winner is not None and summary.winner.trial.knobs == best.knobs else None


def finalist_timeline(finalist: Finalist) -> Timeline | None:
    """The measured stages in the order of the schedule; None for phases."""
    from autoauto.schedule.times import timeline_of

    return timeline_of(finalist.trial.knobs, finalist.measured) if isinstance(finalist.measured, Plan) else None
