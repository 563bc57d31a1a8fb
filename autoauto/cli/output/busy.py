"""The line that commands print first when other programs keep the measured machine busy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoauto.cli.output.lines import print_line

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow


def print_busy(flow: Flow) -> None:
    """Print the load of this machine where its cores do not suffice for it; nothing where they do."""
    load = getattr(flow.target, "load", None)
    if load is not None:
        print_line(f"busy machine: {load}, so that measured times are longer than on an idle one")


def describe_busy(flow: Flow) -> dict[str, Any]:
    """The load as plain values; empty where the cores suffice for it."""
    load = getattr(flow.target, "load", None)
    return {} if load is None else {"busy": load._asdict()}
