"""Options of requests that arrive at times of their own, as Python, files and commands give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoauto.evaluate.open import load_flow
from autoauto.records.costs.traffic.arrivals import ArrivalProcess
from autoauto.records.costs.traffic.load import Lengths, TrafficLoad
from autoauto.records.errors import BadInput
from autoauto.space.constraint import Constraint
from autoauto.space.objectives import Objective
from autoauto.space.requests.problem import Problem
from autoauto.space.requests.request import SearchRequest
from autoauto.study.defaults import default_space
from autoauto.targets.gpu.entry import GPU
from autoauto.targets.gpu.target import GpuTarget
from autoauto.targets.gpu.workload import cached_share_of, drafts_of, traffic_notes, traffic_of
from tests.decoders import decoder_folder

pytest.importorskip("aiconfigurator_core", reason="it has the measured times")
ROWS = "time_s,input_tokens,output_tokens\n0,100,10\n1,200,20\n4,300,30\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(ROWS)
    return path


def read(**options: object) -> TrafficLoad | None:
    return traffic_of(GPU.read_options(options))


def target_of(model: Path, **options: object) -> GpuTarget:
    target = load_flow(model, "h100_sxm-1", "gpu", options=options).target
    assert isinstance(target, GpuTarget)
    return target


def test_without_options_clients_ask_again_at_once() -> None:
    assert read() is None
    assert traffic_notes(None) == ()


def test_options_say_how_requests_come() -> None:
    assert read(rate=3) == TrafficLoad(3.0)
    assert read(arrival="constant") == TrafficLoad(process=ArrivalProcess(0.0))
    assert read(arrival="gamma:2.5", rate=1.5) == TrafficLoad(1.5, ArrivalProcess(2.5))
    lengths = Lengths.of("5:9"), Lengths.of("p50=5,p90=9")
    assert read(input_lengths="5:9", output_lengths="p50=5,p90=9") == TrafficLoad(None, ArrivalProcess(1.0), *lengths)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0}, "--rate must be requests a second, above 0"),
        ({"rate": 1e9}, "--rate must be requests a second, above 0 and at most 1,000,000"),
        ({"rate": -1}, "--rate must be a number from 0"),
        ({"arrival": "often"}, "--arrival must be poisson, constant, or gamma:CV"),
        ({"arrival": "gamma:0"}, "--arrival must be poisson"),
        ({"arrival": "gamma:nan"}, "--arrival must be poisson"),
        ({"input_lengths": "many"}, "lengths are written"),
        ({"trace": "/no/such/file"}, "a trace must be a file that can be read"),
        ({"for_rate": 0}, "--for-rate must be requests a second, above 0"),
        ({"for_rate": 3, "rate": 3}, "how many requests arrive a second, got --rate and --for-rate; leave one out"),
        ({"for_trace": True}, "--for-trace is of the requests of a trace, got none"),
        ({"concurrency": 8, "rate": 3}, "--concurrency is of clients that ask again .* got --rate too"),
        ({"concurrency": 8, "arrival": "constant"}, "--concurrency is of clients .* got --arrival too"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read(**options)


def test_a_trace_says_all_but_the_rate(trace: Path) -> None:
    recorded = read(trace=str(trace))
    assert recorded is not None
    assert recorded.known_rate_per_s == 0.5
    faster = read(trace=str(trace), rate=5)
    assert faster is not None
    assert faster.known_rate_per_s == 5
    with pytest.raises(BadInput, match=r"got --arrival, --output-lengths too"):
        read(trace=str(trace), arrival="poisson", output_lengths="5")


def test_for_a_rate_is_that_rate_and_with_a_trace_its_windows_count(trace: Path) -> None:
    assert read(for_rate=3) == read(rate=3)
    plain, as_it_is, faster = (
        read(trace=str(trace), **more) for more in ({"rate": 5}, {"for_trace": True}, {"for_rate": 5})
    )
    assert plain is not None
    assert as_it_is is not None
    assert faster is not None
    assert (plain.window_s, plain.n_windows) == (None, None)
    assert (as_it_is.window_s, as_it_is.n_windows, as_it_is.known_rate_per_s) == (300.0, 1, 0.5)
    assert (faster.window_s, faster.n_windows, faster.known_rate_per_s) == (300.0, 1, 5.0)
    assert "bounds hold in every 5 minutes" in " ".join(traffic_notes(faster))


def test_a_search_for_a_rate_is_one_for_the_fewest_gpus() -> None:
    values = {"model": "Qwen/Qwen3-32B", "cluster": "h100_sxm-8", "target": "gpu"}
    assert SearchRequest.of(values).study.objectives is Objective.THROUGHPUT
    for option in ({"for_rate": 8.0}, {"for_trace": True}):
        request = SearchRequest.of(values | option)
        assert request.study.objectives is Objective.DEVICES
        assert request.problem.options == option
        assert SearchRequest.from_json(request.to_json()) == request
    with pytest.raises(BadInput, match="--for-rate looks for the fewest GPUs, got --objective cost"):
        SearchRequest.of(values | {"for_rate": 8.0, "objective": "cost"})
    with pytest.raises(BadInput, match="--concurrency says how large batches are, got --batch-size too"):
        SearchRequest.of(values | {"concurrency": 8, "batch_size": (8,)})


@pytest.mark.parametrize("n", [1, 7, 64])
def test_so_many_requests_are_in_flight_of_the_whole_cluster(tmp_path: Path, n: int) -> None:
    flow = load_flow(decoder_folder(tmp_path / "small"), "h100_sxm-4", "gpu", options={"concurrency": n})
    every = [knobs for cell in default_space(flow).cells for knobs in cell]
    assert {knobs.replicas for knobs in every} >= ({1, 2, 4} if n > 4 else {1})
    for knobs in every:
        n_stages = knobs.n_ipu * knobs.replicas
        assert knobs.batch_size == n // n_stages
    bounds = (Constraint("ttft_p99 <= 1s"),)
    with pytest.raises(BadInput, match=r"percentiles are of requests that arrive .* got --concurrency"):
        load_flow(tmp_path / "small", "h100_sxm-4", "gpu", options={"concurrency": n}, constraints=bounds)


def test_a_trace_decides_the_lengths_and_the_cached_share_of_forecasts(tmp_path: Path, trace: Path) -> None:
    model = decoder_folder(tmp_path / "small")
    space = target_of(model, trace=str(trace)).traits.space
    assert (space["input_tokens"], space["output_tokens"]) == ((200,), (20,))
    shared = tmp_path / "shared.jsonl"
    row = '{"timestamp": %d, "input_length": 1024, "output_length": 8, "hash_ids": [1, 2]}\n'
    shared.write_text(row % 0 + row % 1000)
    assert target_of(model, trace=str(shared)).cached_share == pytest.approx(1023 / 2048)
    with pytest.raises(BadInput, match=r"hash_ids\), got --cached-share too"):
        target_of(model, trace=str(shared), cached_share=0.5)


def test_a_study_knows_a_trace_by_its_content(tmp_path: Path, trace: Path) -> None:
    model = decoder_folder(tmp_path / "small")
    plain, first = target_of(model).version, target_of(model, trace=str(trace)).version
    moved = tmp_path / "moved.csv"
    moved.write_text(ROWS)
    assert target_of(model, trace=str(moved)).version == first
    moved.write_text(ROWS.replace("300", "301"))
    others = {target_of(model, trace=str(moved)).version, target_of(model, rate=2).version}
    assert len({plain, first, *others}) == 4


def test_a_stored_request_has_the_absolute_path_of_a_trace(monkeypatch: pytest.MonkeyPatch, trace: Path) -> None:
    monkeypatch.chdir(trace.parent)
    problem = Problem.of({"model": "Qwen/Qwen3-32B", "cluster": "h100_sxm-8", "target": "gpu", "trace": "trace.csv"})
    assert problem.plain["options"] == {"trace": str(trace.resolve())}
    assert Problem.read(problem.plain, "a test").options == {"trace": str(trace.resolve())}


def test_rates_variations_drafts_and_caches_have_ends() -> None:
    assert read(rate=1e6) == TrafficLoad(1e6)
    assert read(for_rate=1e-9) == TrafficLoad(1e-9)
    with pytest.raises(BadInput, match=r"--for-rate must be requests a second, .* at most 1,000,000, got 1\.1e"):
        read(for_rate=1.1e6)
    assert read(arrival="gamma:20") == TrafficLoad(process=ArrivalProcess(20.0))
    for arrival in ("gamma:20.1", "gamma:0", "gamma:", "gamma:x", "beta:1", "gamma:nan"):
        with pytest.raises(BadInput, match="--arrival must be poisson, constant, or gamma:CV"):
            read(arrival=arrival)
    drafts: dict[str, object] = {"draft_tokens": 64, "accept_length": 65.0, "draft_cost": 10.0}
    assert drafts_of(GPU.read_options(drafts))[:3] == (65.0, 64, 10.0)
    assert drafts_of(GPU.read_options({"draft_tokens": 1, "accept_length": 1.0})).step_tokens == 2
    for wrong in ({"draft_tokens": 65}, {"accept_length": 65.5}, {"accept_length": 0.9}, {"draft_cost": 10.1}):
        with pytest.raises(BadInput, match=r"--draft-tokens|--accept-length|--draft-cost"):
            drafts_of(GPU.read_options({**drafts, **wrong}))
    assert cached_share_of(GPU.read_options({"cached_share": 0.99})) == 0.99
    with pytest.raises(BadInput, match="--cached-share"):
        cached_share_of(GPU.read_options({"cached_share": 1.0}))


def test_notes_say_what_is_assumed_of_arrivals() -> None:
    for traffic, text in (
        (TrafficLoad(3.0, ArrivalProcess(1.0)), "requests arrive at random (Poisson); replicas take them in turn"),
        (TrafficLoad(3.0, ArrivalProcess(0.0)), "requests arrive evenly; "),
        (
            TrafficLoad(3.0, ArrivalProcess(2.5)),
            "requests arrive in bursts, times between them vary by 2.5 of the mean; ",
        ),
    ):
        first, second = traffic_notes(traffic)
        assert first.startswith(text)
        assert second.startswith("tokens/s, prices and energy are those of full load")
    [_, searched] = traffic_notes(TrafficLoad())
    assert searched.startswith("no rate is given: throughput is the highest rate")
    windows = traffic_notes(TrafficLoad(3.0, window_s=300.0))
    assert windows[-1].startswith("bounds hold in every 5 minutes of the trace")
