"""The command line, `main`: one file per command; the libraries of a command are imported when it runs."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType

from autoauto import __version__
from autoauto.cli import completion
from autoauto.cli.commands import (
    clusters,
    compare,
    inspect,
    measure,
    models,
    phased,
    plan,
    predict,
    profile,
    schedule,
)
from autoauto.cli.commands.artifacts import bench, export, serve
from autoauto.cli.commands.studies import dashboard, explain, report, search, server, studies, trials, worker
from autoauto.cli.options.parser import Parser
from autoauto.cli.output.lines import warn
from autoauto.cli.output.log import write_event
from autoauto.cli.search_config import parse_with_config
from autoauto.records.errors import AutoautoError

GROUPS: Mapping[str, tuple[ModuleType, ...]] = {
    "find": (search, explain, report, trials, studies, dashboard),
    "put to use": (export, serve, bench, server),
    "look": (inspect, models, clusters, profile),
    "one configuration": (plan, predict, measure, compare),
    "more": (schedule, phased, worker, completion),
}
"""The commands, in the groups of the help, by what a person wants."""
COMMANDS = tuple(command for group in GROUPS.values() for command in group)
INTERRUPTED = 130  # the exit code that shells use for SIGINT
MAX_COLUMNS = "9999"
"""Lines are filled up to the width of the terminal."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 done, 2 bad input, 3 nothing fits, 130 interrupted.
    """
    _limit_columns()
    args: argparse.Namespace | None = None
    try:
        try:
            args = parse_with_config(build_parser(), argv)
            return int(args.run(args))
        finally:  # also after --help, which raises SystemExit
            sys.stdout.flush()
    except AutoautoError as error:
        return _fail(args, str(error), error.exit_code)
    except KeyboardInterrupt:
        is_search = args is None or args.run in (search.run, worker.run)
        hint = "; a search continues from its finished trials when it is started again" if is_search else ""
        return _fail(args, f"interrupted{hint}", INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe (`| head`) has seen enough
        _drop_output()
        return 0
    except OSError as error:  # a full disk, a device that is gone
        _drop_output()
        return _fail(args, _failed_file(error), 2)


def _failed_file(error: OSError) -> str:
    """What failed, the file where it is known, and what to try."""
    what = error.strerror or str(error)
    name = error.filename if error.filename is not None else "the output" if error.errno in _OF_OUTPUT else ""
    return "; ".join(filter(None, [f"{name}: {what}" if name else what, _HINTS.get(error.errno or 0, "")]))


_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of a full disk or a device that is gone; where they name no file, they are of stdout."""
_HINTS = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "free some space, or write elsewhere",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close files of other programs",
}


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; each command's module adds its arguments and has an example."""
    parser = Parser(
        prog="autoauto",
        description="Find the pipeline configuration with the highest throughput for a model on a cluster of devices.",
        epilog="autoauto search resnet50 --cluster bow-2000",
    )
    parser.add_argument("--version", action="version", version=f"autoauto {__version__}")
    parser.set_defaults(program=parser, main=main)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for title, commands in GROUPS.items():
        parser.command_groups[title] = tuple(map(_name, commands))
        for command in commands:
            summary, _, details = str(command.__doc__).partition("\n")
            description, example = f"{summary} {details}".strip(), f"autoauto {command.EXAMPLE}"
            subparser = subparsers.add_parser(_name(command), help=summary, description=description, epilog=example)
            command.add_arguments(subparser)
            subparser.set_defaults(run=command.run)
    return parser


def _name(command: ModuleType) -> str:
    return command.__name__.rpartition(".")[2]


def _limit_columns() -> None:
    """Bound the width of the terminal that COLUMNS names, and leave it out where it is none."""
    columns = os.environ.pop("COLUMNS", "").lstrip("0")
    if columns.isascii() and columns.isdecimal():
        os.environ["COLUMNS"] = columns if len(columns) <= len(MAX_COLUMNS) else MAX_COLUMNS


def _drop_output() -> None:
    """Where the rest of the output cannot be written, lead it nowhere, or Python complains when it flushes at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(args: argparse.Namespace | None, message: str, code: int) -> int:
    """Print in one line why there is no answer; with --log json as an event."""
    if getattr(args, "log", None) == "json":
        write_event("end", exit_code=code, error=message)
    else:
        warn(message)
    return code
