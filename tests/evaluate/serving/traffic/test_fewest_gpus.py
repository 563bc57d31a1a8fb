"""The fewest GPUs that keep bounds at a rate: against every configuration, and against single steps on real traffic."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.evaluate.serving.rates import AT_BOUND
from autoauto.evaluate.serving.traffic.balancer import serve
from autoauto.evaluate.serving.traffic.forecast import replicas_of
from autoauto.evaluate.serving.traffic.goodput import windows_of, worst_of
from autoauto.evaluate.serving.traffic.replica import Replica, StepTimes
from autoauto.evaluate.serving.ways import ReplicaWays
from autoauto.records.costs.traffic.requests import Requests
from autoauto.records.errors import BadInput
from autoauto.records.files.traces import read_trace
from autoauto.records.installation import data_dir
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Method, Objective
from autoauto.space.requests.request import KnobValues
from autoauto.space.space import SearchSpace
from autoauto.study.arguments import space_of
from autoauto.study.run import SearchResult
from autoauto.study.search import search_flow
from studies.single_steps import Engine, Request, simulate
from tests.evaluate.serving.traffic.test_replica import rules_of

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
pytestmark = pytest.mark.usefixtures("brief_loads")
MODEL = "meta-llama/Meta-Llama-3.1-8B"
WINDOW_S = 300.0
BATCH_SIZE = 128


def flow_of(cluster: str, *bounds: str, **options: object) -> Flow:
    return load_flow(MODEL, cluster, "gpu", options=options, constraints=tuple(map(Constraint, bounds)))


def searched(flow: Flow, method: Method = Method.GUIDED, **values: Any) -> SearchResult:
    lengths = {name: flow.traits.space[name] for name in ("input_tokens", "output_tokens")}
    space = SearchSpace(**({"engine": ("vllm",)} | lengths | values))
    return search_flow(flow, space, Objective.DEVICES, method, n_repeats=0)


CASES: list[tuple[float, tuple[str, ...]]] = [
    (12, ("ttft_p99 <= 150ms",)),
    (12, ("ttft_p99 <= 60ms",)),
    (30, ("ttft_p99 <= 300ms", "tpot_p99 <= 12ms")),
    (60, ("latency_p95 <= 20s",)),
    (200, ("latency_p95 <= 20s",)),
]


@pytest.mark.parametrize(("rate", "bounds"), [CASES[1]])
def test_no_configuration_on_fewer_of_a_small_space_keeps_the_bounds(rate: float, bounds: tuple[str, ...]) -> None:
    check_all(rate, bounds, replicas=(1, 2, 3), batch_size=(16, 128), n_ipu=(1,), tensor_parallel=(1,))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("rate", "bounds"), CASES[2:4])
def test_no_configuration_on_fewer_keeps_the_bounds(rate: float, bounds: tuple[str, ...]) -> None:
    check_all(rate, bounds, n_ipu=(1, 2), replicas=(1, 2, 3, 4), batch_size=(16, 64, 256), tensor_parallel=(1, 2))


def check_all(rate: float, bounds: tuple[str, ...], **values: tuple[int, ...]) -> None:
    """The answer is on as few GPUs as any of all configurations, each simulated; the study says why on no fewer."""
    flow = flow_of("h100_sxm-4", *bounds, for_rate=rate)
    every, guided = (searched(flow, method, **values) for method in (Method.EXHAUSTIVE, Method.GUIDED))
    fitting = [trial.knobs.n_devices for trial in every.trials.values() if trial.fits]
    if not fitting:
        assert guided.best is None
        return
    assert guided.best is not None
    assert guided.best.knobs.n_devices == min(fitting)
    assert every.trials[guided.best.knobs].fits
    assert guided.counts.n_tried < every.counts.n_tried
    assert guided.summary is not None
    sizing = guided.summary.sizing
    assert sizing is not None
    fewer = [knobs for knobs in every.trials if knobs.n_devices < min(fitting)]
    assert sizing.n_untried == 0
    assert sizing.n_tried + sizing.n_ruled_out == len(fewer)
    assert (sizing.window_s, sizing.shares) == (None, ())


def test_every_number_of_replicas_is_searched_by_default() -> None:
    flow = flow_of("h100_sxm-8", for_rate=30)
    asked = KnobValues({"tensor_parallel": (1,), "n_ipu": (1,)})
    fewest, fastest = (space_of(flow, asked, each)["replicas"] for each in (Objective.DEVICES, Objective.THROUGHPUT))
    assert fewest == (1, 2, 3, 4, 5, 6, 7, 8)
    assert set(fastest) < set(fewest)


def test_bounds_of_a_closed_loop_have_a_fewest_too() -> None:
    flow = flow_of("h100_sxm-4", "tokens_per_s >= 10000")
    values: dict[str, Any] = {"replicas": (1, 2, 3, 4), "batch_size": (64,), "tensor_parallel": (1,), "n_ipu": (1,)}
    every = searched(flow, Method.EXHAUSTIVE, **values)
    best = searched(flow, **values).best
    assert best is not None
    assert best.knobs.n_devices == min(trial.knobs.n_devices for trial in every.trials.values() if trial.fits)


def test_what_has_no_fewest_is_refused_in_a_line() -> None:
    with pytest.raises(BadInput, match=r"--objective devices needs what must hold"):
        searched(flow_of("h100_sxm-4"))
    with pytest.raises(BadInput, match=r"counts devices of one kind"):
        searched(flow_of("h100_sxm-1+l40s-1", "ttft_p99 <= 1s", for_rate=3))


class Hour:
    """A part of a real hour, faster, as a file and by single steps."""

    def __init__(self, folder: Path, name: str, n: int, rate: float) -> None:
        """Write the first `n` requests, which will be served at a mean rate."""
        recorded = read_trace(data_dir() / "traffic" / f"azure_llm_2023_{name}.csv.gz").requests.first(n)
        self.path, self.rate = folder / f"{name}.csv", rate
        columns = (recorded.arrival_s.tolist(), recorded.input_tokens.tolist(), recorded.output_tokens.tolist())
        lines = [",".join(map(repr, cells)) for cells in zip(*columns, strict=True)]
        self.path.write_text("\n".join(["time_s,input_tokens,output_tokens", *lines]))
        self.n_windows = max(1, round(float(recorded.arrival_s[-1]) / WINDOW_S))
        faster = rate * float(recorded.arrival_s[-1]) / (n - 1)
        self.requests = recorded.faster(faster)

    def knobs(self, engine: str, replicas: int) -> Knobs:
        means = (max(1, round(float(column.mean()))) for column in self.requests[1:3])
        n_input, n_output = means
        return Knobs(
            1, BATCH_SIZE, replicas, engine=engine, tensor_parallel=1, input_tokens=n_input, output_tokens=n_output
        )

    def longest_ttft_s(self, replicas: list[Replica]) -> float:
        """The longest p99 of a window, by single steps; infinite where the queue grows in one."""
        n, arrival_s = len(self.requests.arrival_s), self.requests.arrival_s
        admitted_s, first_s = np.empty((2, n))
        for first, given in enumerate(replicas):
            own = np.arange(first, n, len(replicas))
            admitted_s[own], first_s[own] = single_steps(given, self.requests.chosen(own))
        part = np.minimum((arrival_s / arrival_s[-1] * self.n_windows).astype(int), self.n_windows - 1)
        longest = 0.0
        for window in (part == each for each in np.unique(part)):
            n_waiting = np.sum(admitted_s[window] > arrival_s[window][-1])
            if n_waiting > max(0.02 * window.sum(), 2 * window.sum() ** 0.5):
                return inf
            longest = max(longest, float(np.percentile((first_s - arrival_s)[window], 99)))
        return longest


def single_steps(given: Replica, requests: Requests) -> np.ndarray:
    """When requests are admitted, and when first tokens come, one step at a time, shape (2, requests)."""
    times = StepTimes(given.steps, given.n_sequences)
    engine = Engine(
        rules_of(given),
        lambda n, length: times.decode(n, length)[0],
        lambda n, parts: times.prompts(n, list(parts)),
    )
    every = [Request(number, *cells) for number, cells in enumerate(zip(*(c.tolist() for c in requests), strict=True))]
    simulate(engine, every)
    assert all(each.admitted is not None and each.first is not None for each in every)
    return np.array(
        [[each.admitted or 0.0 for each in every], [(each.first or 0.0) + given.request_s for each in every]]
    )


def check_hour(hour: Hour, engine: str, most: int) -> tuple[int, int]:
    """Searches at bounds between what each number of replicas gives: how many, and how many have a GPU too many."""
    flow = flow_of(f"h100_sxm-{most}")
    ways = ReplicaWays.of(flow.setting)
    longest = []
    for n in range(1, most + 1):
        knobs = hour.knobs(engine, n)
        way, *_ = ways.ways(knobs, (knobs.batch_size,))
        longest.append(hour.longest_ttft_s(replicas_of(ways.costs, knobs, way, hour.requests, end=AT_BOUND)))
    stable = [ttft_s for ttft_s in longest if ttft_s < inf]
    bounds = [1.02 * stable[-1], *((a * b) ** 0.5 for a, b in pairwise(stable)), 2 * stable[0]]
    n_more = 0
    for bound_s in bounds:
        flow = flow_of(f"h100_sxm-{most}", f"ttft_p99_s <= {bound_s!r}", trace=str(hour.path), for_rate=hour.rate)
        numbers = tuple(range(1, most + 1))
        values: dict[str, Any] = {
            "n_ipu": (1,),
            "replicas": numbers,
            "batch_size": (BATCH_SIZE,),
            "tensor_parallel": (1,),
        }
        best = searched(flow, engine=(engine,), **values).best
        lowest = next(n for n, ttft_s in enumerate(longest, 1) if ttft_s <= bound_s)
        assert best is not None
        assert longest[best.knobs.replicas - 1] <= bound_s, "by single steps the bound holds, too"
        assert best.knobs.replicas <= lowest + 1
        n_more += best.knobs.replicas > lowest
    return len(bounds), n_more


def test_an_hour_of_code_is_served_by_as_few_as_by_single_steps(tmp_path: Path) -> None:
    n, n_more = check_hour(Hour(tmp_path, "code", 700, 5.0), "vllm", 4)
    assert n >= 3
    assert n_more == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_hours_of_each_engine_need_at_most_one_more_in_one_of_twenty(engine: str, tmp_path: Path) -> None:
    hours = Hour(tmp_path, "code", 500, 5.0), Hour(tmp_path, "conv", 1000, 20.0)
    counts = np.array([check_hour(hour, engine, 4) for hour in hours]).sum(axis=0)
    assert counts[1] <= 0.05 * counts[0]


def test_windows_that_need_fewer_are_those_that_fewer_serve_by_themselves(tmp_path: Path) -> None:
    hour = Hour(tmp_path, "conv", 9000, 40.0)
    bound = 0.2
    flow = flow_of("h100_sxm-6", f"ttft_p99_s <= {bound}", trace=str(hour.path), for_rate=hour.rate)
    knobs = hour.knobs("vllm", 6)
    needed = flow.mode(knobs).replicas_by_window(knobs)
    windows = windows_of(hour.requests, hour.n_windows)
    assert flow.first_mode.window_s == WINDOW_S
    assert len(needed) == len(windows) == hour.n_windows
    ways = ReplicaWays.of(flow.setting)
    for number, window in enumerate(windows):
        some, keeps = hour.requests.chosen(window), []
        for n in range(1, 7):
            way, *_ = ways.ways(hour.knobs("vllm", n), (BATCH_SIZE,))
            replicas = replicas_of(ways.costs, hour.knobs("vllm", n), way, hour.requests, end=AT_BOUND)
            result = worst_of(some, serve(replicas, some), 1)
            if result.ttft_s.p99 <= bound and not result.is_overloaded:
                keeps.append(n)
        assert needed[number] == min(keeps, default=6)
    assert len(set(needed)) > 1


def test_a_peak_counts_where_all_requests_together_would_not_show_it(tmp_path: Path) -> None:
    """50 requests of 6,050 come within a second: of all p99 is short, of the 600 of their window it is not."""
    path = tmp_path / "peak.csv"
    calm, peak = np.arange(0, 3000, 0.5), 1500 + np.arange(0, 1, 0.02)
    rows = [f"{time:.3f},500,50" for time in np.sort(np.concatenate([calm, peak]))]
    path.write_text("\n".join(["time_s,input_tokens,output_tokens", *rows]))
    knobs = Knobs(1, 64, 1, engine="vllm", tensor_parallel=1, input_tokens=500, output_tokens=50)
    plain, sized = (flow_of("h100_sxm-2", trace=str(path), for_trace=each).evaluate(knobs) for each in (False, True))
    assert plain.result.value("rate_per_s") == sized.result.value("rate_per_s")
    assert sized.result.value("ttft_p99_s") > 1.5 * plain.result.value("ttft_p99_s")
