"""Options that name a study: its database, and `requested_study`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from autoauto.records.errors import BadInput

if TYPE_CHECKING:
    from optuna.study import Study

DEFAULT_STORAGE = "sqlite:///studies/autoauto.db"


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Add the database of the trials."""
    parser.add_argument(
        "--storage", default=DEFAULT_STORAGE, metavar="URL", help="database of the trials; default %(default)s"
    )


def add_study(parser: argparse.ArgumentParser) -> None:
    """Add the name of an existing study, and its database."""
    parser.add_argument("study", metavar="STUDY", help="name of the study, as `autoauto search` printed it")
    add_storage(parser)


def requested_study(args: argparse.Namespace) -> Study:
    """The study that the arguments name.

    Raises:
        BadInput: no such study or database.
    """
    from autoauto.study.store.study import load_study

    study = load_study(args.storage, args.study)
    if "target" not in study.user_attrs:
        raise BadInput(f"study {args.study!r} does not say what measured it; search anew with another --study-name")
    return study
