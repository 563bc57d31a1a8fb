"""How published rows were measured, and which requests come together."""

from __future__ import annotations

import pytest

from autoauto.engines.load_drivers import INFERENCEMAX, INFERENCEMAX_ROWS, VARYING, Arrivals, LoadDriver
from autoauto.engines.registry import engine_named
from autoauto.records.costs.decoder import Workload

REQUEST = Workload(1024, 1024)


def test_the_first_wave_and_a_share_of_alike_requests_come_together() -> None:
    assert Arrivals(10).share_together(0.0) == pytest.approx(0.1)
    assert Arrivals(10).share_together(0.5) == pytest.approx(0.1 + 0.9 * 0.5)
    assert VARYING.share_together(0.5) == pytest.approx(0.1)


def test_requests_of_mean_lengths_have_a_token_or_more() -> None:
    assert INFERENCEMAX.requests(REQUEST) == Workload(922, 922)
    assert INFERENCEMAX.requests(Workload(1, 1)) == Workload(1, 1)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_rows_that_say_nothing_of_their_source_are_measured_with_alike_requests(engine: str) -> None:
    assert engine_named(engine).measured.driver_of("", 4, REQUEST) == LoadDriver()


def test_only_requests_of_some_lengths_and_small_groups_wait_for_others() -> None:
    driver_of = engine_named("trtllm").measured.driver_of
    source = f"{INFERENCEMAX_ROWS}; silicon_concurrency=8"
    waits = {
        (tensor_parallel, lengths): driver_of(source, tensor_parallel, Workload(*lengths)).arrivals.wait_steps
        for tensor_parallel in (4, 8)
        for lengths in ((1024, 1024), (1024, 8192))
    }
    assert waits.pop((4, (1024, 1024))) == 20
    assert set(waits.values()) == {0}
    assert engine_named("vllm").measured.driver_of(source, 4, REQUEST) == INFERENCEMAX
