"""The highest rate that replicas may keep up with, without simulating them: `largest_rate`.

A linear price is looked for that no step undercuts, where it has b sequences with s tokens each in the mean, and x
tokens of prompts on a rank:

    seconds of a step  >=  q b  +  r b s  +  p x             at every b, s, x that a replica can have

Summed over the steps of a load, the right side is the work of its requests, whatever the order of steps: q for each
step that an answer needs, r for each token that it then has, p for each token of its prompt. So no replica answers more
requests a second than one over their mean work. Between the points of its tables the time of a step is linear in each
of b, s and x, so it suffices that the price holds at all points. The attention of prompts is left out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from autoauto.evaluate.serving.traffic.forecast import n_may_wait
from autoauto.evaluate.serving.traffic.replica import Replica
from autoauto.evaluate.serving.traffic.steps import Steps
from autoauto.records.costs.traffic.requests import Requests
from autoauto.records.units import FloatArray

_SHARES = np.linspace(0.0, 1.0, 9)
"""Shares of the largest price of a token that are tried; the best is taken."""


class _Work(NamedTuple):
    """The work of requests, arrays of shape (requests,)."""

    n_steps: FloatArray  # in which it decodes
    n_held: FloatArray  # tokens that it has in these steps, together
    n_prompt: FloatArray  # tokens of its prompt that are computed


def largest_rate(
    replicas: Sequence[Replica], requests_at: Callable[[float], Requests], about: float, n_before: int = 0
) -> float:
    """Requests a second above which the queue of replicas certainly grows for ever; infinite if that is not known.

    Requests that may wait or be in flight when the last one comes are not counted, the longest first. At a higher rate
    a load has as many requests or more, so that they are a smaller part of it.

    Args:
        about: a rate near the answer.
        n_before: requests that may be on their way to the replicas when the last one comes.
    """
    rate = _largest_from(replicas, requests_at(about), n_before)
    return rate if rate >= about else min(about, _largest_from(replicas, requests_at(rate), n_before))


def _largest_from(replicas: Sequence[Replica], requests: Requests, n_before: int) -> float:
    """`largest_rate`, if it is not below the rate of these requests."""
    n, n_in_flight = len(requests.arrival_s), sum(replica.n_sequences for replica in replicas)
    n_counted = n - int(n_may_wait(n)) - n_in_flight - n_before
    if n_counted < 1:
        return inf
    work = _work(replicas[0], requests)
    first_s = lowest_seconds(replicas[0], requests, work)
    n_like_first = 0.0  # replicas, each counted by how fast it is at most
    for replica in replicas:
        seconds = first_s if replica is replicas[0] else lowest_seconds(replica, requests, work)
        n_like_first += 1 / float((seconds / first_s).min())
    # Which requests still wait at the end is not known: at best those that take longest.
    return n * n_like_first / float(np.sort(first_s)[:n_counted].sum())


def _work(replica: Replica, requests: Requests) -> _Work:
    per_step = replica.tokens_of_step
    n_steps = np.ceil((requests.output_tokens - 1) / per_step)
    n_held = n_steps * requests.input_tokens + per_step * n_steps * (n_steps - 1) / 2
    return _Work(n_steps, n_held, (requests.input_tokens - requests.cached_tokens).astype(np.float64))


def lowest_seconds(replica: Replica, requests: Requests, work: _Work | None = None) -> FloatArray:
    """Seconds of steps that each request certainly takes, shape (requests,), by the best price that is found."""
    work = work or _work(replica, requests)
    n_steps, n_held, n_prompt = (float(column.mean()) for column in work)
    best, largest = (0.0, 0.0, 0.0), -1.0
    # All prices are lower bounds; the best is the one by which the mean request costs most.
    for q, r, p in _prices(replica, requests):
        if q >= 0 and q * n_steps + r * n_held + p * n_prompt > largest:
            best, largest = (q, r, p), q * n_steps + r * n_held + p * n_prompt
    q, r, p = best
    return np.asarray(q * work.n_steps + r * work.n_held + p * work.n_prompt)


def _prices(replica: Replica, requests: Requests) -> list[tuple[float, float, float]]:
    """Prices of a step of a sequence, of a token that it has, and of a token of a prompt, that no step undercuts."""
    steps, n_ranks = replica.steps, replica.steps.n_ranks
    shortest = int(requests.input_tokens.min())
    longest = int((requests.input_tokens + requests.output_tokens).max())
    n_most = max(1, min(replica.n_sequences, replica.kv_tokens // shortest))
    of_rank = replica.verified_tokens / (n_ranks * steps.n_stages)  # tokens of a micro-batch on a rank

    # All points between which a step is linear: of the table of sequences, and of tokens.
    points = np.concatenate([[1, n_most], steps.sequences, steps.tokens / of_rank])
    b = np.unique(points[(points >= 1) & (points <= n_most)])
    first = max(0, int(np.searchsorted(steps.lengths, shortest, side="right")) - 1)
    last = int(np.searchsorted(steps.lengths, longest)) + 1
    s = steps.lengths[first:last].astype(np.float64)
    decode_s = np.stack([np.interp(b, steps.sequences, column) for column in steps.decode_s[:, first:last].T], axis=1)

    n_tokens = b * of_rank
    n_most_of_prompts = max(replica.part_tokens, -(-replica.step_tokens // n_ranks))
    alone = np.append(steps.tokens[steps.tokens < n_most_of_prompts], n_most_of_prompts)
    most_of_prompt = float(((_token_s(steps, alone) + steps.host_s) / alone).min())
    if not replica.mixes:
        return [(*each, most_of_prompt / n_ranks) for each in _of_sequences(b, s, decode_s)]
    totals = np.unique(np.concatenate([steps.tokens, n_tokens, [n_tokens[-1] + n_most_of_prompts]]))
    added_s = _token_s(steps, totals)[None, :] - _token_s(steps, n_tokens)[:, None]
    n_added = totals[None, :] - n_tokens[:, None]
    prices: list[tuple[float, float, float]] = []
    for p in most_of_prompt * _SHARES:
        # What a step of b sequences may be cheaper than its price by its prompts; 0 without prompts.
        rebate_s = np.where(n_added >= 0, added_s - p * n_added, np.inf).min(axis=1)
        prices += [(*each, p / n_ranks) for each in _of_sequences(b, s, decode_s + np.minimum(rebate_s, 0.0)[:, None])]
    return prices


def _of_sequences(b: FloatArray, s: FloatArray, seconds: FloatArray) -> list[tuple[float, float]]:
    """Prices of a step of a sequence and of a token that it has, which are at most `seconds`, shape (b, s)."""
    held = b[:, None] * s[None, :]
    prices: list[tuple[float, float]] = []
    for r in max(0.0, float((seconds / held).min())) * _SHARES:
        prices.append((float(((seconds - r * held) / b[:, None]).min()), float(r)))
    return prices


def _token_s(steps: Steps, n_tokens: FloatArray) -> FloatArray:
    """Seconds of so many tokens without attention; beyond its table they are linear."""
    grid, seconds = steps.tokens, steps.token_s
    right = np.clip(np.searchsorted(grid, n_tokens, side="right"), 1, len(grid) - 1)
    slopes = (seconds[right] - seconds[right - 1]) / (grid[right] - grid[right - 1])
    return np.asarray(seconds[right - 1] + slopes * (n_tokens - grid[right - 1]))
