import json

import pytest

from tests.cli.conftest import RunCli

BERT = ("phased", "bert-large-128", "--cluster", "bow-2000", "--json")


def test_a_model_too_large_for_one_device_runs_in_phases(run_cli: RunCli) -> None:
    assert run_cli("plan", "bert-large-128", "--n-ipu", "1", "--batch-size", "8").code == 3
    printed = json.loads(run_cli(*BERT, "--batch-size", "8", "--steps", "64", "--io-mode", "io_overlapped").out)
    phases = printed["phases"]
    assert printed["fits"] is True
    assert len(phases) > 1
    assert [phase["layers"] for phase in phases] == [
        list(ends) for ends in zip(printed["partition"], printed["partition"][1:], strict=False)
    ]
    assert all(phase["total_bytes"] <= phase["limit_bytes"] for phase in phases)
    assert printed["cost_cycles"] == sum(phase["cycles"] for phase in phases)
    assert printed["samples_per_s"] == 8 * 64 * 1.85e9 / printed["cost_cycles"]
    assert printed["naive_cycles"] > 5 * printed["cost_cycles"]
    x = next(buffer for buffer in printed["buffers"] if buffer["name"] == "x")
    assert (x["steps"], x["n_entries"], x["n_bytes"]) == (64, x["rows"] * 64, x["rows"] * 64 * x["entry_bytes"])


def test_training_goes_back_through_its_phases(run_cli: RunCli) -> None:
    printed = json.loads(run_cli(*BERT, "--mode", "training", "--recompute", "--steps", "4").out)
    kinds = [phase["kind"] for phase in printed["phases"]]
    n_back = kinds.count("backward")
    assert kinds == ["forward"] * n_back + ["forward and backward"] + ["backward"] * n_back
    assert printed["training"] is True


def test_replicas_share_the_loads_of_variables(run_cli: RunCli) -> None:
    alone, four = (json.loads(run_cli(*BERT, "--steps", "4", "--replicas", n).out) for n in ("1", "4"))
    assert four["samples_per_s"] > 4 * alone["samples_per_s"]


def test_one_step_warns_and_uses_io(run_cli: RunCli) -> None:
    printed = run_cli("phased", "--io-mode", "io_overlapped", "--steps", "1", "--json")
    assert json.loads(printed.out)["io_mode"] == "io"
    assert printed.err == "autoauto: warning: io_overlapped needs steps of at least 2, got 1: io is used\n"


def test_a_layer_that_fits_no_phase_exits_with_3_and_the_missing_bytes(run_cli: RunCli) -> None:
    code, out, err = run_cli(*BERT, "--batch-size", "4096")
    printed = json.loads(out)
    assert (code, printed["fits"]) == (3, False)
    assert printed["excess_bytes"] > 0
    assert printed["reason"] in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--cluster", "c600"], "cluster c600 has none"),
        (["--io-tiles", "0"], "must have IO tiles, got 0"),
        (["--steps", "0"], "steps must be 1 to 1048576, got 0"),
        (["--replicas", "5"], "replicas must be at most 4 on bow-2000, got 5"),
        (["--recompute"], "recompute is for training"),
        (["--batch-size", "0"], "batch_size must be 1 to"),
        (["--io-mode", "fast"], "io_overlapped, got 'fast'"),
    ],
)
def test_bad_input_is_one_line(run_cli: RunCli, argv: list[str], message: str) -> None:
    code, out, err = run_cli("phased", *argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_tables_show_phases_and_buffers(run_cli: RunCli) -> None:
    out = run_cli("phased", "bert-large-128", "--steps", "4").out
    assert "Phases, estimated" in out
    assert "Buffers in streaming memory" in out
    assert "naive loop" in out
