"""Options of what is measured on engines after a search by forecasts."""

from __future__ import annotations

import argparse

from autoauto.cli.options.values import at_most, labels, positive_number
from autoauto.space.objectives import MAX_MEASURED


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """Add how many configurations are measured, and how their engines are started."""
    parser.add_argument(
        "--measure",
        type=at_most(MAX_MEASURED, minimum=0),
        default=0,
        metavar="K",
        help="start the best configurations on real engines and measure up to K of them, one after the other, each the "
        "one that is likely best by all before; default %(default)s: the answer is modelled",
    )
    parser.add_argument(
        "--measure-flips",
        type=at_most(MAX_MEASURED, minimum=0),
        default=0,
        metavar="N",
        help="measure up to N more: the answer with another value of one knob, those nearest to it by forecast first",
    )
    parser.add_argument(
        "--launch",
        metavar="WAY",
        help="how engines are started to be measured: local, on this machine; ssh:HOST, or ssh:HOST1,HOST2 for several "
        "machines; docker, in containers of this machine; default local",
    )
    parser.add_argument(
        "--endpoint",
        action="append",
        metavar="URL",
        help="somebody else starts engines to be measured: commands are printed, and measured once the server at URL "
        "answers; several times for several replicas, or once for what shares requests out among them; its key is "
        "read from the variable OPENAI_API_KEY",
    )
    parser.add_argument(
        "--launch-timeout",
        type=positive_number,
        metavar="S",
        help="seconds until an engine that was started must answer; default 1800",
    )
    parser.add_argument(
        "--measure-on",
        type=labels,
        default={},
        metavar="NAME=VALUE,...",
        help="with --server and --measure: what the worker says of itself that measures, for example gpu=h100; "
        "it must have been started with --launch",
    )
