"""Tell why a study's winner won: against what, what binds it, and why every other cell lost or could not run."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autoauto.cli.options.model import add_json, add_study, load
from autoauto.cli.output.commands_to_copy import commands_of
from autoauto.cli.output.results import describe_compared, print_json
from autoauto.records.errors import Infeasible

if TYPE_CHECKING:
    from autoauto.records.study_summary import CellFindings, Findings, Tried

EXAMPLE = "explain first"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a study and the choice between JSON and tables."""
    add_study(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print why this one, what binds, and why not the others.

    Raises:
        Infeasible: no trial of the study fits; why each cell cannot run is printed all the same.
    """
    from rich.console import Console

    from autoauto.report.text.study_explanation import binding_table, comparisons_table, reasons_table
    from autoauto.study.analysis.comparisons import study_comparisons
    from autoauto.study.analysis.summary import study_findings

    found = study_findings(load(args), args.storage)
    if args.json:
        print_json(describe_findings(found))
    else:
        console = Console()
        if found.winner is not None:
            console.print(comparisons_table(found, study_comparisons(found)))
            console.print(binding_table(found, found.winner))
        console.print(reasons_table(found))
        for name, command in commands_of(found)[:1]:
            console.print(f"{name}: {command}", soft_wrap=True, highlight=False, markup=False)
    if found.winner is None:
        raise Infeasible(f"none of the {len(found.tried)} configurations that were tried fits", 0)
    return 0


def describe_findings(found: Findings) -> dict[str, Any]:
    """Why the winner won, as plain values."""
    from autoauto.report.reasons import what_binds
    from autoauto.report.wording import really_ran

    winner = found.winner
    return {
        "study_name": found.study_name,
        "best": winner and _describe(winner.tried),
        **describe_compared(found),
        "binds": [fact._asdict() for fact in what_binds(winner, really_ran(found))] if winner else [],
        "cells": [_describe_cell(cell, found) for cell in found.cells],
        "commands": [{"name": name, "command": command} for name, command in commands_of(found)],
    }


def _describe_cell(cell: CellFindings, found: Findings) -> dict[str, Any]:
    from autoauto.report.reasons import why_not

    knobs = {name: value for name, value in asdict(cell.knobs).items() if name != "batch_size"}
    return {
        **knobs,
        "n_tried": len(cell.tried),
        "n_measured": cell.n_compiled,
        "largest_batch_size": cell.largest and cell.largest.knobs.batch_size,
        "best_batch_size": cell.best and cell.best.knobs.batch_size,
        "samples_per_s": cell.best.samples_per_s if cell.best else 0.0,
        "loss_percent": found.loss_percent(cell.best) if cell.best else None,
        "why": why_not(cell, found),
    }


def _describe(tried: Tried) -> dict[str, Any]:
    speeds = {"samples_per_s": tried.samples_per_s, "estimated_samples_per_s": tried.estimated_samples_per_s}
    return {"trial": tried.number, **asdict(tried.knobs), **speeds}
