"""Latencies of a configuration over the rate of arrivals, with fewer and fewer of its replicas."""

from __future__ import annotations

from typing import Any

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.evaluate.serving.traffic import curves as module
from autoauto.evaluate.serving.traffic.goodput import RATE_STEP
from autoauto.records.costs.rate_curve import RateBound, RateCurves
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Trial
from autoauto.study.search import search_flow

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
pytestmark = pytest.mark.usefixtures("brief_loads")
BOUND = "ttft_p99 <= 150ms"
VALUES: dict[str, Any] = {"engine": "vllm", "input_tokens": 512, "output_tokens": 400}


def flow_of(*constraints: str, **options: object) -> Flow:
    bounds = tuple(map(Constraint, constraints))
    return load_flow("meta-llama/Meta-Llama-3.1-8B", "h100_sxm-2", "gpu", options=options, constraints=bounds)


def of_answer(flow: Flow, replicas: int = 2, batch_size: int = 32) -> tuple[Trial, RateCurves]:
    trial = flow.evaluate(Knobs(1, batch_size, replicas, **VALUES))
    curves = flow.mode(trial.knobs).rate_curves(trial)
    assert curves is not None
    return trial, curves


def test_the_highest_rate_of_all_replicas_is_that_of_the_answer() -> None:
    trial, curves = of_answer(flow_of(BOUND))
    alone, two = curves.lines
    rate = trial.result.value("rate_per_s")
    assert (alone.n_replicas, two.n_replicas) == (1, 2)
    assert two.highest == rate
    assert two.requests_per_s[two.beyond or 0] == pytest.approx(RATE_STEP * rate)
    assert two.broken == ("ttft_p99_s",)
    assert curves.bounds == (RateBound("ttft_p99_s", 0.15),)
    assert alone.highest is not None
    assert 0.3 * rate < alone.highest <= 0.5 * rate, "bursts are spread over two"


def test_a_line_ends_where_replicas_break_a_bound_and_says_what_they_give() -> None:
    _, curves = of_answer(flow_of(BOUND))
    for line in curves.lines:
        assert list(line.requests_per_s) == sorted(line.requests_per_s)
        assert line.beyond is not None
        assert line.keeps == (True,) * line.beyond + (False,) * (len(line.keeps) - line.beyond)
        ttft = line.values["ttft_p99_s"]
        assert all((time_s <= 0.15) is keeps for time_s, keeps in zip(ttft, line.keeps, strict=True))
        assert line.requests_per_s[line.beyond] <= 1.031 * (line.highest or 0)
        assert 5 <= len(ttft) <= 14


def test_replicas_alone_have_the_numbers_of_a_configuration_of_as_many() -> None:
    _, curves = of_answer(flow_of(BOUND))
    line = curves.lines[0]
    alone, of_one = of_answer(flow_of(BOUND, rate=line.requests_per_s[2]), replicas=1)
    assert line.requests_per_s[2] in of_one.lines[0].requests_per_s
    index = of_one.lines[0].requests_per_s.index(line.requests_per_s[2])
    assert of_one.lines[0].values["latency_p99_s"][index] == line.values["latency_p99_s"][2]
    assert alone.result.value("latency_p99_s") <= line.values["latency_p99_s"][2], "the middle of the interval"


def test_it_is_the_same_at_every_call_and_as_it_is_stored() -> None:
    trial, curves = of_answer(flow_of(BOUND))
    assert flow_of(BOUND).mode(trial.knobs).rate_curves(trial) == curves
    assert RateCurves.read(curves.text) == curves


def test_at_a_given_rate_without_bounds_it_goes_on_until_the_queue_grows() -> None:
    _, curves = of_answer(flow_of(rate=5), replicas=1)
    (line,) = curves.lines
    assert 5 in line.requests_per_s
    assert line.broken == ()
    assert line.beyond is not None
    growth = line.values["queue_growth_per_s"]
    assert growth[line.beyond] > 0
    assert not any(growth[: line.beyond])


def test_too_many_requests_leave_lines_out_and_closed_loops_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = flow_of(BOUND)
    trial, curves = of_answer(flow)
    monkeypatch.setattr(module, "MAX_REQUESTS", 4000)  # of the line of both, which has 8 loads of 250 or more
    fewer = flow.mode(trial.knobs).rate_curves(trial)
    assert fewer is not None
    assert fewer.lines == curves.lines[1:]
    monkeypatch.setattr(module, "MAX_REQUESTS", 1000)
    assert flow.mode(trial.knobs).rate_curves(trial) is None
    closed = flow_of()
    of_closed = closed.evaluate(Knobs(1, 32, 1, **VALUES))
    assert closed.mode(of_closed.knobs).rate_curves(of_closed) is None


def test_bounds_are_those_on_times_alone() -> None:
    _, curves = of_answer(flow_of("tokens_per_s > 1 and ttft_p99 <= 1s", "request_latency <= 20s"), replicas=1)
    assert curves.bounds == (RateBound("ttft_p99_s", 1.0), RateBound("latency_s", 20.0))
    assert set(curves.lines[0].broken) <= {"ttft_p99_s", "latency_s"}


def test_a_search_stores_them_with_its_answer() -> None:
    space = SearchSpace(
        n_ipu=(1,), replicas=(1, 2), batch_size=(16,), engine=("vllm",), input_tokens=(512,), output_tokens=(400,)
    )
    result = search_flow(flow_of(BOUND), space, n_repeats=0)
    assert result.summary is not None
    assert result.best is not None
    curves = result.summary.rate_curves
    assert curves is not None
    assert curves.lines[-1].highest == result.best.result.value("rate_per_s")
    assert curves.lines[-1].n_replicas == result.best.knobs.replicas
