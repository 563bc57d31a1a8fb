"""Which configuration of engines is measured next, and what failures and bounds of their own rule out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoauto.load.tokens import TokenMeasurement
from autoauto.records.costs.traffic.requests import Percentiles
from autoauto.space.constraint import Constraint
from autoauto.space.engine_measurements import EngineForecast, EngineRow, Expected
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.numbers import DeviceTotals
from autoauto.space.objectives import Objective
from autoauto.space.trial import Status, Trial
from autoauto.study.methods.engines.engine_loop import EngineLoop, plain_trial, takes_as_much
from autoauto.targets.gpu.session import GpuSession

MODE = Generation(input_tokens=100, output_tokens=100)


def knobs(tensor_parallel: int, batch_size: int, max_batched_tokens: int = 8192) -> Knobs:
    session = GpuSession("vllm", tensor_parallel, max_batched_tokens=max_batched_tokens)
    return Knobs(1, batch_size, replicas=8 // tensor_parallel, session=session, mode=MODE)


SPACE = [knobs(group, batch) for group in (1, 2, 4, 8) for batch in (8, 32, 128)]


def forecast(of: Knobs) -> Trial:
    """Small groups and large batches give most."""
    group = of.session.tensor_parallel  # type: ignore[attr-defined]
    tpot_s = 0.01 * (1 + of.batch_size / 32) / group**0.8
    return plain_trial(of, of.batch_size * of.replicas / tpot_s, tpot_s, 10 * tpot_s, 110 * tpot_s)


def measured(of: Knobs, ratio: float = 1.0, ttft_ratio: float = 1.0) -> EngineRow:
    """What is measured where times are so many times the forecast."""
    tokens = forecast(of).tokens
    tpot_s, ttft_s = ratio * tokens.tpot_s, ratio * ttft_ratio * tokens.ttft_s
    ttft, tpot, latency = (Percentiles(*[value] * 5) for value in (ttft_s, tpot_s, ttft_s + 99 * tpot_s))
    turn = TokenMeasurement(tokens.tokens_per_s / ratio, 0.01, ttft, tpot, tpot, latency, 100, 0, 10_000, 1.0)
    expected = Expected(1.0, 1.0, 1.0)
    return EngineRow(of, (), 8, EngineForecast(expected, expected, expected, 1.0), Status.OK, turns=(turn,))


def loop_of(*bounds: str, known: tuple[Knobs, ...] = (), noise: float = 0.01) -> EngineLoop:
    trials = list(map(forecast, SPACE))
    return EngineLoop(trials, Objective.THROUGHPUT, list(map(Constraint, bounds)), noise, known)


def test_the_best_forecast_is_first_and_then_what_measurements_make_likely() -> None:
    loop = loop_of()
    first = loop.candidate()
    assert first == knobs(1, 128)
    loop.add(measured(knobs(1, 128), 3.0))
    loop.add(measured(knobs(2, 128), 1.0))
    assert loop.answer() == knobs(2, 128)
    assert loop.candidate() != knobs(1, 32)  # slow, too, by its neighbour
    [ratio] = loop.ratios()
    assert (ratio.engine, ratio.n_measured) == ("vllm", 2)
    assert ratio.low < ratio.ratio < ratio.high


def test_a_bound_holds_by_what_was_measured() -> None:
    """All are twice as slow as forecast."""
    bound = 1.05 * forecast(knobs(4, 128)).tokens.tpot_s
    loop = loop_of(f"tpot_s <= {bound}")
    loop.add(measured(knobs(4, 128), 2.0))
    assert loop.answer() is None
    loop.add(measured(knobs(8, 128), 2.0))
    answer = loop.candidate()
    assert answer is not None
    assert 2 * forecast(answer).tokens.tpot_s <= bound


def test_times_to_first_token_have_a_ratio_of_their_own() -> None:
    """They are ten times as long where TPOT is as forecast: bounds on them are seen to break elsewhere, too."""
    bound = 1.5 * forecast(knobs(1, 32)).tokens.ttft_s
    alike, own = loop_of(f"ttft_s <= {bound}"), loop_of(f"ttft_s <= {bound}")
    for loop, ratio in ((alike, 1.0), (own, 10.0)):
        loop.add(measured(knobs(1, 8), 1.0, ratio))
    likely, other = alike.candidate(), own.candidate()
    assert likely is not None
    assert other is not None
    assert forecast(likely).tokens.ttft_s <= bound
    assert forecast(other).tokens.ttft_s < forecast(likely).tokens.ttft_s


def test_what_needs_no_less_memory_is_ruled_out() -> None:
    failed = knobs(2, 32)
    assert takes_as_much(knobs(2, 128), failed)
    assert not takes_as_much(knobs(2, 8), failed)
    assert not takes_as_much(knobs(4, 128), failed)
    assert not takes_as_much(knobs(2, 128, max_batched_tokens=1024), failed)
    loop = loop_of()
    loop.add(measured(knobs(1, 8)))
    assert loop.rule_out(lambda other: takes_as_much(other, knobs(1, 8))) == 2  # not what was measured
    assert loop.candidate() == knobs(2, 128)


def test_bounds_that_time_does_not_change_hold_before() -> None:
    space = [replace_cache(trial) for trial in map(forecast, SPACE)]
    loop = EngineLoop(space, Objective.THROUGHPUT, [Constraint("kv_cache_bytes <= 100")], 0.01)
    assert {trial.knobs.batch_size for trial in loop.trials} == {8, 32}


def replace_cache(trial: Trial) -> Trial:
    tokens = replace(trial.tokens, kv_cache_bytes=trial.knobs.batch_size)
    return replace(trial, result=replace(trial.result, of_mode=tokens))


def test_a_bound_on_the_price_holds_by_what_was_measured() -> None:
    priced = []
    for trial in map(forecast, SPACE):
        priced.append(replace(trial, result=replace(trial.result, devices=DeviceTotals(8.0))))
    best = max(priced, key=Objective.COST.worth)
    bound = Constraint(f"usd_per_million <= {1.5 * best.result.derived['usd_per_million']}")
    for ratio, answer in ((1.2, best.knobs), (2.0, None)):
        loop = EngineLoop(priced, Objective.COST, [bound], 0.01)
        loop.add(measured(best.knobs, ratio))
        assert loop.answer() == answer, "at twice the time a million tokens cost twice as much"


def test_ties_are_said_and_what_was_known_stays() -> None:
    loop = loop_of(known=(knobs(8, 8),), noise=0.01)
    assert loop.trials[0].knobs == knobs(8, 8)
    best, other = forecast(knobs(1, 128)), forecast(knobs(2, 128))
    loop.add(measured(knobs(1, 128)))
    loop.add(measured(knobs(2, 128), other.samples_per_s / best.samples_per_s))
    assert loop.ties() == [knobs(2, 128)] or loop.ties() == [knobs(1, 128)]


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.LATENCY])
def test_objectives_count_by_their_worth(objective: Objective) -> None:
    trials = list(map(forecast, SPACE))
    loop = EngineLoop(trials, objective, (), 0.01)
    assert loop.candidate() == max(trials, key=objective.worth).knobs
