"""Print what a study found: the best configuration, its stages, its top trials."""

from __future__ import annotations

import argparse

from autoauto.cli.arguments import add_json, add_study, load, print_json
from autoauto.cli.output import describe_best, show_best
from autoauto.records.errors import Infeasible
from autoauto.records.trial import Objective

EXAMPLE = "report first"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a study and the choice between JSON and tables."""
    add_study(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the best of the study's trials.

    Raises:
        Infeasible: no trial of the study fits.
    """
    from rich.console import Console

    from autoauto.report import trials_table
    from autoauto.search import best_trial, count_trials, study_cells, trial_table

    study = load(args)
    best = best_trial(study)
    if args.json:
        print_json({"best": best and describe_best(best), "study_name": study.study_name, "storage": args.storage})
    if best is None:
        raise Infeasible(f"no finished trial of {study.study_name} fits; `autoauto trials` shows why", 0)
    if not args.json:
        show_best(best, count_trials(study), study_cells(study))
        Console().print(trials_table(trial_table(study), 5, Objective(study.user_attrs["objective"])))
    return 0
