"""What binds under requests that arrive, each forced in a simulated replica, and the table of highest rates."""

from __future__ import annotations

import pytest

from autoauto.engines.registry import ENGINES
from autoauto.evaluate.serving.traffic.forecast import traffic_of
from autoauto.evaluate.serving.traffic.trials import open_result
from autoauto.records.costs.rate_curve import RateBound, RateCurves, RateLine
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.target import Origin
from autoauto.report.html import study_page
from autoauto.report.notebook import record_html
from autoauto.report.tables.traffic import Binding, load_facts, rates_table
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result, TokenResult
from autoauto.space.objectives import Objective
from autoauto.space.study_summary import RATE_CURVES, StudySummary
from autoauto.space.trial import Status, Trial
from tests.evaluate.serving.traffic.test_replica import random_requests, replica

PLAN = Plan((Stage(LayerRange(0, 3), 0, 100, 0, 10, 10, {}, 1000),))
KNOBS = Knobs(1, 32, 1, engine="vllm", input_tokens=800, output_tokens=200, max_batched_tokens=2048)


def result_at(rate: float, engine: str = "vllm", kv_tokens: int = 300_000, step_tokens: int = 2048) -> Result:
    """What a made-up replica gives: 32 sequences at most, steps of 5 ms and more."""
    requests = random_requests(5, 600, rate)
    simulated = traffic_of([replica(engine, kv_tokens=kv_tokens, step_tokens=step_tokens)], requests)
    return open_result(simulated, rate, TokenResult(1000.0, 0.01, 0.1))


def binding(result: Result, *broken: str) -> Binding:
    """What binds where the bounds on these times break."""
    (fact,) = load_facts(Trial(KNOBS, Status.OK, result=result), beyond(result, broken))
    return Binding(fact.headline)


def beyond(result: Result, broken: tuple[str, ...]) -> RateCurves:
    """Curves whose only rate is too high, since these times break their bounds."""
    values = {name: (value,) for name, value in result.values.items() if value is not None}
    assert result.load is not None
    assert result.load.rate_per_s
    line = RateLine(1, (result.load.rate_per_s,), (False,), values, broken)
    return RateCurves((line,), tuple(RateBound(name, 0.001) for name in broken))


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_small_kv_cache_binds_whether_sequences_are_taken_back_or_wait(engine: str) -> None:
    result = result_at(8.0, engine, kv_tokens=14_000)
    assert result.value("n_waiting_kv") > 0
    assert binding(result, "ttft_p99_s") is Binding.KV_CACHE
    if result.value("n_preempted"):
        assert binding(result, "tpot_p99_s") is Binding.KV_CACHE, "who is taken back waits between tokens"


def test_few_tokens_a_step_bind_and_of_a_tpot_bound_do_not() -> None:
    result = result_at(5.0, step_tokens=40)
    assert result.value("n_waiting_kv") == 0
    assert binding(result, "ttft_p99_s") is Binding.PREFILL_BUDGET
    assert binding(result, "tpot_p99_s") is Binding.STEP_TIME, "small parts of prompts make steps short"


def test_a_tight_bound_on_tpot_is_the_time_of_steps() -> None:
    result = result_at(3.0)
    assert binding(result, "tpot_p99_s") is Binding.STEP_TIME
    assert binding(result, "latency_p99_s") is Binding.STEP_TIME
    assert (
        "hardly any request waits for room"
        in load_facts(Trial(KNOBS, Status.OK, result=result), beyond(result, ("tpot_p99_s",)))[0].text
    )


def test_a_high_rate_waits_for_sequences_to_end() -> None:
    result = result_at(60.0)
    assert binding(result, "ttft_p99_s", "latency_p99_s") is Binding.QUEUE
    assert binding(result) is Binding.QUEUE, "no bound breaks, but the queue grows"
    (fact,) = load_facts(Trial(KNOBS, Status.OK, result=result), beyond(result, ()))
    assert "until one of 32 sequences of a replica ends" in fact.text
    assert "the queue grows by" in fact.text
    assert fact.share == pytest.approx(1.0, abs=0.1)


def test_nothing_binds_a_configuration_that_has_little_to_do() -> None:
    (fact,) = load_facts(Trial(KNOBS, Status.OK, result=result_at(0.5)))
    assert fact.headline == Binding.NOTHING
    assert fact.text.startswith("at 0.5 requests/s hardly any request waits")
    assert load_facts(Trial(KNOBS, Status.OK, result=Result(1.0, of_mode=TokenResult(1.0, 0.01, 0.1)))) == ()


def test_waits_are_parts_of_what_waits() -> None:
    for result in (result_at(60.0), result_at(8.0, kv_tokens=14_000), result_at(5.0, step_tokens=40)):
        parts = [result.value(f"n_waiting_{name}") for name in ("kv", "tokens", "sequences")]
        assert 0.3 * result.value("n_waiting") < sum(parts) <= 1.001 * result.value("n_waiting")


def summary() -> StudySummary:
    result = result_at(60.0)
    values = {name: (value, value) for name, value in result.values.items() if value is not None}
    values |= {"queue_growth_per_s": (0.0, 2.0)}
    line = RateLine(1, (30.0, 60.0), (True, False), values)
    broken = line._replace(n_replicas=2, requests_per_s=(60.0, 66.0), broken=("ttft_p99_s",))
    curves = RateCurves((line, broken), (RateBound("ttft_p99_s", 0.7),), KNOBS.values)
    winner = Trial(KNOBS, Status.OK, measured=PLAN, result=result, number=0, origin=Origin.MODELLED, values=(1000.0,))
    return StudySummary("s", "", Objective.THROUGHPUT, {RATE_CURVES: curves.text}, (winner,), (), (winner,))


def test_the_table_has_the_highest_rate_of_every_number_of_replicas() -> None:
    table = rates_table(summary().rate_curves)
    assert table is not None
    assert [row[:2] for row in table.rows] == [("1 replica", "30"), ("2 replicas", "60")]
    assert table.rows[0][2] == "the queue grows by 2 requests/s"
    assert str(table.rows[1][2]).startswith("TTFT p99 ")
    assert rates_table(None) is None


def test_pages_and_notebooks_draw_them() -> None:
    page = study_page(summary(), (), None, ())
    assert "Latency over the request rate" in page
    assert "Highest rate of arrivals</h2>" in page
    assert "beyond 60 requests/s TTFT p99" in page
    notebook = record_html(summary())
    assert 'alt="Latency over the request rate"' in notebook
    assert "Highest rate of arrivals, simulated" in notebook


def test_curves_of_another_answer_are_not_shown() -> None:
    of_another = summary()
    winner = Trial(KNOBS.with_values(batch_size=8), Status.OK, measured=PLAN, number=0)
    other = StudySummary("s", "", Objective.THROUGHPUT, of_another.attributes, (winner,), (), (winner,))
    assert of_another.rate_curves is not None
    assert other.rate_curves is None


def test_the_highest_rate_says_what_comes_beyond_it_and_none_where_the_lowest_is_too_high() -> None:
    """Of all rates kept, of a growing queue, of a bound, and of another constraint."""
    columns = {"queue_growth_per_s": (0.0, 1.5), "ttft_p99_s": (0.2, 0.7)}
    lines = (
        RateLine(1, (10.0, 20.0), (True, True), columns),
        RateLine(2, (10.0, 20.0), (True, False), columns),
        RateLine(3, (10.0, 20.0), (True, False), columns, ("ttft_p99_s",)),
        RateLine(4, (10.0, 20.0), (True, False), {**columns, "queue_growth_per_s": (0.0, 0.0)}),
        RateLine(5, (10.0, 20.0), (False, False), columns),
    )
    table = rates_table(RateCurves(lines))
    assert table is not None
    assert [[*row] for row in table.rows] == [
        ["1 replica", "–", "keeps all up to 20 requests/s"],
        ["2 replicas", "10", "the queue grows by 1.5 requests/s"],
        ["3 replicas", "10", "TTFT p99 700 ms"],
        ["4 replicas", "10", "a constraint does not hold"],
        ["5 replicas", "–", "a constraint does not hold"],
    ]
