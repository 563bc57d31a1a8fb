"""List the studies of a database, the newest first.

Their models, answers, trials and states.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from autoauto.cli.commands.studies.study_on_server import studies_on_server
from autoauto.cli.options.server import add_server, is_on_server
from autoauto.cli.options.study import add_storage
from autoauto.cli.output.lines import add_json, print_json, show

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
    rows = studies_on_server(args) if is_on_server(args) else _studies(args.storage)
    if args.json:
        print_json({"studies": rows})
    else:
        from autoauto.report.tables.listings import studies_table

        show(studies_table(rows, datetime.now(UTC)))
    return 0


def _studies(storage: str) -> list[dict[str, Any]]:
    from autoauto.study.store.study import list_studies

    return [_row(study) for study in list_studies(storage)]


def _unit(attributes: Mapping[str, str]) -> str:
    """The unit of the first value of a study."""
    from autoauto.report.wording import stored_unit

    is_text = attributes.get("mode") == "generation"
    return stored_unit(attributes["objective"], attributes.get("target", ""), is_text=is_text)


def _row(study: StoredStudy) -> dict[str, Any]:
    named = {name: study.attributes.get(name) for name in ("model", "cluster", "target", "objective")}
    ended = study.last_trial and study.last_trial.isoformat(timespec="seconds")
    return {
        "name": study.name,
        **named,
        "values": study.values,
        "unit": _unit(study.attributes),
        "n_trials": study.n_trials,
        "last_trial": ended,
        "state": study.state,
    }
