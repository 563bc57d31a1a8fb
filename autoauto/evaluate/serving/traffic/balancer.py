"""Replicas behind a balancer: `Balancer`, `serve`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import inf

import numpy as np

from autoauto.evaluate.serving.traffic.replica import AnswerTimes, Replica, ReplicaRun, check
from autoauto.records.costs.traffic import Requests, Served, WaitsFor


class Balancer(StrEnum):
    """Which replica a request is sent to."""

    ROUND_ROBIN = "round_robin"
    FEWEST_REQUESTS = "least_loaded"
    """That with the fewest requests in flight or waiting; of several the next after the one chosen last."""


def serve(replicas: Sequence[Replica], requests: Requests, balancer: Balancer = Balancer.ROUND_ROBIN) -> Served:
    """When replicas answer requests; shares are means over the replicas, from the first request to the last token.

    Raises:
        BadInput: as `Requests.check`.
        Infeasible, Unsupported: a replica cannot serve a request, as `check` says.
    """
    requests.check()
    for replica in replicas:
        check(replica, requests)
    n, arrivals = len(requests.arrival_s), requests.arrival_s.tolist()
    answers = AnswerTimes(*np.full((3, n), np.nan))
    runs = [ReplicaRun(replica, requests, answers) for replica in replicas]
    chosen = -1
    for number, arrival_s in enumerate(arrivals):
        following = [(chosen + 1 + i) % len(runs) for i in range(len(runs))]
        chosen = following[0]
        if balancer is Balancer.FEWEST_REQUESTS:
            for run in runs:
                run.advance(arrival_s)
            chosen = min(following, key=lambda each: runs[each].n_unanswered)
        runs[chosen].advance(arrival_s)
        runs[chosen].take(number)
    for run in runs:
        run.advance(inf)
    span_s = max(float(np.max(answers.end_s, initial=0.0)) - (arrivals[0] if n else 0.0), 1e-9)
    beside_s = np.array([replica.request_s for replica in replicas]).max(initial=0.0)
    return Served(
        answers.admitted_s,
        answers.first_token_s + beside_s,
        answers.end_s + beside_s,
        busy_share=sum(run.busy_s for run in runs) / len(runs) / span_s,
        kv_share=sum(run.kv_token_s / each.kv_tokens for run, each in zip(runs, replicas, strict=True))
        / (len(runs) * span_s),
        n_waiting=sum(run.waited_s for run in runs) / span_s,
        waits_for=WaitsFor(*(sum(times) / span_s for times in zip(*(run.waited_for_s for run in runs), strict=True))),
        n_preempted=sum(run.n_preempted for run in runs),
    )
