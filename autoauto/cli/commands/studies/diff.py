"""Compare two studies.

It says what the best of each gives, which knobs differ, and what was asked for otherwise. Searches of a server are
named by their ids there.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from autoauto.cli.commands.studies.study_on_server import difference_on_server
from autoauto.cli.options.server import add_server, is_on_server
from autoauto.cli.options.study import STUDY_HELP, add_storage, chosen_name
from autoauto.cli.output.lines import add_json, print_json, show

if TYPE_CHECKING:
    from autoauto.report.tables.two_searches import ComparedSearch

EXAMPLE = "diff first second"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add two studies, and the choice between JSON and tables."""
    parser.add_argument("study", metavar="STUDY", help=STUDY_HELP.partition("; default")[0])
    parser.add_argument("other", metavar="OTHER", help="another one")
    add_storage(parser)
    add_server(parser, "two searches of")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print what both gave side by side."""
    if is_on_server(args):
        return difference_on_server(args)
    from autoauto.report.tables.two_searches import compared_rows, comparison_tables

    pair = [_compared(args.storage, name) for name in (args.study, args.other)]
    if args.json:
        rows = compared_rows(*pair)
        print_json({title: [row._asdict() for row in some] for title, some in rows.items()})
        return 0
    for table in comparison_tables(*pair):
        show(table if table.rows else f"{table.title}: nothing, it is the same")
    return 0


def _compared(storage: str, name: str) -> ComparedSearch:
    from autoauto.report.tables.two_searches import ComparedSearch
    from autoauto.space.requests.request import SearchRequest
    from autoauto.study.analysis.asked import asked_of
    from autoauto.study.analysis.best import summarise_study
    from autoauto.study.store.study import REQUEST, load_study

    summary = summarise_study(load_study(storage, chosen_name(storage, name)), storage)
    stored = summary.attributes.get(REQUEST)
    asked = asked_of(SearchRequest.from_json(stored)) if stored else {}
    return ComparedSearch(summary, {"study": summary.study_name, "trials": f"{len(summary.trials):,}"}, asked)
