"""The door: `autoauto COMMAND ...`. One file a command; the rooms' libraries load only when a command runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from autoauto import __version__
from autoauto.cli import (
    clusters,
    compare,
    dashboard,
    measure,
    models,
    phased,
    plan,
    predict,
    profile,
    report,
    schedule,
    search,
    trials,
)
from autoauto.records.errors import AutoautoError, BadInput, DoesNotFit

COMMANDS = (
    search,
    profile,
    plan,
    predict,
    measure,
    compare,
    schedule,
    phased,
    report,
    trials,
    dashboard,
    models,
    clusters,
)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, as every other error is told."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 done, 2 bad input, 3 nothing fits, 130 interrupted.
    """
    try:
        args = build_parser().parse_args(argv)
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except AutoautoError as error:
        print(f"autoauto: {error}", file=sys.stderr)
        return 3 if isinstance(error, DoesNotFit) else 2
    except KeyboardInterrupt:
        print(
            "autoauto: interrupted; a search goes on from its finished trials when it is started again", file=sys.stderr
        )
        return 130
    except BrokenPipeError:  # the reader of a pipe (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at exit
        return 0
    except OSError as error:  # a full disk, a device that is gone
        print(f"autoauto: {error}", file=sys.stderr)
        return 2


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; each command's module says what it takes and shows an example."""
    parser = _Parser(
        prog="autoauto",
        description="Find the pipeline configuration with the highest throughput for a model on a cluster of devices.",
        epilog="example: autoauto search resnet50 --cluster bow-2000",
    )
    parser.add_argument("--version", action="version", version=f"autoauto {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2]
        summary = str(command.__doc__)
        subparser = subparsers.add_parser(
            name, help=summary, description=summary, epilog=f"example: autoauto {command.EXAMPLE}"
        )
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser
