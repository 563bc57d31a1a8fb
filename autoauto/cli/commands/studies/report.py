"""Show the result of a study, with --html as a page.

The best configuration, its stages, its top trials.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from autoauto.cli.commands.studies.commands_to_copy import commands_of
from autoauto.cli.commands.studies.study_on_server import show_on_server
from autoauto.cli.options.server import add_server, is_on_server
from autoauto.cli.options.study import add_study, requested_study, require_trials, summary_to_report
from autoauto.cli.output.lines import add_json, print_json, show, warn
from autoauto.cli.output.search_result import (
    describe_best,
    describe_comparisons,
    show_best,
    show_choices,
    show_comparisons,
    show_engines,
    show_front,
    show_outside,
    show_uses_of,
    simulated_timeline,
)
from autoauto.records.errors import BadInput, Infeasible
from autoauto.report.wording import origin_of, shown_clock
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Trial

EXAMPLE = "report first --html first.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a study, the choice between JSON and tables, and a file for the page."""
    add_study(parser)
    add_server(parser, "the report of a search of")
    add_json(parser)
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the result of the study as one page that needs no network"
    )


def run(args: argparse.Namespace) -> int:
    """Print the best of the study's trials; write the page when --html is given."""
    if is_on_server(args):
        return show_on_server(args, "report", *_form(args))
    from autoauto.report.tables.trials import trials_table
    from autoauto.study.analysis.best import counts_of, front_of, objectives_of_study
    from autoauto.study.store.trials import with_plans

    study = requested_study(args)
    summary = summary_to_report(args, study)
    if args.html:
        from autoauto.report.html import study_page, write_page
        from autoauto.study.analysis.comparisons import study_comparisons

        timeline = simulated_timeline(summary.winner) if summary.winner else None
        page = study_page(require_trials(summary), study_comparisons(summary), timeline, commands_of(summary))
        write_page(page, args.html)
        warn(f"wrote {args.html}")
    objectives = objectives_of_study(study)
    best, front = None, []
    if summary.winner is not None and not summary.of_several:
        best = summary.winner
    else:
        trials = {trial.knobs: trial for trial in summary.trials}
        front = [with_plans(study, trial) for trial in front_of(trials, objectives)]
    if args.json:
        print_json(_describe(args, summary, best, front))
    if best is None and not front:
        raise Infeasible(f"no finished trial of {study.study_name} fits; `autoauto explain` says why", 0)
    if not args.json:
        origin, counts = origin_of(summary), counts_of(summary.trials)
        if best is not None:
            show_uses_of(summary)
            show_engines(summary)
            show_best(best, counts, summary.cells, origin, clock_hz=shown_clock(summary))
            show_choices(summary)
            show_comparisons(summary)
            print()
        else:
            show_front(front, counts, objectives, origin)
        show_outside(summary)
        show(trials_table((*summary.trials, *summary.failures), 5, objectives, origin))
    return 0


def _describe(
    args: argparse.Namespace, summary: StudySummary, best: Trial | None, front: list[Trial]
) -> dict[str, Any]:
    from autoauto.study.store.database import shown_storage

    described: dict[str, Any] = {"best": None}
    if best is not None:
        described = {"best": describe_best(best)}
    elif front:
        described = {"front": list(map(describe_best, front))}
    described |= {"assumed": list(summary.notes), "study_name": summary.study_name}
    return described | {"storage": shown_storage(args.storage)} | describe_comparisons(summary)


def _form(args: argparse.Namespace) -> tuple[str, Path | None]:
    """The form in which a server reports, and the file for it; None for stdout."""
    if args.html and args.json:
        raise BadInput("a server gives one form at a time, got --json and --html; leave one out")
    if args.html:
        return "html", args.html
    return ("json" if args.json else "text"), None
