"""Replicas of a configuration, and their results under requests that arrive: `replicas_of`, `traffic_of`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoauto.engines.registry import engine_named
from autoauto.engines.step_rules import Release
from autoauto.evaluate.serving.costs import ServingCosts, check_tokens, session_of
from autoauto.evaluate.serving.rates import MIDDLE, End
from autoauto.evaluate.serving.traffic.balancer import serve
from autoauto.evaluate.serving.traffic.replica import Replica
from autoauto.evaluate.serving.traffic.steps import Grids, StageBlocks, steps_of
from autoauto.evaluate.serving.ways import Way
from autoauto.records.costs.decoder import NO_SPECULATION, Decoder, Speculation, Workload
from autoauto.records.costs.traffic.requests import Percentiles, Requests, Served, TrafficResult
from autoauto.space.knobs import Knobs
from autoauto.targets.gpu.costs import check_length
from autoauto.targets.gpu.systems import check_group, system_named

_LEFT_WAITING = 0.02
"""The share of all requests that may wait when the last one comes, of replicas that keep up."""
_DEVIATIONS = 2.0
"""Standard deviations of a Poisson number of arrivals that may."""


def traffic_of(replicas: Sequence[Replica], requests: Requests) -> TrafficResult:
    """The results of replicas behind a balancer; raises as `serve`."""
    return result_of(requests, serve(replicas, requests))


def result_of(requests: Requests, served: Served) -> TrafficResult:
    """Percentiles of what was served."""
    n_after = requests.output_tokens - 1
    has_tpot = n_after > 0
    tpot = (served.end_s - served.first_token_s)[has_tpot] / n_after[has_tpot]
    lasted_s = float(np.max(served.end_s) - requests.arrival_s[0])
    # While requests came the queue grew by so many a second; replicas kept up where no more wait than may.
    n, came_s = len(requests.arrival_s), float(requests.arrival_s[-1] - requests.arrival_s[0])
    n_waiting = n - int(np.sum(served.admitted_s <= requests.arrival_s[-1]))
    growth_per_s = 0.0
    if came_s and n_waiting > n_may_wait(n):
        growth_per_s = n_waiting / came_s
    return TrafficResult(
        Percentiles.of(served.first_token_s - requests.arrival_s),
        Percentiles.of(tpot),
        Percentiles.of(served.end_s - requests.arrival_s),
        n / lasted_s,
        int(requests.output_tokens.sum()) / lasted_s,
        served.busy_share,
        served.kv_share,
        served.n_waiting,
        served.waits_for,
        served.n_preempted,
        growth_per_s,
    )


def n_may_wait(n: int) -> float:
    """Of n requests so many may wait when the last comes: `_LEFT_WAITING` of all, or what arrivals vary by chance."""
    return float(max(_LEFT_WAITING * n, _DEVIATIONS * np.sqrt(n)))


def replicas_of(
    costs: ServingCosts, knobs: Knobs, way: Way, requests: Requests, index: int = 0, end: End = MIDDLE
) -> list[Replica]:
    """All replicas of a way of a configuration.

    Args:
        knobs: the configuration; its batch size times its stages are in flight in a replica at most.
        end: of the intervals of measured rows; steps are so much slower or faster.

    Raises:
        Infeasible: the model does not fit.
        Unsupported: there are no times of its kernels, or as `check_tokens`.
    """
    target, session, kinds = costs.target, session_of(knobs), costs.kinds(knobs)
    check_tokens(knobs, target.speculation)
    made: list[Replica] = []
    for like in way.replicas:
        row = int(like.rows[index])
        if row < 0:
            raise like.why_unfit(index)
        stages = like.pipelines.stages(row, index)
        placed: list[StageBlocks] = []
        for position, _, n_blocks in stages:
            serving = target.serving(system_named(kinds[position.kind].name), session)
            link = None if position.is_last else position.link
            placed.append(StageBlocks(serving, tuple(n_blocks.tolist()), position.is_first, position.is_last, link))
        n_held = min(each.costs.kv_sequences(each.n_blocks, 0) for each in stages)
        replica = replica_of(
            target.decoder,
            tuple(placed),
            requests,
            n_sequences=knobs.batch_size * len(stages),
            n_kv_tokens=int(n_held * costs.requests(knobs).max_length) * session.attention_data_parallel,
            n_batched_tokens=session.max_batched_tokens,
            speculation=target.speculation,
        )
        factor = end(way.factors[int(like.rates.slowest[index])].tpot)
        made += [replica._replace(steps=replica.steps.slower(factor))] * like.n
    return made


def replica_of(
    decoder: Decoder,
    stages: tuple[StageBlocks, ...],
    requests: Requests,
    *,
    n_sequences: int,
    n_kv_tokens: int,
    n_batched_tokens: int,
    speculation: Speculation = NO_SPECULATION,
    release: Release | None = None,
) -> Replica:
    """A replica of these stages.

    Args:
        n_batched_tokens: of a step of a rank of a micro-batch, at most.
        release: of the engine; None for the newest.

    Raises:
        BadInput: as `Requests.check`.
        MissingExtra: the package of measured times is not installed.
        Unsupported: there are no times, the group does not fit a node, or a request is longer than the model allows.
    """
    requests.check()
    engine, split = engine_named(stages[0].serving.engine), stages[0].serving.split
    lengths = requests.input_tokens + requests.output_tokens
    longest = int(np.argmax(lengths))
    check_length(decoder, Workload(int(requests.input_tokens[longest]), int(requests.output_tokens[longest])))
    for stage in stages:
        check_group(system_named(stage.serving.system), engine, stage.serving.split)
    # Near numbers have the same grids, so that a search needs few tables: they reach up to powers of two.
    length = int(lengths[longest])
    grids = Grids(1 << (n_sequences - 1).bit_length(), n_batched_tokens, 1 << (length - 1).bit_length())
    rules = engine.step_rules
    is_asynchronous = rules.is_asynchronous(release)
    return Replica(
        steps_of(decoder, stages, grids, speculation, hides_host=is_asynchronous),
        rules,
        engine.mixes,
        n_sequences,
        n_kv_tokens,
        n_batched_tokens * split.attention_data_parallel * len(stages),
        n_batched_tokens,
        speculation.accept_length,
        speculation.step_tokens,
        engine.host.first_token_s if rules.request_s is None else rules.request_s,
        is_asynchronous,
    )
