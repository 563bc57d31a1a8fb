"""`autoauto program`: every program runs on a small input and prints what it shows."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import RunCli

DIGITS = str(Path("data/samples/digits.csv.gz").absolute())


def test_batch_serialisation_loads_what_the_phase_before_stored(run_cli: RunCli) -> None:
    printed = run_cli("program", "batch-serialisation", "bert-large-128", "--steps", "2")
    assert printed.code == 0
    calls, *lines = printed.out.splitlines()
    assert calls == "calls: graph0(0) graph1(0)"
    first, second = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert first == [
        "graph0(0)",
        "  load 0: inputs",
        "  load 1: inputs | compute 0",
        "  store 0: x[0] | compute 1",
        "  store 1: x[1]",
    ]
    assert [line.replace("x[", "[") for line in second[1:3]] == ["  load 0: [0]", "  load 1: [1] | compute 0"]


def test_one_step_cannot_overlap_and_a_warning_says_so(run_cli: RunCli) -> None:
    printed = run_cli("program", "batch-serialisation", "bert-large-128", "--steps", "1")
    assert printed.code == 0
    assert "io_overlapped needs steps of at least 2" in printed.err


@pytest.mark.slow
def test_phased_training_learns_where_the_whole_network_does_not_fit(run_cli: RunCli) -> None:
    printed = run_cli("program", "phased-training", DIGITS, "--updates", "10")
    assert printed.code == 0
    assert "whole network: does not fit the budget" in printed.out
    losses = re.search(r"loss: ([\d.]+) in the first, ([\d.]+) in the last of 10 updates, measured", printed.out)
    assert losses is not None
    assert float(losses[2]) < 0.5 * float(losses[1])


@pytest.mark.slow
def test_a_sharded_engine_gives_the_outputs_of_one_device(run_cli: RunCli) -> None:
    printed = run_cli("program", "sharded-engine", DIGITS, "--devices", "2", "--steps", "3")
    assert printed.code == 0
    assert printed.out.splitlines() == [
        "device  sends  receives  forwards",
        "0           3         0         3",
        "1           0         3         3",
        "outputs of 3 batches are those of one device: yes",
    ]


def test_fewer_samples_than_a_batch_are_refused(run_cli: RunCli) -> None:
    Path("few.csv").write_text("1,2,0\n3,4,1\n")
    printed = run_cli("program", "sharded-engine", "few.csv")
    assert (printed.code, printed.out) == (2, "")
    assert printed.err == "autoauto: few.csv: a batch has 8 samples, got 2 in all\n"
