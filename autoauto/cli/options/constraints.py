"""What must hold of what is searched: the options, and the constraints that they are."""

from __future__ import annotations

import argparse

from autoauto.cli.options.numbers import positive_number
from autoauto.records.constraint import KNOB_NAMES, RESULT_NAMES, Constraint
from autoauto.records.errors import BadInput


def add_constraints(parser: argparse.ArgumentParser) -> None:
    """Take expressions, and the one that is wanted most."""
    parser.add_argument(
        "--constraint",
        type=constraint_text,
        action="append",
        dest="constraints",
        metavar="EXPR",
        help=f'what must hold, for example "n_ipu * replicas <= 16", of {", ".join((*KNOB_NAMES, *RESULT_NAMES))}; '
        "may be given several times",
    )
    parser.add_argument(
        "--max-latency-s",
        type=positive_number,
        metavar="S",
        help='the same as --constraint "latency_s <= S": seconds from a micro-batch\'s entry to its result',
    )


def constraints_of(args: argparse.Namespace) -> tuple[Constraint, ...]:
    """All constraints that the arguments name, each once; none where a command takes none."""
    texts = list(getattr(args, "constraints", None) or ())
    if getattr(args, "max_latency_s", None) is not None:
        texts.append(f"latency_s <= {args.max_latency_s!r}")
    return tuple(dict.fromkeys(map(Constraint, texts)))


def constraint_text(text: str) -> str:
    """Read a constraint.

    >>> constraint_text("latency_s<=0.02")
    'latency_s <= 0.02'
    """
    try:
        return Constraint(text).text
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None
