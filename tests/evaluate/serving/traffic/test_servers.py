"""Requests that arrive at two pools: a chain of two queues against single steps, its bound, forecasts and searches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoauto.engines.registry import ENGINES
from autoauto.evaluate.open import load_flow
from autoauto.evaluate.serving.traffic.forecast import result_of
from autoauto.evaluate.serving.traffic.servers import TwoPools
from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.traffic.load import TrafficLoad
from autoauto.records.costs.traffic.requests import Requests
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Method
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status, Trial
from autoauto.study.run import SearchResult
from autoauto.study.search import search_flow
from tests.evaluate.serving.traffic.test_replica import oracle_of, random_requests, replica

pytestmark = pytest.mark.usefixtures("brief_loads")
TRANSFER_S = 5e-6
"""Of a token of a prompt."""
MODEL = "meta-llama/Meta-Llama-3.1-8B"
POOLS = {"prefill_workers": 1, "prefill_tensor_parallel": 1, "prefill_batch_size": 1}


def pools(engine: str, n_prompts: int = 2) -> TwoPools:
    worker = replica(engine, n_sequences=n_prompts)
    return TwoPools([worker], [replica(engine)._replace(mixes=True)], TRANSFER_S)


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("rate_per_s", [2.0, 12.0])
def test_a_request_goes_through_both_pools_as_by_single_steps(engine: str, rate_per_s: float) -> None:
    given, requests = pools(engine), random_requests(5, 400, rate_per_s)
    served = given.serve(requests)
    n = len(requests.arrival_s)
    (worker,), (decoder,) = given.prefill, given.decode
    _, prompts = oracle_of(worker, requests._replace(output_tokens=np.ones(n, dtype=np.int64)))
    handed = sorted((prompts.end_s[i] + TRANSFER_S * requests.input_tokens[i], i) for i in range(n))
    numbers = [i for _, i in handed]
    arrived = Requests(
        np.array([at_s for at_s, _ in handed]),
        requests.input_tokens[numbers],
        requests.output_tokens[numbers],
        requests.input_tokens[numbers] - 1,
    )
    _, answers = oracle_of(decoder, arrived)
    for own, true in ((served.first_token_s, answers.first_token_s), (served.end_s, answers.end_s)):
        waited = true - requests.arrival_s[numbers]
        assert np.percentile(own - requests.arrival_s, 99) == pytest.approx(np.percentile(waited, 99), rel=0.05)
        assert (own - requests.arrival_s).mean() == pytest.approx(waited.mean(), rel=0.05)
    assert np.all(served.first_token_s > requests.arrival_s + TRANSFER_S * requests.input_tokens)


@pytest.mark.parametrize("slow", ["prefill", "decode"])
def test_above_the_rate_of_the_smaller_pool_the_queue_grows(slow: str) -> None:
    given = pools("vllm")
    (worker,), (decoder,) = given.prefill, given.decode
    if slow == "decode":
        given = given._replace(decode=[decoder._replace(steps=decoder.steps.slower(8.0))])
    else:
        given = given._replace(prefill=[worker._replace(steps=worker.steps.slower(4.0))])
    traffic = TrafficLoad()

    def requests_at(rate: float) -> Requests:
        return traffic.requests(rate, Workload(500, 100), latency_s=2.0)

    largest = given.largest_rate(requests_at, about=10.0)
    assert result_of(requests_at(1.001 * largest), given.serve(requests_at(1.001 * largest))).is_overloaded
    assert not result_of(requests_at(0.5 * largest), given.serve(requests_at(0.5 * largest))).is_overloaded


def forecast(rate: float | None, constraints: tuple[str, ...] = (), **values: Any) -> Trial:
    pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
    options = {} if rate is None else {"rate": rate}
    flow = load_flow(MODEL, "h100_sxm-2", "gpu", options=options, constraints=tuple(map(Constraint, constraints)))
    tokens = {"engine": "vllm", "input_tokens": 1500, "output_tokens": 150}
    return flow.evaluate(Knobs(1, 64, 1, **{**tokens, **POOLS, **values}))


def test_at_a_low_rate_nobody_waits_and_at_one_above_the_closed_loop_the_queue_grows() -> None:
    closed = forecast(None)
    most = closed.samples_per_s / 150
    low, high = forecast(0.05 * most), forecast(1.3 * most)
    assert low.fits
    assert low.result.value("ttft_p50_s") < closed.tokens.ttft_s
    assert low.result.value("n_waiting") < 0.05
    assert low.result.value("tpot_p99_s") < closed.tokens.tpot_s  # batches are not full
    assert high.status is Status.CONSTRAINED
    assert "the queue grows by" in high.reason


def test_prompts_that_are_cached_take_workers_less_time() -> None:
    flow = load_flow(MODEL, "h100_sxm-2", "gpu", options={"rate": 5, "cached_share": 0.9})
    values: dict[str, Any] = {"engine": "vllm", "input_tokens": 1500, "output_tokens": 150, **POOLS}
    cached = flow.evaluate(Knobs(1, 64, 1, **values)).result.value("ttft_p50_s")
    assert cached < 0.7 * forecast(5).result.value("ttft_p50_s")


def test_a_search_with_bounds_of_percentiles_answers_with_the_better_of_one_pool_and_two() -> None:
    pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
    bounds = (Constraint("tpot_p99 <= 15ms"), Constraint("ttft_p99 <= 1s"))
    flow = load_flow(MODEL, "h100_sxm-2", "gpu", options={"pools": "1,2"}, constraints=bounds)
    space = SearchSpace(
        n_ipu=(1,),
        replicas=(1, 2),
        batch_size=(16, 64),
        engine=("vllm",),
        tensor_parallel=(1,),
        input_tokens=(1500,),
        output_tokens=(150,),
        prefill_workers=(0, 1),
        constraints=(Constraint("n_devices == 2"),),
    )
    exhaustive, guided = (
        search_flow(flow, space, method=method, n_repeats=0) for method in (Method.EXHAUSTIVE, Method.GUIDED)
    )
    assert guided.best is not None
    assert guided.best.samples_per_s == max(each.samples_per_s for each in exhaustive.trials.values() if each.fits)
    assert {each.knobs.values["prefill_workers"] for each in exhaustive.trials.values()} == {0, 1}
    speeds = _by_workers(exhaustive)
    assert guided.summary is not None
    text = guided.summary.attributes["pools"]
    better, other = ("two pools", "one pool") if max(speeds[1]) > max(speeds[0]) else ("one pool", "two pools")
    assert text.startswith(f"{better}: ")
    if all(_by_workers(guided).values()):
        assert f"tokens/s of {other}" in text
        assert text.endswith(", simulated")
    else:
        assert text.endswith(f"no configuration of {other} that was tried gives as much")


def _by_workers(result: SearchResult) -> dict[int, list[float]]:
    speeds: dict[int, list[float]] = {0: [], 1: []}
    for each in result.trials.values():
        if each.fits:
            speeds[each.knobs.values["prefill_workers"]].append(each.samples_per_s)
    return speeds
