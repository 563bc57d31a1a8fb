"""Print a study's trials, for people or for pandas."""

from __future__ import annotations

import argparse
import sys

from autoauto.cli.arguments import add_study, load, positive
from autoauto.records.trial import Objective

EXAMPLE = "trials first --csv > trials.csv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a study and the choice between CSV and a table."""
    add_study(parser)
    parser.add_argument("--csv", action="store_true", help="print all trials as CSV on stdout")
    parser.add_argument("--top", type=positive, default=20, metavar="N", help="rows of the table; default %(default)s")


def run(args: argparse.Namespace) -> int:
    """Print one row a trial."""
    from autoauto.search import trial_table

    study = load(args)
    table = trial_table(study)
    if args.csv:
        table.to_csv(sys.stdout, index=False)
    else:
        from rich.console import Console

        from autoauto.report import trials_table

        Console().print(trials_table(table, args.top, Objective(study.user_attrs["objective"])))
    return 0
