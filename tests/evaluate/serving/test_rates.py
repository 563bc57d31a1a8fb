"""Steps of pipelines: drawn examples, a simulation step by step as an oracle, and what must hold for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.engines.engine import HostCosts
from autoauto.evaluate.serving.rates import Rates, StageSteps, rates_of
from autoauto.records.costs.decoder import Workload
from tests.targets.gpu.conftest import NO_HOST, engine_by_hand

BUDGET = 10_000
Row = list[float]


def rates(
    decode: Row, prompt: Row, b: float, requests: Workload, host: HostCosts = NO_HOST, mixes: bool = True
) -> Rates:
    """Of stages of one batch size without transfers."""
    stages = StageSteps(*(np.array(row)[:, None] for row in (decode, prompt, [0.0] * len(decode))))
    return rates_of(stages, np.array([b]), requests, engine_by_hand(mixes=mixes, host=host), BUDGET)


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


def test_every_stage_of_a_pipeline_waits_for_the_host() -> None:
    """With 4 sequences the host takes 3 ms of a step, and 5 ms of one of a pipeline."""
    host = HostCosts(0.001, 0.0005, 0.0, 0.0, 0.0005)
    assert rates([0.004], [0.0], 4, Workload(10, 1000), host).tpot_s == pytest.approx(0.007)
    assert rates([0.004, 0.004], [0.0, 0.0], 4, Workload(10, 1000), host).period_s == pytest.approx(0.009)
    assert rates([0.006, 0.002], [0.0, 0.0], 4, Workload(10, 1000), host).tpot_s == pytest.approx(2 * 0.011)


def test_prompts_first_delay_tokens_by_half_of_them_and_the_throughput_by_all() -> None:
    first = rates([0.004], [0.006], 10, Workload(100, 20), mixes=False)
    mixed = rates([0.004], [0.006], 10, Workload(100, 20), mixes=True)
    assert first.tpot_s == pytest.approx(0.0055)
    assert first.tokens_per_s == pytest.approx(mixed.tokens_per_s)


def test_steps_full_of_prompts_leave_requests_waiting() -> None:
    """A budget of 10,000 tokens holds 5 prompts of 2,000: with 100 sequences of 10 tokens 10 prompts a step come."""
    full = rates([0.004], [0.001], 100, Workload(2000, 10))
    assert full.tpot_s == pytest.approx(0.004 + 5 * 0.001)
    assert full.tokens_per_s == pytest.approx(100 / (0.004 + 10 * 0.001))
    assert full.ttft_s == pytest.approx(0.004 + 0.001 + 10 * 5 * 0.001)


def test_prompts_of_clients_that_come_together_wait_for_each_other() -> None:
    host = HostCosts(0.0, 0.0, 0.5, 0.25)
    result = rates([0.004], [0.006], 9, Workload(100, 20), host)
    assert result.ttft_s == pytest.approx(0.5 + 0.004 + 0.006 + 0.25 * (9 - 1) / 2 * 0.006)


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
