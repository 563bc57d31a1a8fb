"""The command line, `main`: one file per command; the libraries of a command are imported when it runs."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType

from autoauto import __version__
from autoauto.records.errors import AutoautoError

_STUDIES, _ARTIFACTS, _PROGRAMS = "commands.studies", "commands.artifacts", "commands.programs"
GROUPS: Mapping[str, Mapping[str, str]] = {
    "find": dict.fromkeys(("search", "rank", "explain", "report", "trials", "diff", "studies", "dashboard"), _STUDIES),
    "put to use": {**dict.fromkeys(("export", "serve", "bench"), _ARTIFACTS), "server": _STUDIES, "mcp": "commands"},
    "look": dict.fromkeys(("inspect", "models", "clusters", "profile"), "commands"),
    "one configuration": dict.fromkeys(("plan", "predict", "measure", "compare", "measured"), "commands"),
    "more": {**dict.fromkeys(("schedule", "phased", "program"), _PROGRAMS), "worker": _STUDIES, "completion": ""},
}
"""The commands, in the groups of the help, by what a person wants, each with the folder of its module."""
COMMANDS = {name: folder for group in GROUPS.values() for name, folder in group.items()}
_OF_ALL = ("completion",)  # commands that ask what the others are
_CONTINUED = ("search", "worker")
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
    argv = sys.argv[1:] if argv is None else argv
    try:
        try:
            if list(argv) == ["--version"]:  # without the parsers of all commands
                print(f"autoauto {__version__}")
                return 0
            args = parsed(build_parser(*argv[:1]), argv)
            return int(args.run(args))
        finally:  # also after --help, which raises SystemExit
            sys.stdout.flush()
    except AutoautoError as error:
        return _fail(args, str(error), error.exit_code)
    except KeyboardInterrupt:
        is_search = args is None or args.run.__module__.endswith(_CONTINUED)
        hint = "; a search continues from its finished trials when it is started again" if is_search else ""
        return _fail(args, f"interrupted{hint}", INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe (`| head`) has seen enough
        _drop_output()
        return 0
    except OSError as error:  # a full disk, a device that is gone
        _drop_output()
        return _fail(args, _failed_file(error), 2)


def _failed_file(error: OSError) -> str:
    """A message with the file, if it is known, what failed, and what to try."""
    message = error.strerror or str(error)
    if error.filename is not None:
        message = f"{error.filename}: {message}"
    elif error.errno in _OF_OUTPUT:
        message = f"the output: {message}"
    hint = _HINTS.get(error.errno or 0)
    return f"{message}; {hint}" if hint else message


_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of a full disk or a device that is gone; where they name no file, they are of stdout."""
_HINTS = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "free some space, or write elsewhere",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close files of other programs",
}


def parsed(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command, with those of a --config file as defaults.

    Raises:
        BadInput: an argument is wrong, or a value in the file; then the message names its line.
    """
    args = parser.parse_args(argv)
    if getattr(args, "config", None) is not None:
        from autoauto.cli.search_config import config_values
        from autoauto.records.files.toml import read_toml

        args.parser.set_defaults(**config_values(read_toml(args.config), args.parser))
        args = parser.parse_args(argv)  # what was typed wins over the new defaults
    return args


def build_parser(only: str = "") -> argparse.ArgumentParser:
    """The parser of all commands, or of one, so that others are not imported: each module adds its arguments."""
    from autoauto.cli.options.parser import Parser

    parser = Parser(
        prog="autoauto",
        description="Find the pipeline configuration with the highest throughput for a model on a cluster of devices.",
        epilog="autoauto search resnet50 --cluster bow-2000",
    )
    parser.add_argument("--version", action="version", version=f"autoauto {__version__}")
    parser.set_defaults(program=parser, main=main)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    parser.command_groups.update((title, tuple(names)) for title, names in GROUPS.items())
    is_alone = only in COMMANDS and only not in _OF_ALL
    for name in [only] if is_alone else COMMANDS:
        command = module_of(name)
        summary, _, details = str(command.__doc__).partition("\n")
        description, example = f"{summary} {details}".strip(), f"autoauto {command.EXAMPLE}"
        subparser = subparsers.add_parser(name, help=summary, description=description, epilog=example)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


def module_of(name: str) -> ModuleType:
    """The module of a command."""
    folder = COMMANDS[name]
    return import_module(f"autoauto.cli.{folder}.{name}" if folder else f"autoauto.cli.{name}")


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
        from autoauto.cli.output.log import write_event

        write_event("end", exit_code=code, error=message)
    else:
        from autoauto.cli.output.lines import warn

        warn(message)
    return code
