"""`autoauto bench --protocol openai` on a server that speaks the protocol."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import RunCli
from tests.load.conftest import StandIn, answers, stand_in

Start = Callable[..., StandIn]
__all__ = ["stand_in"]
TEXT = ("--protocol", "openai", "--input-tokens", "20", "--output-tokens", "4")


@pytest.fixture
def server(stand_in: Start) -> StandIn:
    return stand_in(answers)


def test_a_load_is_printed_as_json(server: StandIn, run_cli: RunCli) -> None:
    words = (*TEXT, "--concurrency", "2", "--requests", "8", "--max-requests", "8", "--warmup", "2")
    done = run_cli("bench", f"{server.url}/v1", *words, "--seed", "3", "--json")
    printed = json.loads(done.out)
    assert (done.code, done.err, len(server.bodies)) == (0, "", 10)
    assert (printed["source"], printed["n_requests"], printed["n_failed"], printed["n_tokens"]) == (
        "measured",
        8,
        0,
        32,
    )
    assert (printed["load"]["n_clients"], printed["load"]["seed"]) == (2, 3)
    assert set(printed["ttft_s"]) == {"mean", "p50", "p90", "p95", "p99"}
    assert 0 < printed["ttft_s"]["p50"] <= printed["latency_s"]["p50"]


def test_bursts_of_a_load_are_drawn_as_those_of_a_search(server: StandIn, run_cli: RunCli) -> None:
    words = (*TEXT, "--rate", "2000", "--arrival", "gamma:2", "--requests", "8", "--warmup", "0")
    done = run_cli("bench", server.url, *words, "--json")
    load = json.loads(done.out)["load"]
    assert (load["requests_per_s"], load["arrival_variation"]) == (2000, 2)


def test_a_load_is_printed_as_a_table(server: StandIn, run_cli: RunCli) -> None:
    server.metrics = "llamacpp:requests_processing 0\nllamacpp:requests_deferred 0\n"
    done = run_cli("bench", server.url, *TEXT, "--rate", "2000", "--requests", "8", "--warmup", "0")
    lines = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert lines[0].endswith("in the steady part of 2,000 requests/s that arrive at random (Poisson) (measured)")
    assert lines[1].startswith("8 requests answered, 0 failed")
    assert lines[2].split() == ["milliseconds", "mean", "p50", "p90", "p95", "p99"]
    assert all(len(line[24:].split()) == 5 for line in lines[3:7]), "a number below each head"
    names = [line[:24].strip() for line in lines[3:7]]
    assert names == ["TTFT", "TPOT", "inter-token latency", "request latency"]
    assert "llama.cpp says: at most 0 requests at once, 0 waiting" in lines


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--protocol", "openai"), "--input-tokens must be given with --protocol openai"),
        ((*TEXT, "--rate", "1", "--concurrency", "2"), "--concurrency or --rate must be given, got both"),
        ((*TEXT, "--arrival", "gamma:2"), "--arrival is of requests that come at a rate, got 'gamma:2' alone"),
        ((*TEXT, "--rate", "1", "--arrival", "gamma:0"), "--arrival must be poisson, constant, or gamma:CV"),
        ((*TEXT, "--model", "other"), "the model must be one of m, got 'other'"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(
    words: tuple[str, ...], reason: str, server: StandIn, run_cli: RunCli
) -> None:
    done = run_cli("bench", server.url, *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert reason in done.err
