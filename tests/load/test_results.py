"""Files of other programs, with numbers by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoauto.load.results.figures import LoadFigures
from autoauto.load.results.files import measured_row, read_results, tpot_s, with_lengths
from autoauto.records.errors import BadInput

SERVE_BENCH: dict[str, Any] = {
    "model_id": "m",
    "max_concurrency": 16,
    "completed": 100,
    "failed": 2,
    "total_input_tokens": 50_000,
    "total_output_tokens": 10_000,
    "request_throughput": 2.0,
    "output_throughput": 200.0,
    "mean_ttft_ms": 300.0,
    "median_ttft_ms": 250.0,
    "mean_tpot_ms": 40.0,
}
AIPERF: dict[str, Any] = {
    "input_config": {"endpoint": {"model_names": ["m"]}, "loadgen": {"concurrency": 16}},
    "input_sequence_length": {"unit": "tokens", "avg": 500.0},
    "output_sequence_length": {"unit": "tokens", "avg": 101.0},
    "time_to_first_token": {"unit": "ms", "avg": 300.0},
    "request_latency": {"unit": "ms", "avg": 4_300.0},
    "inter_token_latency": {"unit": "ms", "avg": 41.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 202.0},
    "request_throughput": {"unit": "requests/sec", "avg": 2.0},
}


def mean(value: float) -> dict[str, Any]:
    return {"successful": {"mean": value}}


GUIDELLM: dict[str, Any] = {
    "benchmarks": [
        {
            "metrics": {
                "requests_per_second": mean(rate),
                "request_concurrency": mean(4.3 * rate),
                "request_latency": mean(4.3),
                "prompt_token_count": mean(500),
                "output_token_count": mean(101),
                "time_to_first_token_ms": mean(300),
                "time_per_output_token_ms": mean(43),
                "output_tokens_per_second": mean(101 * rate),
            }
        }
        for rate in (1.0, 2.0)
    ]
}
INFERENCE_PERF: dict[str, Any] = {
    "load_summary": {"count": 100},
    "successes": {
        "count": 99,
        "latency": {
            "request_latency": {"mean": 4.3},
            "time_to_first_token": {"mean": 0.3},
            "time_per_output_token": {"mean": 0.02},
        },
        "throughput": {"output_tokens_per_sec": 202.0, "requests_per_sec": 2.0},
        "prompt_len": {"mean": 500.0},
        "output_len": {"mean": 101.0},
    },
    "failures": {"count": 1},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "result.json"


def loads(path: Path, content: object) -> list[LoadFigures]:
    path.write_text(json.dumps(content))
    return read_results(path)


@pytest.mark.parametrize(
    ("content", "program", "in_flight"),
    [(AIPERF, "AIPerf", 16), (GUIDELLM, "guidellm", 8.6), (INFERENCE_PERF, "inference-perf", None)],
)
def test_tpot_is_of_the_tokens_after_the_first(
    content: dict[str, Any], program: str, in_flight: float | None, path: Path
) -> None:
    """(4.3 - 0.3) s / (101 - 1) = 40 ms, whatever the program calls by this name."""
    *_, figures = loads(path, content)
    assert (figures.program, figures.statistic, figures.concurrency) == (program, "mean", in_flight)
    assert (figures.input_tokens, figures.output_tokens, figures.ttft_s) == pytest.approx((500, 101, 0.3))
    assert (figures.tokens_per_s, figures.requests_per_s) == (202, 2)
    assert tpot_s(figures) == pytest.approx(0.040)


def test_the_tpot_of_the_same_definition_is_taken(path: Path) -> None:
    (figures,) = loads(path, SERVE_BENCH)
    assert (figures.input_tokens, figures.output_tokens, figures.concurrency, figures.model) == (500, 100, 16, "m")
    assert (figures.ttft_s, tpot_s(figures), figures.tokens_per_s) == pytest.approx((0.3, 0.04, 200))
    assert figures.notes == ("throughput includes the begin and the end of the load", "2 requests failed")


def test_a_file_with_medians_alone_says_so(path: Path) -> None:
    content = {name: value for name, value in SERVE_BENCH.items() if not name.startswith("mean_")}
    (figures,) = loads(path, {**content, "median_tpot_ms": 39.0})
    assert figures.statistic == "median"
    assert (figures.ttft_s, figures.tpot_s) == pytest.approx((0.25, 0.039))


def test_every_load_of_a_file_is_read(path: Path) -> None:
    assert [figures.tokens_per_s for figures in loads(path, GUIDELLM)] == [101, 202]


def test_requests_in_flight_are_dealt_among_pipelines(path: Path) -> None:
    """16 in flight by the file, 2 x 4.3 by Little's law."""
    (figures,) = loads(path, AIPERF)
    assert measured_row(figures, figures.concurrency, 4) == {
        "batch_size": 4,
        "input_tokens": 500,
        "output_tokens": 101,
        "tpot_s": "0.04",
        "ttft_s": "0.3",
        "tokens_per_s": "202",
    }
    assert measured_row(figures, None, 1)["batch_size"] == 9


def test_lengths_that_are_known_better_change_tpot_and_throughput(path: Path) -> None:
    (figures,) = loads(path, INFERENCE_PERF)
    known = with_lengths(figures, 512, 201)
    assert (known.input_tokens, tpot_s(known), known.tokens_per_s) == pytest.approx((512, 0.02, 402))


def test_unequal_lengths_are_said(path: Path) -> None:
    lengths = {"unit": "tokens", "avg": 101.0, "min": 1, "max": 200}
    (figures,) = loads(path, {**AIPERF, "output_sequence_length": lengths})
    assert figures.notes == ("answers have 1 to 200 tokens, so means of requests and of tokens differ",)


def test_throughputs_that_disagree_are_said(path: Path) -> None:
    (figures,) = loads(path, {**AIPERF, "request_throughput": {"avg": 4.0}})
    assert figures.notes == ("tokens/s are 202, requests/s times tokens of an answer 404",)


def test_requests_in_flight_that_disagree_with_latencies_are_said(path: Path) -> None:
    """A limit that a load by rate never reached, or times in seconds where milliseconds are meant."""
    said = "requests in flight are {} by the file, {} by requests/s times latency"
    (figures,) = loads(path, {**SERVE_BENCH, "max_concurrency": 256})
    assert figures.notes[-1] == said.format(256, 8.52)
    (figures,) = loads(path, {**SERVE_BENCH, "mean_ttft_ms": 0.3, "mean_tpot_ms": 0.04})
    assert figures.notes[-1] == said.format(16, 0.00852)
    (figures,) = loads(path, {**AIPERF, "request_latency": {"unit": "s", "avg": 43.0}})
    assert figures.notes[-1] == said.format(16, 86)


def without(content: dict[str, Any], *names: str) -> dict[str, Any]:
    """A copy without the entry at a path."""
    first, *rest = names
    inner = {first: without(content[first], *rest)} if rest else {}
    return {**{name: value for name, value in content.items() if name != first}, **inner}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (without(SERVE_BENCH, "total_output_tokens"), "must have the length of answers, got no total_output_tokens"),
        (without(AIPERF, "input_sequence_length"), "must have the length of prompts, got no input_sequence_length.avg"),
        (without(INFERENCE_PERF, "successes", "output_len"), "must have the length of answers, got no output_len.mean"),
        ({**AIPERF, "request_latency": {"avg": "long"}}, "request_latency.avg: must be a number above 0, got 'long'"),
        ({**AIPERF, "request_latency": {"avg": 1, "unit": "h"}}, "request_latency.unit: must be ms, s, us or ns"),
        ({"benchmarks": [{}]}, r"benchmarks\[0\].metrics must have the length of prompts"),
        ({}, "must be a summary in JSON of AIPerf, guidellm, inference-perf, bench serve, got another file"),
        ([1], "got another file"),
    ],
)
def test_a_file_that_lacks_something_is_refused(content: object, reason: str, path: Path) -> None:
    with pytest.raises(BadInput, match=reason):
        loads(path, content)


def test_what_cannot_be_read_is_refused(path: Path) -> None:
    with pytest.raises(BadInput, match="a JSON file must be readable"):
        read_results(path)
    path.write_text("tokens 5")
    with pytest.raises(BadInput, match="must be JSON"):
        read_results(path)


def test_a_row_needs_a_number_and_the_requests_in_flight(path: Path) -> None:
    (figures,) = loads(path, AIPERF)
    nothing = replace(figures, tokens_per_s=None, ttft_s=None, latency_s=None)
    with pytest.raises(BadInput, match="must have measured TPOT, TTFT or tokens/s"):
        measured_row(nothing, 3, 1)
    with pytest.raises(BadInput, match="try --concurrency"):
        measured_row(nothing, None, 1)
    with pytest.raises(BadInput, match="must have a latency above TTFT"):
        measured_row(replace(figures, latency_s=0.1), 3, 1)
