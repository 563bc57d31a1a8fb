"""What disturbs measurements on this machine, as commands print it: a busy machine, its threads and quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoauto.cli.output.lines import print_line

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.targets.host.measure.machine_state import MachineState


def state_of(flow: Flow) -> MachineState | None:
    """The state of this machine now; None where it measures nothing."""
    measures = getattr(flow.target, "measures_here", False)
    if not measures:
        return None
    from autoauto.targets.host.measure.machine_state import machine_state

    return machine_state()


def print_threads(flow: Flow) -> None:
    """Print how many threads compute, where this machine measures."""
    state = state_of(flow)
    if state is not None:
        print_line(f"threads: {state.threads_text}")


def describe_threads(flow: Flow) -> dict[str, Any]:
    """The state of this machine as plain values; empty where it measures nothing."""
    state = state_of(flow)
    return {} if state is None else {"machine": state.to_json()}


def print_busy(flow: Flow) -> None:
    """Print the load of this machine where its cores do not suffice for it; nothing where they do."""
    load = getattr(flow.target, "load", None)
    if load is not None:
        print_line(f"busy machine: {load}, so that measured times are longer than on an idle one")


def describe_busy(flow: Flow) -> dict[str, Any]:
    """The load as plain values; empty where the cores suffice for it."""
    load = getattr(flow.target, "load", None)
    return {} if load is None else {"busy": load._asdict()}
