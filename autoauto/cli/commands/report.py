"""Tell what a study found: the best configuration, its stages, its top trials; as a page, all of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from autoauto.cli.options.model import add_json, add_study, load
from autoauto.cli.output.commands_to_copy import commands_of
from autoauto.cli.output.results import (
    describe_best,
    describe_compared,
    print_json,
    show_best,
    show_compared,
    show_front,
)
from autoauto.records.errors import Infeasible
from autoauto.records.plan import Plan

if TYPE_CHECKING:
    from autoauto.records.study_summary import Contender, Findings
    from autoauto.records.timeline import Timeline

EXAMPLE = "report first --html first.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a study, the choice between JSON and tables, and a file for the page."""
    add_study(parser)
    add_json(parser)
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write all that the study found as one page that needs no network"
    )


def run(args: argparse.Namespace) -> int:
    """Print the best of the study's trials; write the page when it is asked for.

    Raises:
        Infeasible: no trial of the study fits.
    """
    from rich.console import Console

    from autoauto.report.style import measured_by
    from autoauto.report.text.trials import trials_table
    from autoauto.study.analysis.best import aim_of_study, best_trial, count_trials, pareto_front
    from autoauto.study.analysis.summary import study_cells, study_findings
    from autoauto.study.store.database import shown_storage
    from autoauto.study.store.table import trial_table

    study = load(args)
    found = study_findings(study, args.storage)
    if args.html:
        _write_page(found, args.html)
    aim, best, front = aim_of_study(study), best_trial(study), pareto_front(study)
    if args.json:
        told = {"best": best and describe_best(best), "front": list(map(describe_best, front))}
        del told["best" if best is None and front else "front"]
        named = {"study_name": study.study_name, "storage": shown_storage(args.storage)}
        print_json({**told, **named, **describe_compared(found)})
    if not front:
        raise Infeasible(f"no finished trial of {study.study_name} fits; `autoauto explain` says why", 0)
    if not args.json:
        target = study.user_attrs["target"]
        if best is not None:
            show_best(best, count_trials(study), study_cells(study), target)
            show_compared(found)
            print()
        else:
            show_front(front, count_trials(study), aim, target)
        Console().print(trials_table(trial_table(study), 5, aim, measured_by(target)))
    return 0


def _write_page(found: Findings, path: Path) -> None:
    from autoauto.report.html.page import study_page, write_study_page
    from autoauto.study.analysis.comparisons import study_comparisons

    write_study_page(study_page(found, study_comparisons(found), winner_timeline(found), commands_of(found)), path)


def winner_timeline(found: Findings) -> Timeline | None:
    """The winner's stages in the order of its schedule; None for phases, and when nothing fits."""
    return None if found.winner is None else contender_timeline(found.winner)


def contender_timeline(contender: Contender) -> Timeline | None:
    """The stages in the order of the schedule; None for phases."""
    from autoauto.schedule.times import timeline_of

    return timeline_of(contender.tried.knobs, contender.measured) if isinstance(contender.measured, Plan) else None
