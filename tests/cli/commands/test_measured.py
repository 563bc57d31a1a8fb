"""`autoauto measured` makes rows that `--measured` reads."""

import csv
import json
from pathlib import Path

from autoauto.evaluate.serving.rows import measured_of, read_rows
from tests.cli.conftest import RunCli
from tests.load.test_results import AIPERF, GUIDELLM, INFERENCE_PERF, SERVE_BENCH

GIVEN = ("--engine", "vllm", "--system", "h100_sxm")


def test_rows_are_read_back(run_cli: RunCli, tmp_path: Path) -> None:
    names = []
    for name, content in (("a", SERVE_BENCH), ("b", AIPERF), ("c", GUIDELLM), ("d", INFERENCE_PERF)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
        names.append(f"{name}.json")
    done = run_cli("measured", *names, *GIVEN, "--tensor-parallel", "2", "--n-ipu", "2", "--model", "Qwen/Qwen3-32B")
    assert done.code == 0
    assert len(done.err.splitlines()) == 5
    assert "a.json: times are the mean of the requests of bench serve; throughput includes the begin" in done.err
    path = tmp_path / "rows.csv"
    path.write_text(done.out)
    rows = read_rows(path)
    assert [row.text("batch_size") for row in rows] == ["8", "8", "2", "4", "4"]
    assert {(row.text("model"), row.text("tensor_parallel")) for row in rows} == {("Qwen/Qwen3-32B", "2")}
    assert {measured_of(row).tpot_s for row in rows} == {0.04}
    sources = [row["source"] for row in csv.DictReader(done.out.splitlines())]
    assert sources[0] == "a.json, bench serve, mean"


def test_what_a_file_does_not_say_is_asked_for(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(INFERENCE_PERF))
    done = run_cli("measured", "a.json", *GIVEN)
    assert (done.code, done.out) == (2, "")
    assert "must say which model was served, got no name; try --model" in done.err
    done = run_cli("measured", "a.json", "--engine", "vlm", "--system", "h100_sxm")
    assert (done.code, done.err.count("\n")) == (2, 1)
