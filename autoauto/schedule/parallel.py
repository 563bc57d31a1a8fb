"""Whether the stages of a cycle can run at once: neighbours on different devices, and no exchange between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from autoauto.records.errors import BadInput
from autoauto.records.pipeline import Cycle, Fragment, PipelineProgram

_ORDER = list(Fragment)


def check_parallel(program: PipelineProgram, devices: Sequence[int]) -> None:
    """Check every cycle of a program; stage s is on `devices[s]`.

    A cycle has its fragments in the order D, M, H, C, and C once: devices wait for each other in C and for the host in
    D and H, so none of these may part two stages that compute. Neighbours among the M are on different devices. That
    two further apart share one, as stages 0 and 4 on 3 devices, is right: they run one after the other there.

    Raises:
        BadInput: a cycle is otherwise; the message names the fragments.
    """
    for index, cycle in enumerate(program.fill):
        _check(f"fill cycle {index}", cycle, devices)
    _check("the main cycle", program.main, devices)
    for index, cycle in enumerate(program.flush):
        _check(f"flush cycle {index}", cycle, devices)


def _check(place: str, cycle: Cycle, devices: Sequence[int]) -> None:
    for first, second in pairwise(cycle):
        if _ORDER.index(first.fragment) > _ORDER.index(second.fragment):
            raise BadInput(f"{place} must have its fragments in the order D, M, H, C, got {second} after {first}")
        both_main = first.fragment is second.fragment is Fragment.MAIN
        if both_main and devices[first.stage or 0] == devices[second.stage or 0]:
            raise BadInput(
                f"{place} must have neighbours on different devices, got {first} and {second} both on device "
                f"{devices[first.stage or 0]}; merge their stages"
            )
    n_copies = sum(step.fragment is Fragment.COPY for step in cycle)
    if n_copies != 1:
        raise BadInput(f"{place} must copy for all stages at once, got C {n_copies} times")
