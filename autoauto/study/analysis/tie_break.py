"""Which of two configurations is better, when both were measured in turns: `settle`."""

from __future__ import annotations

from typing import NamedTuple

from autoauto.records.knobs import Knobs
from autoauto.records.study_summary import Repeated, Verdict, interval

TELLING = 0.1
"""An interval that is wider than this share of the score to either side does not tell whether two are the same."""


class Settled(NamedTuple):
    """The answer.

    Attributes:
        second: whether the second is the better one, or as good and simpler.
        verdict: how it was found.
    """

    second: bool
    verdict: Verdict = Verdict.CLEAR


def settle(first: Repeated, second: Repeated) -> Settled:
    """Compare turn by turn, so that what disturbs a whole turn disturbs neither side alone.

    They tie when 0 lies in the 95 % confidence interval of their mean difference, and the simpler one is taken. When
    that interval is wider than `TELLING` it would hold anything, and the better mean is taken. Without two turns that
    both finished nothing is known, and the first stays; one that never finished loses.
    """
    pairs = [(a, b) for a, b in zip(first.scores, second.scores, strict=True) if a is not None and b is not None]
    if first.score is None and second.score is not None:
        return Settled(second=True)
    if len(pairs) < 2:
        return Settled(second=False)
    lead = interval([a - b for a, b in pairs])
    assert lead.error is not None
    if abs(lead.mean) > lead.error:
        return Settled(lead.mean < 0)
    if lead.error > TELLING * max(map(max, pairs)):
        return Settled(lead.mean < 0, Verdict.UNSURE)
    return Settled(simplicity(second.knobs) < simplicity(first.knobs), Verdict.TIE)


def simplicity(knobs: Knobs) -> tuple[int, int, int]:
    """What makes a configuration simpler, first: fewer devices, fewer replicas, a smaller batch."""
    return knobs.n_devices, knobs.replicas, knobs.batch_size
