"""The command line, `main`: one file per command; the libraries of a command are imported when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from autoauto import __version__
from autoauto.cli import completion
from autoauto.cli.commands import clusters, compare, export, measure, models, phased, plan, predict, profile, schedule
from autoauto.cli.commands.studies import dashboard, explain, report, search, trials, worker
from autoauto.cli.config.search_config import parse_with_config
from autoauto.cli.options.parser import Parser
from autoauto.cli.output.log import write_event
from autoauto.records.errors import AutoautoError, DoesNotFit

COMMANDS = (
    search,
    worker,
    profile,
    plan,
    predict,
    measure,
    compare,
    export,
    schedule,
    phased,
    report,
    explain,
    trials,
    dashboard,
    models,
    clusters,
    completion,
)
INTERRUPTED = 130  # the exit code that shells use for SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 done, 2 bad input, 3 nothing fits, 130 interrupted.
    """
    if not os.environ.get("COLUMNS", "1").strip("0"):  # "0" or nothing: the width is not known
        del os.environ["COLUMNS"]
    args: argparse.Namespace | None = None
    try:
        args = parse_with_config(build_parser(), argv)
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except AutoautoError as error:
        return _fail(args, str(error), 3 if isinstance(error, DoesNotFit) else 2)
    except KeyboardInterrupt:
        is_search = args is None or args.run in (search.run, worker.run)
        hint = "; a search continues from its finished trials when it is started again" if is_search else ""
        return _fail(args, f"interrupted{hint}", INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at exit
        return 0
    except OSError as error:  # a full disk, a device that is gone
        return _fail(args, str(error), 2)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; each command's module adds its arguments and has an example."""
    parser = Parser(
        prog="autoauto",
        description="Find the pipeline configuration with the highest throughput for a model on a cluster of devices.",
        epilog="autoauto search resnet50 --cluster bow-2000",
    )
    parser.add_argument("--version", action="version", version=f"autoauto {__version__}")
    parser.set_defaults(program=parser)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2]
        summary = str(command.__doc__)
        subparser = subparsers.add_parser(name, help=summary, description=summary, epilog=f"autoauto {command.EXAMPLE}")
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


def _fail(args: argparse.Namespace | None, message: str, code: int) -> int:
    """Print in one line why there is no answer; with --log json as an event."""
    if getattr(args, "log", None) == "json":
        write_event("end", exit_code=code, error=message)
    else:
        print(f"autoauto: {message}", file=sys.stderr)
    return code
