"""Which of two configurations is better after both were measured in turns: `break_tie`."""

from __future__ import annotations

from typing import NamedTuple

from autoauto.records.trials.study_summary import Repeated, Verdict, interval

MAX_ERROR_SHARE = 0.1
"""When half the width of the interval exceeds this share of the score, the turns do not show whether two tie."""


class TieBreak(NamedTuple):
    """The better of two configurations.

    Attributes:
        second: whether it is the second, which is better, or as good and simpler.
        verdict: how clear that is.
    """

    second: bool
    verdict: Verdict = Verdict.CLEAR


def is_decided(first: Repeated, second: Repeated, noise: float) -> bool:
    """Whether further turns would only repeat what `break_tie` says: two differ clearly, or by no more than `noise`.

    Args:
        first, second: two configurations.
        noise: the share of a score that is noise.
    """
    pairs = _pairs(first, second)
    if len(pairs) < 2:
        return False
    lead = interval([a - b for a, b in pairs])
    assert lead.error is not None
    return abs(lead.mean) > lead.error or abs(lead.mean) + lead.error <= noise * max(map(max, pairs))


def break_tie(first: Repeated, second: Repeated) -> TieBreak:
    """Compare two configurations turn by turn, so that a disturbance of a whole turn affects both alike.

    They tie when the 95 % confidence interval of their mean difference contains 0 [student]; then the simpler one wins.
    When that interval is wider than `MAX_ERROR_SHARE` it would contain 0 in any case, and the better mean wins. The
    first wins with fewer than two turns in which both were measured; one that was never measured loses.
    """
    pairs = _pairs(first, second)
    if first.score is None and second.score is not None:
        return TieBreak(second=True)
    if len(pairs) < 2:
        return TieBreak(second=False)
    lead = interval([a - b for a, b in pairs])
    assert lead.error is not None
    if abs(lead.mean) > lead.error:
        return TieBreak(lead.mean < 0)
    if lead.error > MAX_ERROR_SHARE * max(map(max, pairs)):
        return TieBreak(lead.mean < 0, Verdict.UNSURE)
    return TieBreak(second.knobs.simplicity < first.knobs.simplicity, Verdict.TIE)


def _pairs(first: Repeated, second: Repeated) -> list[tuple[float, float]]:
    """The scores of the turns in which both were measured; a configuration that is decided has no later ones."""
    turns = zip(first.scores, second.scores, strict=False)
    return [(a, b) for a, b in turns if a is not None and b is not None]
