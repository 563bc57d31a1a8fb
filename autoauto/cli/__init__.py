"""The door: `autoauto COMMAND ...`. One file a command; the rooms' libraries load only when a command runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from autoauto import __version__
from autoauto.cli import (
    clusters,
    compare,
    dashboard,
    measure,
    models,
    plan,
    predict,
    profile,
    report,
    search,
    trials,
)
from autoauto.records.errors import AutoautoError, DoesNotFit

COMMANDS = (search, profile, plan, predict, measure, compare, report, trials, dashboard, models, clusters)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 done, 2 bad input, 3 nothing fits, 130 interrupted.
    """
    args = build_parser().parse_args(argv)
    try:
        return int(args.run(args))
    except AutoautoError as error:
        print(f"autoauto: {error}", file=sys.stderr)
        return 3 if isinstance(error, DoesNotFit) else 2
    except KeyboardInterrupt:
        print("autoauto: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe (`| head`) has seen enough
        sys.stderr.close()
        return 0


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; each command's module says what it takes and shows an example."""
    parser = argparse.ArgumentParser(
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
