"""`made`: trials for the tests of this room."""

from dataclasses import replace
from typing import Any

from autoauto.space.knobs import Knobs
from autoauto.space.trial import Status, Trial


def made(number: int, knobs: Knobs, samples_per_s: float = 0.0, **facts: Any) -> Trial:
    """A trial that fits, or with 0 samples/s one that the estimate ruled out; `facts` are further fields of `Trial`."""
    status = Status.OK if samples_per_s else Status.INFEASIBLE
    return replace(Trial(knobs, status, samples_per_s=samples_per_s, number=number), **facts)
