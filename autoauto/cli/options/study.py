"""Options that name a study: its database, and `requested_study`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from autoauto.records.errors import BadInput

if TYPE_CHECKING:
    from optuna.study import Study

DEFAULT_STORAGE = "sqlite:///studies/autoauto.db"
STUDY_HELP = "a study: its name or the beginning of it (see `autoauto studies`); default: the latest"


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Add the database of the trials."""
    parser.add_argument(
        "--storage", default=DEFAULT_STORAGE, metavar="URL", help="database of the trials; default %(default)s"
    )


def add_study(parser: argparse.ArgumentParser) -> None:
    """Add an existing study, and its database."""
    parser.add_argument("study", nargs="?", metavar="STUDY", help=STUDY_HELP)
    add_storage(parser)


def chosen_name(storage: str, part: str | None) -> str:
    """The full name of a study; one line on stderr says which one where its full name was not given.

    Raises:
        BadInput: no such study or database, or several studies are meant.
    """
    from autoauto.study.store.listing import find_study

    name, why = find_study(storage, part)
    if why:
        print(f"autoauto: study {name} ({why})", file=sys.stderr)
    return name


def requested_study(args: argparse.Namespace) -> Study:
    """The study that the arguments name.

    Raises:
        BadInput: no such study or database, or several studies are meant.
    """
    from autoauto.study.store.study import load_study

    study = load_study(args.storage, chosen_name(args.storage, args.study))
    if "target" not in study.user_attrs:
        raise BadInput(
            f"study {study.study_name!r} does not say what measured it; search anew with another --study-name"
        )
    return study
