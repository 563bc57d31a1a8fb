"""What prefix caches have of prompts: by hand, and by a search of the prompts before."""

from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.evaluate.serving.rates import MIDDLE
from autoauto.evaluate.serving.traffic.goodput import OpenLoad
from autoauto.evaluate.serving.traffic.servers import OnePool, TwoPools
from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.traffic.load import BLOCK_TOKENS, Trace, TrafficLoad, cached_tokens
from autoauto.records.costs.traffic.requests import Requests
from tests.evaluate.serving.traffic.test_replica import replica

DRAWN = (("a", "b", "c"), ("a", "b", "d"), ("e",), ("a", "b", "c"))


@pytest.mark.parametrize(
    ("caches", "hits"),
    [
        ([100], [0, 2, 0, 3]),
        ([3], [0, 2, 0, 2]),
        ([2], [0, 2, 0, 1]),
        ([0], [0, 0, 0, 0]),
        ([100, 100], [0, 0, 0, 2]),
        ([100, 1], [0, 0, 0, 1]),
    ],
)
def test_hits_by_hand(caches: list[int], hits: list[int]) -> None:
    n_input = np.array([len(prompt) * BLOCK_TOKENS + 7 for prompt in DRAWN])
    kv_tokens = [n * BLOCK_TOKENS for n in caches]
    assert (cached_tokens(DRAWN, n_input, kv_tokens) // BLOCK_TOKENS).tolist() == hits
    assert not (cached_tokens(DRAWN, n_input, kv_tokens) % BLOCK_TOKENS).any()


def test_the_last_token_of_a_prompt_is_computed() -> None:
    assert cached_tokens([("a",), ("a",)], np.array([512, 400]), [4096]).tolist() == [0, 399]


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=30), st.integers(1, 3), st.integers(0, 9))
def test_hits_as_by_a_search_of_the_prompts_before(prompts: list[list[int]], n_replicas: int, n_blocks: int) -> None:
    # A block is named by all before it, as in a trace.
    named = [[tuple(prompt[: i + 1]) for i in range(len(prompt))] for prompt in prompts]
    n_input = np.full(len(named), 10 * BLOCK_TOKENS)
    hits = cached_tokens(named, n_input, [n_blocks * BLOCK_TOKENS] * n_replicas)
    expected = [
        _hits(named[number % n_replicas : number : n_replicas], named[number], n_blocks) for number in range(len(named))
    ]
    assert (hits // BLOCK_TOKENS).tolist() == expected


def _hits(before: Sequence[Sequence[Hashable]], prompt: Sequence[Hashable], n_blocks: int) -> int:
    """Blocks in the order of their last use, of a prompt the first block last."""
    used = [block for each in before for block in reversed(each)]
    newest = list(dict.fromkeys(reversed(used)))[:n_blocks]
    return next((i for i, block in enumerate(prompt) if block not in newest), len(prompt))


def talks(n_talks: int, n_turns: int) -> Trace:
    """Each talk asks again with all before, in turns with the others."""
    blocks = tuple(tuple((talk, i) for i in range(turn + 1)) for turn in range(n_turns) for talk in range(n_talks))
    n_input = np.array([len(prompt) * BLOCK_TOKENS + 1 for prompt in blocks])
    cached = n_input - 1 - BLOCK_TOKENS
    n = len(blocks)
    return Trace("0", Requests(np.arange(n) / 8.0, n_input, np.full(n, 20), cached), blocks)


def ttft_s(trace: Trace, servers: OnePool | TwoPools) -> float:
    load = OpenLoad(TrafficLoad(trace=trace), Workload(500, 20), lambda *_: servers, latency_s=1.0)
    return load.at(trace.rate_per_s, MIDDLE).ttft_s.mean


def test_a_simulated_replica_has_its_own_prompts_and_as_many_as_fit() -> None:
    trace, given_one = talks(6, 6), replica("vllm")
    large, small = given_one._replace(kv_tokens=100 * BLOCK_TOKENS), given_one._replace(kv_tokens=7 * BLOCK_TOKENS)
    known = Trace("0", trace.requests, ())  # nothing is known of blocks, and nothing cached
    assert ttft_s(trace, OnePool([large])) < 0.9 * ttft_s(known, OnePool([large]))
    assert ttft_s(trace, OnePool([large])) < 0.9 * ttft_s(trace, OnePool([small]))
    # Six talks by two replicas in turns: each replica has three talks whole; by four it has parts of all.
    assert OnePool([large, large]).caches() == [large.kv_tokens] * 2
    two, four = (cached_tokens(trace.blocks, trace.requests.input_tokens, [large.kv_tokens] * n) for n in (2, 4))
    assert two.tolist() == trace.requests.cached_tokens.tolist()
    assert four.sum() < two.sum()


def test_of_two_pools_the_workers_have_prompts() -> None:
    given_one = replica("vllm")
    worker = given_one._replace(kv_tokens=100 * BLOCK_TOKENS)
    pools = TwoPools([worker], [given_one, given_one], 1e-6)
    assert pools.caches() == [worker.kv_tokens]
    assert ttft_s(talks(6, 6), pools) < 0.9 * ttft_s(Trace("0", talks(6, 6).requests, ()), pools)
