"""Configurations under requests that arrive: the highest rate that keeps bounds, at a rate, and searches of both."""

from __future__ import annotations

from typing import Any

import pytest

from autoauto.evaluate.open import load_flow
from autoauto.evaluate.serving.traffic.goodput import RATE_STEP, highest_rate
from autoauto.evaluate.serving.traffic.trials import SIMULATED
from autoauto.records.errors import BadInput
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import PERCENTILES
from autoauto.space.objectives import Method
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status, Trial
from autoauto.study.run import SearchResult
from autoauto.study.search import search_flow

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
pytestmark = pytest.mark.usefixtures("brief_loads")
MODEL = "meta-llama/Meta-Llama-3.1-8B"
BOUND = "ttft_p99 <= 150ms"
SPACE = SearchSpace(
    n_ipu=(1, 2),
    replicas=(1, 2),
    batch_size=(16, 64),
    engine=("vllm",),
    tensor_parallel=(1, 2),
    input_tokens=(512,),
    output_tokens=(400,),
)


def trial(constraints: tuple[str, ...] = (), **options: object) -> Trial:
    flow = load_flow(MODEL, "h100_sxm-2", "gpu", options=options, constraints=tuple(map(Constraint, constraints)))
    values: dict[str, Any] = {"engine": "vllm", "input_tokens": 512, "output_tokens": 400}
    if options.get("input_lengths") or options.get("trace"):
        values |= {name: flow.traits.space[name][0] for name in ("input_tokens", "output_tokens")}
    return flow.evaluate(Knobs(1, 32, 1, **values))


@pytest.mark.parametrize("most", [0.05, 0.9, 1.0, 7.3, 15.0, 200.0])
def test_bisection_finds_what_trying_every_rate_does(most: float) -> None:
    tried: list[float] = []

    def holds(rate: float) -> bool:
        tried.append(rate)
        return rate <= most

    highest = highest_rate(holds, 10.0)
    every = [0.01 * 1.001**i for i in range(12_000)]
    assert highest <= most
    assert highest * RATE_STEP * 1.001 >= max(rate for rate in every if rate <= most)
    assert len(tried) < 20


def test_a_bound_that_holds_at_no_rate_has_none() -> None:
    assert highest_rate(lambda rate: False, 10.0) == 0.0


def test_the_rate_that_is_found_keeps_bounds_and_a_higher_one_does_not() -> None:
    highest = trial((BOUND,))
    assert highest.fits
    rate = highest.result.value("rate_per_s")
    assert highest.samples_per_s == pytest.approx(400 * rate)
    at_rate, above = trial((BOUND,), rate=rate), trial((BOUND,), rate=1.011 * rate)
    assert at_rate.fits
    assert at_rate.result.percentiles == highest.result.percentiles
    assert above.status is Status.CONSTRAINED
    assert "ttft_p99_s" in above.reason


def test_a_bound_that_no_rate_keeps_says_which() -> None:
    failed = trial(("ttft_p99 <= 1ms",))
    assert failed.status is Status.CONSTRAINED
    assert "ttft_p99_s <= 0.001 does not hold" in failed.reason


def test_a_rate_beyond_what_replicas_can_is_no_fit_and_the_growth_of_the_queue_is_said() -> None:
    failed = trial(rate=1000)
    assert failed.status is Status.CONSTRAINED
    assert "the queue grows by" in failed.reason
    assert "at 1,000" in failed.reason
    assert 0 < failed.result.value("queue_growth_per_s") < 1000
    assert trial(rate=1).result.value("queue_growth_per_s") == 0


def test_bursts_and_long_prompts_wait_longer() -> None:
    def p99(**options: object) -> float:
        return float(trial((), rate=4, **options).result.value("ttft_p99_s"))

    assert p99(arrival="constant") < p99() < p99(arrival="gamma:4")
    assert p99() < p99(input_lengths="12:1012", output_lengths="400")


def test_constraints_may_name_each_percentile_and_numbers_beside_it() -> None:
    assert len(PERCENTILES) == 12
    assert PERCENTILES < SIMULATED
    every = tuple(f"{name[:-2]} <= 1h" for name in sorted(PERCENTILES))
    assert trial((*every, "kv_cache_bytes < 60 GiB", "ttft_p50 <= ttft_p99 * 1s"), rate=2).fits


def test_without_arrivals_nothing_is_simulated_and_percentiles_of_other_targets_are_refused() -> None:
    plain = trial()
    assert plain.result.load is None
    assert plain.result.percentiles is None
    assert not load_flow(MODEL, "h100_sxm-2", "gpu").first_mode.simulates
    with pytest.raises(BadInput, match=r"ttft_p99_s is of text"):
        load_flow("resnet50", "bow-2000", constraints=(Constraint("ttft_p99 <= 1s"),))


def test_lengths_alone_need_a_rate_or_a_bound_and_are_given_once() -> None:
    with pytest.raises(BadInput, match=r"need a rate, or bounds"):
        trial(output_lengths="400:400")
    flow = load_flow(MODEL, "h100_sxm-2", "gpu", options={"rate": 2, "input_lengths": "10:100"})
    with pytest.raises(BadInput, match=r"55 tokens in the mean, got --input-tokens 512"):
        flow.evaluate(Knobs(1, 8, 1, engine="vllm", input_tokens=512, output_tokens=400))


def search(method: Method, constraints: tuple[str, ...], space: SearchSpace = SPACE, **options: object) -> SearchResult:
    flow = load_flow(MODEL, "h100_sxm-2", "gpu", options=options, constraints=tuple(map(Constraint, constraints)))
    return search_flow(flow, space, method=method, n_repeats=0)


def test_a_search_simulates_less_than_all_and_finds_the_best_of_all() -> None:
    exhaustive, guided = (
        search(method, (BOUND,), SPACE.with_values(n_ipu=(1,))) for method in (Method.EXHAUSTIVE, Method.GUIDED)
    )
    fitting = [each.samples_per_s for each in exhaustive.trials.values() if each.fits]
    assert len(fitting) > 2
    assert guided.best is not None
    assert guided.best.samples_per_s == max(fitting)
    assert guided.counts.n_tried < exhaustive.counts.n_tried


def test_what_may_keep_up_with_far_more_than_its_closed_loop_is_not_left_out() -> None:
    """vLLM hides its host behind kernels where requests arrive: the engine with the lower closed loop gives more."""
    flow = load_flow("Qwen/Qwen3-0.6B", "h100_sxm-1", "gpu", constraints=(Constraint("ttft_p99 <= 5s"),))
    tokens: dict[str, Any] = {"input_tokens": (128,), "output_tokens": (128,)}
    space = SearchSpace((1,), batch_size=(32,), engine=("vllm", "trtllm"), **tokens)
    exhaustive, guided = (
        search_flow(flow, space, method=method, n_repeats=0).best for method in (Method.EXHAUSTIVE, Method.GUIDED)
    )
    assert exhaustive is not None
    assert guided is not None
    assert guided.knobs == exhaustive.knobs
    assert guided.samples_per_s == exhaustive.samples_per_s
    for (knobs,) in space.cells:
        (bound,) = flow.forecasts((knobs,))
        assert flow.evaluate(knobs).samples_per_s <= bound.samples_per_s


def test_other_objectives_are_refused_where_requests_arrive() -> None:
    flow = load_flow(MODEL, "h100_sxm-2", "gpu", options={"rate": 2})
    with pytest.raises(BadInput, match="is for throughput, got --objective latency"):
        search_flow(flow, SPACE, "latency")


def test_a_search_at_a_rate_answers_with_what_carries_it() -> None:
    best = search(Method.GUIDED, (BOUND,), rate=8).best
    assert best is not None
    assert best.result.value("rate_per_s") == 8
    assert best.result.value("ttft_p99_s") <= 0.15
    too_much = search(Method.GUIDED, (BOUND,), SPACE.with_values(n_ipu=(1,), batch_size=(16,)), rate=10_000)
    assert too_much.best is None
    assert all(each.status is not Status.OK for each in too_much.trials.values())
