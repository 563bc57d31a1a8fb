"""Why one pool is better than two, or two better than one, in a line: `compared_text`."""

from __future__ import annotations

from autoauto.records.units import format_number
from autoauto.space.trial import Trial

_ALL = 0.995
"""The share of the time from which on servers are said to compute all of it."""


def compared_text(single: Trial | None, pooled: Trial | None, prompt_share: float | None) -> str:
    """Which of the best of one pool and of two gives more, and why.

    Args:
        single: the best of one pool; None where none fits and keeps all bounds.
        pooled: that of two.
        prompt_share: the share of a step of one pool that computes prompts; None where that is not known.
    """
    if pooled is None:
        return "one pool: no prefill worker fits beside a replica and keeps all bounds"
    if single is None:
        return f"two pools: replicas that compute prompts do not keep all bounds; {_waiting(pooled)}"
    better, other = "one pool", "two pools"
    if pooled.samples_per_s > single.samples_per_s:
        better, other = other, better
    fewer, more = sorted((single.samples_per_s, pooled.samples_per_s))
    shares = ""
    if prompt_share is not None:
        shares = f"prompts take {prompt_share:.0%} of the steps of one pool, "
    times = f"{format_number(more / fewer, 2)} times the {format_number(fewer, 0)} tokens/s of {other}"
    return f"{better}: {times}; {shares}{_waiting(pooled)}"


def _waiting(pooled: Trial) -> str:
    """Which of two pools waits for the other."""
    busy = pooled.tokens.prefill_busy_share or 0.0
    if busy < _ALL:
        return f"prefill workers wait {1 - busy:.0%} of the time"
    return "replicas wait for prompts"
