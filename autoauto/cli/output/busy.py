"""Warnings that other programs disturb measurements on this machine, and how a search reacts to them: `heed_busy`."""

from __future__ import annotations

import argparse
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autoauto.cli.output.lines import print_line, warn
from autoauto.records.errors import BadInput

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.targets.host.measure.machine_state import MachineState

LOOK_S = 5.0
"""The load of the machine is a mean of a minute, so it changes no faster."""


class WhenBusy(StrEnum):
    """The reaction to a machine whose load exceeds its cores."""

    WARN = "warn"
    WAIT = "wait"
    STOP = "stop"
    IGNORE = "ignore"


def add_busy(parser: argparse.ArgumentParser) -> None:
    """Add what to do on a busy machine."""
    parser.add_argument(
        "--busy",
        choices=[str(each) for each in WhenBusy],
        default=str(WhenBusy.WARN),
        help="when programs of this machine want more cores than it has, and devices of it are measured. warn: say so "
        "and measure; wait: begin when they no longer do; stop: end with exit code 2; ignore: measure; "
        "default %(default)s",
    )


def heed_busy(flow: Flow, busy: str) -> None:
    """Say in the first lines what disturbs measurements on this machine, and wait or stop where that is asked for."""
    state = state_of(flow)
    if state is None or busy == WhenBusy.IGNORE:
        return
    if state.load is not None and busy == WhenBusy.STOP:
        raise BadInput(f"measurements need an idle machine, it has {state.load}; try --busy wait, or --busy ignore")
    for text in state.warnings:
        warn(text)
    while busy == WhenBusy.WAIT and state is not None and state.load is not None:
        time.sleep(LOOK_S)
        state = state_of(flow)


def state_of(flow: Flow) -> MachineState | None:
    """The state of this machine now; None where it measures nothing."""
    measures = getattr(flow.target, "measures_here", False)
    if not measures:
        return None
    from autoauto.targets.host.measure.machine_state import machine_state

    return machine_state()


def print_busy(flow: Flow) -> None:
    """Print the load of this machine where its cores do not suffice for it; nothing where they do."""
    load = getattr(flow.target, "load", None)
    if load is not None:
        print_line(f"busy machine: {load}, so that measured times are longer than on an idle one")


def describe_busy(flow: Flow) -> dict[str, Any]:
    """The load as plain values; empty where the cores suffice for it."""
    load = getattr(flow.target, "load", None)
    return {} if load is None else {"busy": load._asdict()}
