"""Jumps of a replica against an oracle that takes one step after the other, for the rules of every engine."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from datetime import datetime
from math import ceil

import numpy as np
import pytest

from autoauto.engines.registry import ENGINES
from autoauto.engines.step_rules import TakesBack
from autoauto.evaluate.serving.traffic.balancer import serve
from autoauto.evaluate.serving.traffic.forecast import traffic_of
from autoauto.evaluate.serving.traffic.replica import Replica
from autoauto.evaluate.serving.traffic.steps import Steps
from autoauto.records.costs.traffic.requests import Requests, Served, WaitsFor
from autoauto.records.errors import BadInput, Infeasible, Unsupported
from autoauto.records.installation import data_dir
from studies.single_steps import Engine, Request, Rules, simulate
from tests.drawn import daily

NO_WAITS = WaitsFor(0.0, 0.0, 0.0)
STEP_S, SEQUENCE_S, CACHED_S, TOKEN_S, PAIR_S = 5e-3, 2e-5, 2e-8, 1.5e-5, 1e-9
"""Of a made-up model: a step, each sequence in it, each cached token that it reads, each token of a prompt, and each
pair of tokens in its attention."""


def steps() -> Steps:
    sequences, lengths = np.arange(257), np.array([1, 100, 10_000])
    tokens, before = np.array([1, 100_000]), np.array([0, 10_000])
    parts = np.array([1, 10_000])
    decode = STEP_S + sequences[:, None] * (SEQUENCE_S + CACHED_S * lengths)
    decode[0] = 0.0
    return Steps(
        sequences,
        lengths,
        decode,
        tokens,
        STEP_S + TOKEN_S * tokens,
        parts,
        before,
        PAIR_S * parts[:, None] * before + 0.0 * parts[:, None],
    )


def decode_s(n: int, length: float) -> float:
    return STEP_S + n * (SEQUENCE_S + CACHED_S * length)


def prompts_s(n_decoding: int, parts: Sequence[tuple[int, int]]) -> float:
    seconds = 0.0 if n_decoding else STEP_S
    for part, before in parts:
        seconds += TOKEN_S * part + PAIR_S * part * before
    return seconds


def replica(engine: str, kv_tokens: int = 60_000, n_sequences: int = 32, step_tokens: int = 2048) -> Replica:
    chosen = ENGINES[engine]
    return Replica(
        steps(),
        chosen.step_rules,
        chosen.mixes,
        n_sequences,
        kv_tokens,
        step_tokens,
        step_tokens,
        is_asynchronous=chosen.step_rules.is_asynchronous(None),
    )


def rules_of(given: Replica) -> Rules:
    """How the oracle serves as a replica does."""
    rules = given.rules
    return Rules(
        given.mixes,
        given.n_sequences,
        given.step_tokens,
        given.kv_tokens // rules.block_tokens,
        rules.block_tokens,
        rules.own_share == 1,
        rules.running_share,
        not rules.counts_whole_prompt,
        rules.takes_back is TakesBack.FEWEST_ANSWERED,
        given.is_asynchronous,
    )


def oracle_of(given: Replica, requests: Requests) -> tuple[Engine, Served]:
    engine = Engine(rules_of(given), decode_s, prompts_s)
    columns = (column.tolist() for column in requests)
    every = [Request(number, *cells) for number, cells in enumerate(zip(*columns, strict=True))]
    simulate(engine, every)
    admitted, first, end = (np.array([getattr(each, name) for each in every]) for name in ("admitted", "first", "end"))
    lasted = end.max() - every[0].arrival
    return engine, Served(admitted, first, end, engine.busy / lasted, 0.0, 0.0, NO_WAITS, engine.preemptions)


def random_requests(seed: int, n: int, rate_per_s: float, prompt: int = 800, answer: int = 200) -> Requests:
    """Poisson arrivals, exponential lengths, a third of the prompts half in the cache."""
    random = np.random.default_rng(seed)
    inputs = 1 + random.exponential(prompt, n).astype(np.int64).clip(max=6000)
    outputs = 1 + random.exponential(answer, n).astype(np.int64).clip(max=2000)
    cached = np.where(random.random(n) < 1 / 3, inputs // 2, 0)
    return Requests(random.exponential(1 / rate_per_s, n).cumsum(), inputs, outputs, cached)


def trace(name: str, n: int, faster: float = 1.0) -> Requests:
    """The first requests of an hour of a service of Azure (data/traffic/README.md)."""
    with gzip.open(data_dir() / "traffic" / f"azure_llm_2023_{name}.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:n]
    times = np.array([datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows])
    inputs, outputs = (np.array([int(row[key]) for row in rows]) for key in ("ContextTokens", "GeneratedTokens"))
    return Requests((times - times[0]) / faster, inputs, outputs, np.zeros(n, dtype=np.int64))


def compare(given: Replica, requests: Requests, tolerance: float = 0.05) -> tuple[Served, Served]:
    """Mean and p99 of all latencies are those of the oracle."""
    served, (_, oracle) = serve([given], requests), oracle_of(given, requests)
    for name in ("first_token_s", "end_s"):
        own, true = (getattr(each, name) - requests.arrival_s for each in (served, oracle))
        assert np.percentile(own, 99) == pytest.approx(np.percentile(true, 99), rel=tolerance)
        assert own.mean() == pytest.approx(true.mean(), rel=tolerance)
    assert served.busy_share == pytest.approx(oracle.busy_share, rel=tolerance)
    return served, oracle


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("rate_per_s", daily([5.0, 1.0, 12.0]))
def test_latencies_are_those_of_single_steps(engine: str, rate_per_s: float) -> None:
    compare(replica(engine), random_requests(int(rate_per_s), 400, rate_per_s))


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize(("name", "faster"), daily([("conv", 1.0), ("code", 0.5)], several=True))
def test_a_slice_of_real_traffic_is_served_as_by_single_steps(engine: str, name: str, faster: float) -> None:
    compare(replica(engine, kv_tokens=100_000, n_sequences=64, step_tokens=4096), trace(name, 600, faster))


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_cache_that_is_full_takes_sequences_back_or_admits_fewer(engine: str) -> None:
    served, oracle = compare(replica(engine, kv_tokens=14_000), random_requests(3, 400, 8.0), tolerance=0.1)
    if ENGINES[engine].step_rules.running_share == 1:
        assert served.n_preempted == oracle.n_preempted == 0
    else:
        assert served.n_preempted == pytest.approx(oracle.n_preempted, rel=0.3)
        assert served.n_preempted > 0


def test_a_sequence_that_is_taken_back_computes_its_answer_again() -> None:
    """Two requests grow until the cache of 64 blocks is full; the second starts again when the first has ended."""
    requests = Requests(np.array([0.0, 1e-4]), np.array([400, 400]), np.array([300, 200]), np.array([0, 0]))
    small = replica("vllm", kv_tokens=64 * 16)._replace(is_asynchronous=False)
    served = serve([small], requests)
    assert served.n_preempted == 1
    n_together = (64 * 16 - 15 - 800) // 2  # steps until no token is free
    first_alone = 299 - n_together
    resumed = served.end_s[0] + STEP_S + TOKEN_S * (400 + n_together)
    assert served.end_s[1] > resumed
    assert served.end_s[1] == pytest.approx(resumed + (199 - n_together) * decode_s(1, 560), rel=0.02)
    assert served.end_s[0] == pytest.approx(2 * (STEP_S + TOKEN_S * 400) + first_alone * decode_s(1, 600) + n_together *
                                            decode_s(2, 450), rel=0.02)  # fmt: skip


def test_a_request_alone_takes_its_prompt_and_its_steps() -> None:
    requests = Requests(np.array([3.0]), np.array([500]), np.array([101]), np.array([480]))
    served = serve([replica("vllm")._replace(request_s=0.25)], requests)
    first = 3.0 + 0.25 + STEP_S + 20 * (TOKEN_S + PAIR_S * 480)
    assert served.first_token_s[0] == pytest.approx(first)
    assert served.end_s[0] == pytest.approx(first + sum(decode_s(1, 500 + i) for i in range(100)), rel=1e-6)


@pytest.mark.parametrize("mixes", [True, False])
def test_a_long_prompt_is_computed_in_parts_beside_others_or_before_them(mixes: bool) -> None:
    """A sequence that decodes gets a token in each of the 3 steps of the prompt, or none until it is computed."""
    n_steps = 3
    requests = Requests(np.array([0.0, 0.1]), np.array([10, 250]), np.array([400, 2]), np.array([0, 0]))
    given = replica("vllm", step_tokens=100)._replace(mixes=mixes, is_asynchronous=False)
    served = serve([given], requests)
    long = TOKEN_S * 250
    beside = n_steps * (STEP_S + SEQUENCE_S) if mixes else n_steps * STEP_S
    waited = served.first_token_s[1] - served.admitted_s[1]
    assert waited == pytest.approx(beside + long, rel=0.02)
    n_own = 399 - (n_steps if mixes else 0)
    own = served.end_s[0] - served.first_token_s[0] - waited
    assert own == pytest.approx(n_own * decode_s(1, 200), rel=0.02)


def test_a_step_that_is_prepared_is_not_joined() -> None:
    """A request that comes while a step is computed waits for this one and the next."""
    requests = Requests(np.array([0.0, 0.0513]), np.array([10, 10]), np.array([100, 2]), np.array([0, 0]))
    given = replica("vllm")
    at_once, later = (serve([given._replace(is_asynchronous=each)], requests) for each in (False, True))
    delay = later.first_token_s[1] - at_once.first_token_s[1]
    assert delay == pytest.approx(decode_s(1, 20), rel=0.01)
    assert later.first_token_s[0] == at_once.first_token_s[0]


def test_drafts_that_are_accepted_end_answers_in_fewer_steps() -> None:
    requests = Requests(np.array([0.0]), np.array([100]), np.array([101]), np.array([0]))
    plain, drafted = (serve([replica("vllm")._replace(tokens_of_step=n)], requests) for n in (1.0, 2.5))
    lasted, shorter = (each.end_s[0] - each.first_token_s[0] for each in (plain, drafted))
    assert shorter == pytest.approx(lasted * ceil(100 / 2.5) / 100, rel=0.01)


def test_a_queue_that_grows_for_ever_is_said() -> None:
    """About 8 requests of 200 steps fit a second: 32 sequences, each for 200 steps of 20 ms at most."""
    for rate_per_s, is_overloaded in ((4.0, False), (60.0, True)):
        requests = random_requests(7, 1500, rate_per_s)
        result = traffic_of([replica("vllm")], requests)
        assert result.is_overloaded is is_overloaded
        if is_overloaded:
            answered = result.requests_per_s
            assert result.queue_growth_per_s == pytest.approx(rate_per_s - answered, rel=0.15)


def test_a_burst_that_is_served_before_the_end_is_no_overload_and_one_that_still_waits_is() -> None:
    """Requests come evenly, but those of the middle, or of the last third, at ten times what is served."""
    calm = np.full(600, 0.5)
    for part, is_overloaded in ((slice(200, 350), False), (slice(400, 600), True)):
        gaps = calm.copy()
        gaps[part] = 0.01
        requests = random_requests(9, 600, 1.0)._replace(arrival_s=gaps.cumsum())
        assert traffic_of([replica("vllm")], requests).is_overloaded is is_overloaded


def test_each_of_several_replicas_has_its_turns() -> None:
    requests = random_requests(5, 800, 20.0)
    alone = traffic_of([replica("vllm")], requests.chosen(np.arange(1, 800, 4)))
    all_alike = traffic_of([replica("vllm")] * 4, requests)
    assert all_alike.latency_s.mean == pytest.approx(alone.latency_s.mean, rel=0.05)


def test_what_no_replica_can_serve_is_refused() -> None:
    requests = Requests(np.array([0.0]), np.array([9000]), np.array([2000]), np.array([0]))
    with pytest.raises(Infeasible, match=r"hold the longest request, 11,000 tokens, got room for 10,000"):
        serve([replica("vllm", kv_tokens=10_000)], requests)
    with pytest.raises(Unsupported, match=r"steps of more tokens than its 32 of sequences that decode, got 32"):
        serve([replica("vllm", step_tokens=32)], requests)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"arrival_s": np.array([1.0, 0.5])}, "in the order in which they arrive"),
        ({"arrival_s": np.array([0.0, np.inf])}, "in the order in which they arrive"),
        ({"output_tokens": np.array([5, 0])}, "output_tokens must be at least 1 of every request, got 0"),
        ({"cached_tokens": np.array([0, 10])}, "input_tokens less cached_tokens must be at least 1 .* got 0"),
    ],
)
def test_requests_that_cannot_be_are_refused(changes: dict[str, np.ndarray], problem: str) -> None:
    requests = Requests(np.array([0.0, 0.5]), np.array([10, 10]), np.array([5, 5]), np.array([0, 0]))
    with pytest.raises(BadInput, match=problem):
        serve([replica("vllm")], requests._replace(**changes))
    with pytest.raises(BadInput, match="a request or more, got none"):
        serve([replica("vllm")], requests.first(0))


def test_little_s_law_holds_for_what_waits() -> None:
    """The queue is one of its time averages: so are the waits."""
    requests = random_requests(11, 800, 30.0)
    result, served = traffic_of([replica("vllm")], requests), serve([replica("vllm")], requests)
    lasted = float(served.end_s.max() - requests.arrival_s[0])
    assert served.n_preempted == 0
    assert result.n_waiting == pytest.approx((served.admitted_s - requests.arrival_s).sum() / lasted)
    assert 0 < result.kv_share < 1
    assert result.busy_share == pytest.approx(1.0, abs=0.05)
