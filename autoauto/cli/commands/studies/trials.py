"""Print the trials of a study, for people or for pandas."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from autoauto.cli.commands.studies.study_on_server import show_on_server
from autoauto.cli.options.server import add_server, is_on_server
from autoauto.cli.options.study import add_study, requested_study
from autoauto.cli.options.values import at_most
from autoauto.cli.output.lines import print_json, show
from autoauto.cli.output.search_result import show_outside
from autoauto.records.errors import BadInput, missing_extra
from autoauto.records.target import studied_origin
from autoauto.space.space import MAX_CONFIGURATIONS

if TYPE_CHECKING:
    from pandas import DataFrame

EXAMPLE = "trials first --csv > trials.csv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a study, and the choice between a table and the formats that programs read."""
    add_study(parser)
    add_server(parser, "the trials of a search of")
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--csv", action="store_true", help="print all trials as CSV on stdout")
    formats.add_argument("--json", action="store_true", help="print all trials as one JSON object on stdout")
    formats.add_argument(
        "--parquet", type=Path, metavar="FILE", help="write all trials as a Parquet file (extra parquet)"
    )
    parser.add_argument(
        "--top",
        type=at_most(MAX_CONFIGURATIONS),
        default=20,
        metavar="N",
        help="rows of the table; default %(default)s",
    )


def run(args: argparse.Namespace) -> int:
    """Print or write one row per trial."""
    if is_on_server(args):
        form = next((name for name in ("csv", "json", "parquet") if getattr(args, name)), "text")
        return show_on_server(args, "table", form, args.parquet, top=args.top)
    study = requested_study(args)
    if args.csv or args.json or args.parquet:
        from autoauto.study.store.table import trial_table

        _write(args, study.study_name, trial_table(study))
    else:
        from autoauto.report.tables.trials import trials_table
        from autoauto.study.analysis.best import objectives_of_study, summarise_study
        from autoauto.study.store.database import attributes_of

        summary = summarise_study(study, args.storage, n_finalists=0)
        trials = (*summary.trials, *summary.failures)
        show(trials_table(trials, args.top, objectives_of_study(study), studied_origin(attributes_of(study))))
        show_outside(summary)
    return 0


def _write(args: argparse.Namespace, study_name: str, table: DataFrame) -> None:
    if args.csv:
        table.to_csv(sys.stdout, index=False)
    elif args.json:
        rows = json.loads(table.to_json(orient="records", date_format="iso"))
        print_json({"study_name": study_name, "trials": rows})
    else:
        try:
            table.to_parquet(args.parquet, index=False)
        except ImportError as error:
            raise missing_extra("Parquet", "parquet") from error
        except OSError as error:
            raise BadInput(f"the trials need a file that can be written, got {args.parquet} ({error})") from error
