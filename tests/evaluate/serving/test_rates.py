"""Steps of pipelines: drawn examples, a simulation step by step as an oracle, and what must hold for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.engines.engine import HostCosts
from autoauto.engines.load_drivers import VARYING, Arrivals
from autoauto.evaluate.serving.rates import Rates, StageSteps, rates_of
from autoauto.records.costs.decoder import Speculation, Workload
from tests.targets.gpu.conftest import NO_HOST, engine_by_hand

BUDGET = 10_000
STEADY = Arrivals(n_waves=10**9)
"""The first wave does not count."""
Row = list[float]


def rates(
    decode: Row,
    prompt: Row,
    b: float,
    requests: Workload,
    host: HostCosts = NO_HOST,
    mixes: bool = True,
    arrivals: Arrivals = STEADY,
) -> Rates:
    """Of stages of one batch size without transfers."""
    stages = StageSteps(*(np.array(row)[:, None] for row in (decode, prompt, [0.0] * len(decode))))
    return rates_of(stages, np.array([b]), requests, engine_by_hand(mixes=mixes, host=host), BUDGET, arrivals)


def test_one_stage_takes_a_decode_step_and_its_share_of_prompts() -> None:
    """Of 10 sequences with answers of 20 tokens, one starts every second step: 4 ms, and 6 ms more every second."""
    result = rates([0.004], [0.006], 10, Workload(100, 20))
    assert result.tpot_s == pytest.approx(0.007)
    assert result.tokens_per_s == pytest.approx(10 / 0.007)
    assert result.requests_per_s == pytest.approx(10 / 0.007 / 20)
    assert result.ttft_s == pytest.approx(0.004 + 0.006)


def test_the_slowest_stage_is_the_period_and_a_token_takes_all_of_them() -> None:
    """Stages of 2, 3 and 1 ms: every 3 ms a micro-batch ends, and its next token ends three periods later."""
    result = rates([0.002, 0.003, 0.001], [0.0, 0.0, 0.0], 8, Workload(10, 1000))
    assert result.period_s == pytest.approx(0.003)
    assert result.tpot_s == pytest.approx(0.009)
    assert result.tokens_per_s == pytest.approx(8 / 0.003)


def test_accepted_drafts_give_several_tokens_a_step() -> None:
    """An answer of 21 tokens takes one step with its prompt and 10 more of 2 tokens: 10 of 11 steps have a prompt."""
    drafted = Workload(100, 21, Speculation(2.0, 3))
    result = rates([0.004], [0.0066], 10, drafted)
    assert result.tpot_s == pytest.approx(0.010 / 2)
    assert result.tokens_per_s == pytest.approx(10 * 21 / 11 / 0.010)
    assert result.requests_per_s == pytest.approx(10 / 11 / 0.010)
    latency_s = result.ttft_s + 20 * result.tpot_s
    assert latency_s == pytest.approx(0.004 + 0.0066 + 10 * 0.010)


def test_drafts_that_accept_one_token_change_no_digit() -> None:
    plain = rates([0.004, 0.003], [0.006, 0.001], 37, Workload(1037, 213))
    drafted = rates([0.004, 0.003], [0.006, 0.001], 37, Workload(1037, 213, Speculation(1.0, 3)))
    assert plain == drafted


def test_cached_prompts_fill_steps_less() -> None:
    """Steps hold 5 prompts of 2,000 tokens, or 10 of which half is cached."""
    full = rates([0.004], [0.001], 100, Workload(2000, 10, cached_share=0.5))
    assert full.tpot_s == pytest.approx(0.004 + 10 * 0.001)


def test_every_stage_of_a_pipeline_waits_for_the_host() -> None:
    """With 4 sequences the host takes 3 ms of a step, and 5 ms of one of a pipeline."""
    host = HostCosts(0.001, 0.0005, 0.0, 0.0, 0.0005)
    assert rates([0.004], [0.0], 4, Workload(10, 1000), host).tpot_s == pytest.approx(0.007)
    assert rates([0.004, 0.004], [0.0, 0.0], 4, Workload(10, 1000), host).period_s == pytest.approx(0.009)
    assert rates([0.006, 0.002], [0.0, 0.0], 4, Workload(10, 1000), host).tpot_s == pytest.approx(2 * 0.011)


def test_prompts_first_delay_tokens_by_half_of_those_that_come_together_and_the_throughput_by_all() -> None:
    together = HostCosts(0.0, 0.0, 0.0, 1.0, 0.0)
    first = rates([0.004], [0.006], 10, Workload(100, 20), together, mixes=False)
    mixed = rates([0.004], [0.006], 10, Workload(100, 20), mixes=True)
    assert first.tpot_s == pytest.approx(0.0055)
    assert first.tokens_per_s == pytest.approx(mixed.tokens_per_s)
    alone = rates(
        [0.004], [0.006], 10, Workload(100, 20), together, mixes=False, arrivals=VARYING._replace(n_waves=10**9)
    )
    assert alone.tpot_s == pytest.approx(mixed.tpot_s)


def test_steps_full_of_prompts_leave_requests_waiting() -> None:
    """A budget of 10,000 tokens holds 5 prompts of 2,000: with 100 sequences of 10 tokens 10 prompts a step come."""
    full = rates([0.004], [0.001], 100, Workload(2000, 10))
    assert full.tpot_s == pytest.approx(0.004 + 5 * 0.001)
    assert full.tokens_per_s == pytest.approx(100 / (0.004 + 10 * 0.001))
    assert full.ttft_s == pytest.approx(0.004 + 0.001 + 10 * 5 * 0.001)


def test_prompts_of_the_first_wave_are_computed_step_by_step() -> None:
    """Of 5 requests, 2 fit a step: first tokens come after 2, 4 and 5 prompts, in the mean 3.4, and 1.8 steps."""
    wave = rates([0.004], [0.006], 5, Workload(BUDGET // 2, 20), arrivals=Arrivals(n_waves=1))
    assert wave.ttft_s == pytest.approx(3.4 * 0.006 + 1.8 * 0.004)
    waves = rates([0.004], [0.006], 5, Workload(BUDGET // 2, 20), arrivals=Arrivals(n_waves=10))
    assert waves.ttft_s == pytest.approx(0.010 + (2.4 * 0.006 + 0.8 * 0.004) / 10)


def test_waits_of_a_load_that_begins_at_once_are_in_the_latency_alone() -> None:
    """Requests at once x output tokens / latency is below tokens/s by the wait for the first wave."""
    steady, loaded = (
        rates([0.004], [0.006], 64, Workload(2000, 20), arrivals=arrivals) for arrivals in (STEADY, Arrivals())
    )
    assert loaded.tokens_per_s == steady.tokens_per_s == pytest.approx(64 / loaded.tpot_s)
    wait_s = loaded.ttft_s - steady.ttft_s
    assert wait_s > 0
    assert 64 * 20 / (loaded.ttft_s + 19 * loaded.tpot_s) < loaded.tokens_per_s


def test_of_requests_of_one_length_a_share_comes_together_again() -> None:
    host = HostCosts(0.0, 0.0, 0.5, 0.25, 0.0)
    result = rates([0.004], [0.006], 9, Workload(100, 20), host)
    assert result.ttft_s == pytest.approx(0.5 + 0.004 + 0.006 + 0.25 * 8 * 0.006)


def test_requests_of_one_length_are_behind_a_step_in_progress_if_there_are_others() -> None:
    stages = StageSteps(np.array([[0.004]]), np.array([[0.006]]), np.zeros((1, 1)))
    engine = engine_by_hand(host=NO_HOST._replace(n_behind=2.0))
    alone, beside = (rates_of(stages, np.array([b]), Workload(100, 20), engine, BUDGET, STEADY) for b in (1.0, 9.0))
    assert alone.ttft_s == pytest.approx(0.010)
    assert beside.ttft_s == pytest.approx(0.010 + 2 * 0.006)


def test_requests_of_unlike_lengths_queue_as_they_come() -> None:
    """Prompts take 5 / 20 x 6 ms of a step of 5.5 ms: 27 % of the time, so that half of 0.27 / 0.73 prompts wait."""
    result = rates([0.004], [0.006], 5, Workload(100, 20), arrivals=VARYING._replace(n_waves=10**9))
    busy = 5 / 20 * 0.006 / 0.0055
    assert result.ttft_s == pytest.approx(0.010 + busy / (1 - busy) / 2 * 0.006)


def test_what_an_engine_waits_for_delays_the_first_token() -> None:
    arrivals = STEADY._replace(wait_steps=20)
    assert rates([0.004], [0.006], 5, Workload(100, 20), arrivals=arrivals).ttft_s == pytest.approx(0.010 + 20 * 0.004)
    arrivals = VARYING._replace(warm_up_s=5.0)
    warmed = rates([0.004], [0.006], 1, Workload(100, 20), arrivals=arrivals).ttft_s
    assert warmed == pytest.approx(0.010 + 5 / 10)


def test_batch_sizes_are_answered_together_as_one_by_one() -> None:
    b = np.array([1.0, 7.0, 30.0])
    decode, prompt = np.array([0.001, 0.002, 0.004]), np.array([0.01, 0.009, 0.008])
    stages = StageSteps(np.stack([decode, decode / 2]), np.stack([prompt, prompt]), np.zeros((2, 3)))
    together = rates_of(stages, b, Workload(50, 40), engine_by_hand(), BUDGET)
    alone = [rates([d, d / 2], [p, p], n, Workload(50, 40)) for d, p, n in zip(decode, prompt, b, strict=True)]
    assert together.tpot_s.tolist() == pytest.approx([each.tpot_s.item() for each in alone])


def simulated_tpot(decode_s: float, prompt_s: float, b: int, n_out: int) -> float:
    """The mean time between tokens of clients whose first requests come a step apart; each asks again when it is done.

    A step decodes all that have a first token, and computes the prompts of all that ask.
    """
    n_of, first_at = dict.fromkeys(range(b), 0), dict.fromkeys(range(b), 0.0)
    clock, means = 0.0, []
    for step in range(40 * n_out):
        asking = [i for i in range(min(b, step + 1)) if n_of[i] in (0, n_out)]
        clock += decode_s + prompt_s * len(asking)
        for i in range(min(b, step + 1)):
            n_of[i] = 1 if i in asking else n_of[i] + 1
            if n_of[i] == 1:
                first_at[i] = clock
            if n_of[i] == n_out:
                means.append((clock - first_at[i]) / (n_out - 1))
    return float(np.mean(means[len(means) // 2 :]))


@pytest.mark.parametrize(("b", "n_out"), [(4, 16), (10, 20), (12, 12)])
def test_a_simulation_of_mixed_steps_has_the_same_time_between_tokens(b: int, n_out: int) -> None:
    result = rates([0.004], [0.006], b, Workload(100, n_out)).tpot_s.item()
    assert simulated_tpot(0.004, 0.006, b, n_out) == pytest.approx(result, rel=0.1)


seconds = st.floats(1e-4, 1.0)


@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=5), st.integers(1, 200), st.integers(1, 500))
def test_tokens_come_no_faster_than_stages_and_the_law_of_little_holds(
    stages: list[tuple[float, float]], b: int, n_out: int
) -> None:
    decode, prompt = map(list, zip(*stages, strict=True))
    result = rates(decode, prompt, b, Workload(10, n_out))
    assert result.period_s.item() >= max(decode)
    assert result.tpot_s.item() <= len(stages) * result.period_s.item() * (1 + 1e-9)
    in_flight = result.tokens_per_s.item() * result.period_s.item()
    assert in_flight == pytest.approx(b)
