"""Replicas behind a balancer, which sends requests to one after the other: `serve`."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from autoauto.evaluate.serving.traffic.replica import AnswerTimes, Replica, ReplicaRun, check
from autoauto.records.costs.traffic.requests import Requests, Served, WaitsFor


def serve(replicas: Sequence[Replica], requests: Requests) -> Served:
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
    for number, arrival_s in enumerate(arrivals):  # one replica after the other, whatever they still have to do
        run = runs[number % len(runs)]
        run.advance(arrival_s)
        run.take(number)
    for run in runs:
        run.advance(inf)
    start_s = arrivals[0] if n else 0.0
    span_s = max(float(np.max(answers.end_s, initial=0.0)) - start_s, 1e-9)
    # What the host does once for a request is beside the steps: it makes answers later, and replicas no busier.
    beside_s = max((replica.request_s for replica in replicas), default=0.0)
    kv_shares = [run.kv_token_s / each.kv_tokens for run, each in zip(runs, replicas, strict=True)]
    waited_for_s = np.sum([run.waited_for_s for run in runs], axis=0)
    return Served(
        answers.admitted_s,
        answers.first_token_s + beside_s,
        answers.end_s + beside_s,
        busy_share=sum(run.busy_s for run in runs) / len(runs) / span_s,
        kv_share=sum(kv_shares) / (len(runs) * span_s),
        n_waiting=sum(run.waited_s for run in runs) / span_s,
        waits_for=WaitsFor(*(waited_for_s / span_s).tolist()),
        n_preempted=sum(run.n_preempted for run in runs),
    )
