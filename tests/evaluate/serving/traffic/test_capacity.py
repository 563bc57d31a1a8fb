"""The bound of a rate against simulated replicas, and its prices against steps of every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoauto.engines.registry import ENGINES
from autoauto.evaluate.serving.traffic.capacity import largest_rate, lowest_seconds
from autoauto.evaluate.serving.traffic.forecast import traffic_of
from autoauto.evaluate.serving.traffic.replica import Replica, StepTimes
from autoauto.evaluate.serving.traffic.steps import Steps
from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.traffic.arrivals import ArrivalProcess
from autoauto.records.costs.traffic.load import Lengths, TrafficLoad
from autoauto.records.costs.traffic.requests import Requests
from tests.drawn import daily, n_drawn

ENGINE_NAMES = [name for name in ENGINES if ENGINES[name].step_rules.block_tokens]


def replica(rng: np.random.Generator, engine: str, **changes: Any) -> Replica:
    """With steps of random sizes, whose times grow unevenly: some products are slower than larger ones."""
    n_sequences, n_ranks = int(rng.integers(1, 65)), int(rng.choice([1, 1, 2, 4]))
    sequences = np.unique(np.concatenate([[0, 1, n_sequences], rng.integers(1, n_sequences + 1, 6)]))
    lengths = np.array([1, 64, 512, 4096])
    tokens = np.array([1, 16, 128, 1024, 8192])
    parts, before = np.array([1, 512, 8192]), np.array([0, 512, 8192])
    host_s, uneven = float(rng.uniform(0, 5e-3)), rng.uniform(0.7, 1.3, (len(sequences), 1))
    reads_s = rng.uniform(0, 2e-7) * sequences[:, None] * lengths
    decode_s = uneven * (2e-3 + rng.uniform(0, 1e-4) * sequences[:, None]) + reads_s + host_s
    decode_s[0] = 0.0
    token_s = rng.uniform(0.7, 1.3, len(tokens)) * (2e-3 + rng.uniform(1e-6, 1e-4) * tokens)
    attention_s = rng.uniform(0, 1e-9) * parts[:, None] * (before + parts[:, None] / 2)
    steps = Steps(sequences, lengths, decode_s, tokens, token_s, parts, before, attention_s, 1, 1.0, host_s, n_ranks)
    chosen, budget = ENGINES[engine], int(rng.integers(n_sequences + 64, 4096))
    made = Replica(steps, chosen.step_rules, chosen.mixes, n_sequences, 1_000_000, budget, budget)
    return made._replace(**changes)


def load(rng: np.random.Generator) -> TrafficLoad:
    shortest, answer = int(rng.integers(1, 500)), int(rng.integers(1, 100))
    return TrafficLoad(
        process=ArrivalProcess(float(rng.choice([0.0, 1.0, 3.0]))),
        input_lengths=Lengths.of(f"{shortest}:{shortest + int(rng.integers(0, 1000))}"),
        output_lengths=Lengths.of(f"{answer}:{answer + int(rng.integers(0, 100))}"),
    )


@pytest.mark.parametrize("engine", ENGINE_NAMES)
@pytest.mark.parametrize("seed", daily(range(6), 3))
def test_above_the_largest_rate_replicas_are_overloaded(engine: str, seed: int) -> None:
    rng = np.random.default_rng([seed, 7])
    given, traffic = replica(rng, engine), load(rng)

    def requests_at(rate: float) -> Requests:
        return traffic.requests(rate, Workload(1, 1), latency_s=1.0)

    largest = largest_rate([given, given], requests_at, about=5.0)
    assert 0 < largest < float("inf")
    assert traffic_of([given, given], requests_at(1.001 * largest)).is_overloaded
    assert not traffic_of([given, given], requests_at(0.3 * largest)).is_overloaded  # so it says something


@pytest.mark.drawn
@pytest.mark.parametrize("engine", ENGINE_NAMES)
@pytest.mark.parametrize("seed", range(10))
def test_no_step_is_cheaper_than_what_its_requests_are_charged(engine: str, seed: int) -> None:
    """A step of n sequences of one length and one part of a prompt, against one request each that has just these."""
    rng = np.random.default_rng([seed, 11])
    given = replica(rng, engine)
    times = StepTimes(given.steps, given.n_sequences)
    arrival = np.array([0.0])

    def charged(n_input: int, n_output: int, n_cached: int) -> float:
        columns = (np.array([number]) for number in (n_input, n_output, n_cached))
        return float(lowest_seconds(given, Requests(arrival, *columns))[0])

    for _ in range(n_drawn(200)):
        n_input, n_output = int(rng.integers(1, 4000)), int(rng.integers(1, 90))
        part = int(rng.integers(1, min(given.part_tokens, n_input) + 1))
        alone = times.prompts(0, [(part, 0)])
        for _ in range(n_output - 1):  # one sequence alone, its prompt in one step where that is allowed
            alone += times.decode(1, n_input)[0]
        assert charged(n_input, n_output, n_input - part) <= alone * (1 + 1e-9)


def test_the_bound_of_steps_that_are_linear_is_what_replicas_reach() -> None:
    """No step is longer than its sequences and tokens: work is what it is, whatever the order."""
    sequences, lengths = np.arange(9), np.array([1, 1000])
    tokens, parts = np.array([1, 10_000]), np.array([1, 10_000])
    decode_s = 1e-3 * sequences[:, None] + 0.0 * lengths
    steps = Steps(
        sequences, lengths, decode_s, tokens, 1e-5 * tokens, parts, parts - 1, np.zeros((2, 2)), 1, 1.0, 0.0, 1
    )
    chosen = next(each for each in ENGINES.values() if each.mixes)
    given = Replica(steps, chosen.step_rules, True, 8, 100_000, 4096, 4096)
    traffic = TrafficLoad(process=ArrivalProcess(0.0))

    def requests_at(rate: float) -> Requests:
        return traffic.requests(rate, Workload(100, 11), latency_s=1.0)

    by_hand = 1 / (10 * 1e-3 + 100 * 1e-5)  # ten steps after the first token, and a hundred tokens
    largest = largest_rate([given], requests_at, by_hand)
    n = len(requests_at(by_hand).arrival_s)
    assert by_hand < largest == pytest.approx(by_hand * n / (n - int(2 * n**0.5 if n < 10_000 else 0.02 * n) - 8))
    assert lowest_seconds(given, requests_at(1.0)) == pytest.approx(1 / by_hand)
