"""`autoauto search --dry-run`."""

import json
from pathlib import Path

from tests.cli.conftest import RunCli

SMALL = (
    "search",
    "resnet50",
    "--n-ipu",
    "1,2",
    "--replicas",
    "1",
    "--strategy",
    "pipeline",
    "--batch-size",
    "1:8",
    "--memory-proportion",
    "0.6,1.0",
)


def test_a_dry_run_prints_the_estimates_and_writes_nothing(run_cli: RunCli, tmp_path: Path) -> None:
    out = run_cli(*SMALL, "--dry-run").out
    assert "Combinations of knobs at their best batch, estimated" in out
    assert "of 32 configurations" in out
    assert "samples/s on 2 devices (one pipeline of 2 devices; " in out.splitlines()[0]
    assert "one device" in out
    assert "nothing was measured" in out
    expected = json.loads(run_cli(*SMALL, "--dry-run", "--json").out)
    assert len(expected["cells"]) == 4
    assert expected["best"]["samples_per_s"] == max(cell["samples_per_s"] for cell in expected["cells"])
    assert expected["best"]["device_samples_per_s"] == expected["best"]["samples_per_s"] / 2
    assert sum(cell["n_tries"] for cell in expected["cells"]) == expected["n_tried"]
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_estimates_its_time_by_the_measurements_of_the_study(run_cli: RunCli) -> None:
    assert "time to measure: not known" in run_cli(*SMALL, "--dry-run").out
    run_cli(*SMALL, "--study-name", "small")
    out = run_cli(*SMALL, "--dry-run", "--repeats", "2").out
    assert "time to measure: about" in out
    assert "4 to measure the best again" in out
    expected = json.loads(run_cli(*SMALL, "--dry-run", "--json").out)
    assert expected["n_again"] == 0
    assert expected["expected_s"] > 0


def test_bounds_that_nothing_meets_end_a_dry_run_as_they_end_a_search(run_cli: RunCli) -> None:
    for words in ((), ("--json",)):
        done = run_cli(*SMALL, "--dry-run", "--max-latency-s", "1e-5", *words)
        assert done.code == 3
        assert "by the estimate no configuration fits and meets the bounds; the nearest is n_ipu" in done.err
        assert "latency_s <= 1e-05 does not hold" in done.err
    assert run_cli(*SMALL, "--max-latency-s", "1e-5").code == 3
