"""`autoauto measured` makes rows that `--measured` reads."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoauto.cli.options.study import DEFAULT_STORAGE
from autoauto.evaluate.serving.rows import measured_of, read_rows
from autoauto.space.engine_measurements import EngineMeasurements
from autoauto.space.study_summary import ENGINE_MEASUREMENTS
from autoauto.study.analysis.best import summarise_study
from autoauto.study.store.database import set_attribute
from autoauto.study.store.study import load_study
from tests.cli.conftest import RunCli
from tests.load.test_results import AIPERF, GUIDELLM, INFERENCE_PERF, SERVE_BENCH
from tests.report.engines import ROWS, load

SERVED = ("Qwen/Qwen3-8B", "--target", "gpu", "--cluster", "h100_sxm-2", "--isl", "512", "--osl", "128")
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


def measured_study(run_cli: RunCli) -> EngineMeasurements:
    """A search for one kind of GPUs whose first two configurations are then given measurements, 1.25 x the forecast."""
    done = run_cli("search", *SERVED, "--study-name", "asked", "--engine", "vllm", "--replicas", "1")
    assert done.code == 0
    study = load_study(DEFAULT_STORAGE, "asked")
    trials = [trial for trial in summarise_study(study, DEFAULT_STORAGE).trials if trial.fits][:2]
    assert trials
    rows = []
    for trial in trials:
        slower = load(trial.samples_per_s / 1.25, 1.25 * trial.tokens.tpot_s, 1.1 * trial.tokens.ttft_s)
        n_clients = trial.knobs.batch_size * trial.knobs.n_ipu * trial.knobs.replicas
        rows.append(replace(ROWS[0], knobs=trial.knobs, n_clients=n_clients, turns=(slower,)))
    measured = EngineMeasurements(tuple(rows), answer=0, where="local")
    set_attribute(study, ENGINE_MEASUREMENTS, measured.text)
    return measured


@pytest.mark.slow
def test_what_a_study_measured_calibrates_other_lengths(run_cli: RunCli, tmp_path: Path) -> None:
    pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
    measured = measured_study(run_cli)
    done = run_cli("measured", "--study", "asked")
    assert (done.code, done.err) == (0, "")
    path = tmp_path / "rows.csv"
    path.write_text(done.out)
    rows = read_rows(path)
    assert len(rows) == len(measured.rows)
    assert {(row.text("engine"), row.text("system"), row.text("model")) for row in rows} == {
        ("vllm", "h100_sxm", "Qwen/Qwen3-8B")
    }
    assert measured_of(rows[0]).tpot_s == pytest.approx(measured.rows[0].tpot_s, rel=1e-5)
    same, longer = (predicted(run_cli, path, tokens) for tokens in ("512", "4096"))
    plain = predicted(run_cli, None, "512")
    assert 1.1 < same["tpot_s"] / plain["tpot_s"] < 1.25
    assert relative_width(longer) > relative_width(same)


def predicted(run_cli: RunCli, path: Path | None, input_tokens: str) -> dict[str, Any]:
    """A configuration on another number of GPUs."""
    asked = (SERVED[0], "--target", "gpu", "--cluster", "h100_sxm-4", "--engine", "vllm", "--osl", "128")
    options = ("--isl", input_tokens, "--tensor-parallel", "2", "--replicas", "2", "--batch-size", "8", "--json")
    answer: dict[str, Any] = json.loads(run_cli("predict", *asked, *options, *_measured(path)).out)
    return answer


def _measured(path: Path | None) -> tuple[str, ...]:
    return () if path is None else ("--measured", str(path))


def relative_width(answer: dict[str, Any]) -> float:
    low, high = answer["tpot_s_error_interval"]
    return float(high / low)


def test_a_study_without_measurements_has_no_rows(run_cli: RunCli) -> None:
    assert run_cli("search", "resnet50", "--n-ipu", "1", "--batch-size", "1", "--study-name", "plain").code == 0
    done = run_cli("measured", "--study", "plain")
    assert (done.code, done.out) == (2, "")
    assert done.err == ("autoauto: study 'plain' must have measured engines, got none; try search --measure 3\n")


def test_files_need_what_they_do_not_say(run_cli: RunCli) -> None:
    done = run_cli("measured", "--engine", "vllm")
    assert (done.code, done.err) == (2, "autoauto: rows need FILE.json, --system, or --study STUDY\n")
