"""Explain why the winner of a study won, and others lost.

It says what limits the winner, and why every other cell lost or cannot run.
"""

from __future__ import annotations

import argparse
from typing import Any

from autoauto.cli.commands.studies.commands_to_copy import commands_of
from autoauto.cli.commands.studies.study_on_server import show_on_server
from autoauto.cli.options.server import add_server, is_on_server
from autoauto.cli.options.study import add_study, requested_study, summary_to_report
from autoauto.cli.output.lines import add_json, print_json, show, show_command
from autoauto.cli.output.plans import show_price
from autoauto.cli.output.search_result import (
    describe_comparisons,
    describe_speed,
    show_choices,
    show_engines,
    show_outside,
    show_uses_of,
)
from autoauto.records.errors import Infeasible
from autoauto.report.reasons import BindingFact, what_binds, why_not
from autoauto.report.wording import origin_of, ran_on_devices, shown_clock
from autoauto.space.study_summary import StudySummary
from autoauto.space.table import own_values, speed_values
from autoauto.space.trial import Cell

EXAMPLE = "explain first"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a study, and the choice between JSON and tables."""
    add_study(parser)
    add_server(parser, "the explanation of a search of")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the winner against others, what limits it, and why every other cell lost.

    Raises:
        Infeasible: no trial of the study fits; the reason of each cell is printed nevertheless.
    """
    if is_on_server(args):
        return show_on_server(args, "explain", "json" if args.json else "text")
    from autoauto.report.tables.study import binding_table, comparisons_table, reasons_table
    from autoauto.study.analysis.comparisons import study_comparisons, with_best_use

    summary = summary_to_report(args, requested_study(args))
    if args.json:
        print_json(_describe(summary))
    else:
        if summary.winner is not None:
            if not summary.of_several:
                show_uses_of(summary)
                show_engines(summary)
                show_price(summary.winner.result, summary.winner.knobs)
            compared = with_best_use(study_comparisons(summary))
            binds = binding_table(
                summary.winner, origin_of(summary), summary.transferred, shown_clock(summary), summary.rate_curves
            )
            show_choices(summary)
            show(comparisons_table(summary, compared), binds)
        show(reasons_table(summary))
        show_outside(summary)
        for name, command in commands_of(summary)[:1]:
            show_command(name, command)
    if summary.winner is None:
        raise Infeasible(f"none of the {len(summary.trials)} configurations that were tried fits", 0)
    return 0


def _describe(summary: StudySummary) -> dict[str, Any]:
    from autoauto.report.tables.traffic import load_facts

    winner, clock_hz = summary.winner, shown_clock(summary)
    binds: list[BindingFact] = []
    if winner:
        binds += what_binds(winner, ran_on_devices(summary), summary.transferred, clock_hz)
        binds += load_facts(winner, summary.rate_curves)
    return {
        "study_name": summary.study_name,
        "best": winner and {"trial": winner.number, **own_values(winner.knobs), **describe_speed(winner)},
        "assumed": list(summary.notes),
        **describe_comparisons(summary),
        "binds": [fact._asdict() for fact in binds],
        "cells": [_describe_cell(cell, summary) for cell in summary.cells],
        "commands": [{"name": name, "command": command} for name, command in commands_of(summary)],
    }


def _describe_cell(cell: Cell, summary: StudySummary) -> dict[str, Any]:
    knobs = {name: value for name, value in own_values(cell.knobs).items() if name != "batch_size"}
    return {
        **knobs,
        "n_tried": len(cell.trials),
        "n_measured": cell.n_measured,
        "largest_batch_size": cell.largest and cell.largest.knobs.batch_size,
        "best_batch_size": cell.best and cell.best.knobs.batch_size,
        **speed_values(cell.knobs, cell.best.samples_per_s if cell.best else 0.0),
        "loss_percent": summary.loss_percent(cell.best) if cell.best else None,
        "why": why_not(cell, summary),
    }
