"""List the studies of a database, the newest first.

Their models, answers, trials and states.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from autoauto.cli.commands.studies.study_on_server import studies_on_server
from autoauto.cli.options.server import add_server, is_on_server
from autoauto.cli.options.study import add_storage
from autoauto.cli.output.lines import add_json, print_json, show
from autoauto.report.wording import stored_unit

if TYPE_CHECKING:
    from autoauto.study.store.study import StoredStudy

EXAMPLE = "studies --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a database, and the choice between JSON and a table."""
    add_storage(parser)
    add_server(parser, "the searches of")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print one row per study."""
    if is_on_server(args):
        rows = studies_on_server(args)
    else:
        from autoauto.study.store.study import list_studies

        rows = [_row(study) for study in list_studies(args.storage)]
    if args.json:
        print_json({"studies": rows})
    else:
        from autoauto.report.tables.listings import studies_table

        show(studies_table(rows, datetime.now(UTC)))
    return 0


def _row(study: StoredStudy) -> dict[str, Any]:
    attributes = study.attributes
    named = {name: attributes.get(name) for name in ("model", "cluster", "target", "objective")}
    is_text = attributes.get("mode") == "generation"
    ended = study.last_trial and study.last_trial.isoformat(timespec="seconds")
    return {
        "name": study.name,
        **named,
        "values": study.values,
        "unit": stored_unit(attributes["objective"], attributes.get("target", ""), is_text=is_text),
        "n_trials": study.n_trials,
        "last_trial": ended,
        "state": study.state,
    }
