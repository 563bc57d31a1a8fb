"""Requests that are drawn: their lengths, times between them, and what stays the same at another rate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.rate_curve import RateLine
from autoauto.records.costs.traffic.arrivals import ArrivalProcess
from autoauto.records.costs.traffic.load import Lengths, Trace, TrafficLoad
from autoauto.records.costs.traffic.requests import Requests
from autoauto.records.errors import BadInput

ALIKE = Workload(1000, 100)


def drawn(traffic: TrafficLoad, rate_per_s: float = 10.0, alike: Workload = ALIKE, latency_s: float = 50.0) -> Requests:
    return traffic.requests(rate_per_s, alike, latency_s)


def test_lengths_of_a_range_are_alike_often() -> None:
    shares = (np.arange(10_000) + 0.5) / 10_000
    lengths = Lengths.of("3:6").at(shares)
    assert np.unique(lengths, return_counts=True)[1].tolist() == [2500] * 4
    assert Lengths.of("512").at(shares).tolist() == [512] * len(shares)


def test_lengths_by_percentiles_have_these_percentiles() -> None:
    lengths = Lengths.of("p50=512,p90=2048,p99=3000").at((np.arange(20_000) + 0.5) / 20_000)
    assert np.percentile(lengths, [50, 90, 99]) == pytest.approx([512, 2048, 3000], rel=0.005)
    assert lengths.max() == lengths[-10], "what is rarer than 1 of 1,000 is as long as that"


def test_two_percentiles_are_a_log_normal_distribution() -> None:
    sigma = np.log(4) / 1.2815515655446004
    expected = 512 * np.exp(sigma**2 / 2)
    assert Lengths.of("p50=512,p90=2048").mean == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0:5",
        "9:3",
        "p50=5",
        "p50=5,p40=9",
        "p50=9,p90=5",
        "p0=1,p50=2",
        "p50=1;p90=2",
        "p50=0,p90=2",
        "-4",
        "1:2:3",
    ],
)
def test_lengths_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        Lengths.of(text)


@pytest.mark.parametrize(("variation", "expected"), [(1.0, 1.0), (0.0, 0.0), (3.0, 3.0), (0.5, 0.5)])
def test_times_between_requests_have_their_mean_and_variation(variation: float, expected: float) -> None:
    gaps = np.diff(drawn(TrafficLoad(process=ArrivalProcess(variation))).arrival_s)
    assert len(gaps) == 10_000 - 1, "20 latencies of 50 s at 10 a second"
    assert gaps.mean() == pytest.approx(0.1, rel=0.08)
    assert gaps.std() / gaps.mean() == pytest.approx(expected, rel=0.1)


def test_poisson_is_gamma_of_1() -> None:
    gaps = np.diff(drawn(TrafficLoad()).arrival_s)
    assert np.mean(gaps > 0.1) == pytest.approx(np.exp(-1), rel=0.05)


def test_the_same_requests_come_at_every_rate() -> None:
    traffic = TrafficLoad(input_lengths=Lengths.of("10:5000"), output_lengths=Lengths.of("p50=20,p90=300"))
    slow, fast, again = drawn(traffic, 10.0), drawn(traffic, 20.0), drawn(traffic, 10.0)
    n = len(slow.arrival_s)
    assert fast.arrival_s[:n] == pytest.approx(slow.arrival_s / 2)
    assert fast.input_tokens[:n].tolist() == slow.input_tokens.tolist()
    assert fast.output_tokens[:n].tolist() == slow.output_tokens.tolist()
    assert all(np.array_equal(a, b) for a, b in zip(slow, again, strict=True))
    slow.check()


def test_loads_are_long_enough_for_percentiles_and_end() -> None:
    assert len(drawn(TrafficLoad(), 0.01, latency_s=1).arrival_s) == 1000
    assert len(drawn(TrafficLoad(), 100.0, latency_s=1).arrival_s) == 6000
    assert len(drawn(TrafficLoad(), 1e5).arrival_s) == 20_000


def test_a_share_of_every_prompt_is_cached_but_its_last_token() -> None:
    alike = Workload(10, 5, cached_share=0.75)
    assert set(drawn(TrafficLoad(), alike=alike).cached_tokens.tolist()) == {8}
    assert set(drawn(TrafficLoad(), alike=alike._replace(input_tokens=1)).cached_tokens.tolist()) == {0}


def test_a_trace_keeps_its_bursts_at_another_rate() -> None:
    recorded = Requests(np.array([0.0, 1.0, 1.5, 4.0]), *np.array([[5, 6, 7, 8], [1, 2, 3, 4], [0, 1, 2, 3]]))
    for blocks, cached in (((("a",),) * 4, [0, 1, 2, 3]), ((), [2, 3, 4, 4])):
        trace = Trace("0", recorded, blocks)
        traffic = TrafficLoad(trace=trace)
        assert traffic.known_rate_per_s == 0.75
        assert traffic.mean_tokens == (6, 2)
        requests = drawn(traffic, 1.5, Workload(6, 2, cached_share=0.5))
        assert requests.arrival_s.tolist() == [0.0, 0.5, 0.75, 2.0]
        assert requests.cached_tokens.tolist() == cached


def requests(
    arrival_s: Sequence[float],
    input_tokens: Sequence[int] = (5, 6, 7),
    output_tokens: Sequence[int] = (1, 2, 3),
    cached_tokens: Sequence[int] = (0, 0, 6),
) -> Requests:
    return Requests(*map(np.array, (arrival_s, input_tokens, output_tokens, cached_tokens)))


THREE = requests([0.0, 1.0, 4.0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (requests([], [], [], []), "a request or more, got none"),
        (requests([0.0, 2.0, 1.0]), "in the order in which they arrive"),
        (requests([0.0, 1.0, float("nan")]), "in the order in which they arrive"),
        (
            requests([0.0, 1.0, 2.0], output_tokens=[1, 0, 1]),
            "output_tokens must be at least 1 of every request, got 0",
        ),
        (requests([0.0, 1.0, 2.0], cached_tokens=[0, 6, 0]), "input_tokens less cached_tokens must be at least 1 .* 0"),
    ],
)
def test_requests_without_an_order_or_tokens_are_refused(wrong: Requests, message: str) -> None:
    THREE.check()
    requests([0.0, 0.0, 0.0]).check()  # at the same time
    with pytest.raises(BadInput, match=message):
        wrong.check()


def test_some_requests_and_faster_ones() -> None:
    assert [column.tolist() for column in THREE.first(2)] == [[0.0, 1.0], [5, 6], [1, 2], [0, 0]]
    assert THREE.first(9).arrival_s.tolist() == [0.0, 1.0, 4.0]
    assert [column.tolist() for column in THREE.chosen(np.array([2, 0]))] == [[4.0, 0.0], [7, 5], [3, 1], [6, 0]]
    assert THREE.faster(2.0).arrival_s.tolist() == [0.0, 0.5, 2.0]
    assert THREE.faster(2.0).input_tokens.tolist() == [5, 6, 7]


def test_a_load_knows_its_rate_and_lengths_from_its_trace_if_it_has_one() -> None:
    """Three requests in 4 s are two times between them; prompts of 5 to 7 tokens, answers of 1 to 3."""
    trace = Trace("d", THREE)
    assert TrafficLoad(trace=trace).known_rate_per_s == 0.5
    assert TrafficLoad(3.0, trace=trace).known_rate_per_s == 3.0
    assert TrafficLoad().known_rate_per_s is None
    assert TrafficLoad(trace=trace).mean_tokens == (6, 2)
    assert trace.means[2] == pytest.approx(1 / 3)
    assert TrafficLoad(output_lengths=Lengths.of("10:20")).mean_tokens == (None, 15)
    assert TrafficLoad(input_lengths=Lengths.of("8")).mean_tokens == (8, None)


@pytest.mark.parametrize(
    ("keeps", "beyond", "highest"),
    [
        ((True, True, False), 2, 2.0),
        ((True, False, True), 1, 1.0),  # the first that is too high counts
        ((False, True, True), 0, None),  # none is low enough
        ((True, True, True), None, None),  # none is too high
    ],
)
def test_the_highest_rate_is_the_last_before_the_first_that_is_too_high(
    keeps: tuple[bool, ...], beyond: int | None, highest: float | None
) -> None:
    line = RateLine(1, (1.0, 2.0, 3.0), keeps, {})
    assert (line.beyond, line.highest) == (beyond, highest)
