"""`autoauto schedule` for PopART's pipeline: its program, its views, pipelines from files."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import RunCli

THREE = ("schedule", "--schedule", "popart", "--stages", "3", "--n-micro-batches", "5")
SKIP = {
    "layers": [
        {"name": "A", "device": 0},
        {"name": "B", "device": 1},
        {"name": "C", "device": 2, "inputs": ["A:0", "B:0"]},
    ]
}


def test_the_program_is_the_default(run_cli: RunCli) -> None:
    begin = "seq.add(ps0[D]);\nseq.add(ps0[M]);\nseq.add(C);\nseq.add(ps0[D]);\nseq.add(ps0[M]);\nseq.add(ps1[M]);"
    assert begin in run_cli(*THREE, "--program").out


def test_a_view_stands_alone_or_after_the_program(run_cli: RunCli) -> None:
    stages, devices = run_cli(*THREE, "--view", "stages").out, run_cli(*THREE, "--view", "devices").out
    assert "PS0: D0.M0." in stages
    assert "IPU0: PS0(0)" in devices
    assert run_cli(*THREE, "--program", "--view", "stages").out == run_cli(*THREE, "--program").out + "\n" + stages


def test_a_pipeline_comes_from_a_file(run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.json"
    file.write_text(json.dumps(SKIP), encoding="utf-8")
    record = json.loads(
        run_cli("schedule", "--schedule", "popart", "--pipeline", str(file), "--n-micro-batches", "5", "--json").out
    )
    assert record["stage_devices"] == [0, 1, 2, 1, 0]
    assert record["n_pipeline_cycles"] == 9
    assert record["stash_entries"] == [5, 3, 0]
    assert record["n_copies"] == 3 + 4  # A's output goes by B to C, B's to C; back, B and C each have a gradient for A
    assert record["program"][1] == "seq.add(ps0[D]);"


def test_recompute_is_on_off_or_alone(run_cli: RunCli) -> None:
    words = (*THREE, "--program", "--json")
    off, on, alone = (run_cli(*words, "--recompute", *switch).out for switch in (("off",), ("on",), ()))
    assert off == run_cli(*words).out != on == alone


def test_a_refused_pipeline_is_one_line(run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.json"
    layers = [{"name": "A", "device": 0, "stage": 0}, {"name": "B", "device": 1}]
    file.write_text(json.dumps({"layers": layers}), encoding="utf-8")
    refused = run_cli("schedule", "--schedule", "popart", "--pipeline", str(file))
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "stage" in refused.err


@pytest.mark.parametrize(("order", "n_cycles"), [("grouped", 6 + 5), ("sequential", 6 * 6)])
def test_poplars_orders_take_the_devices_of_a_file(run_cli: RunCli, tmp_path: Path, order: str, n_cycles: int) -> None:
    file = tmp_path / "pipeline.json"
    chain = {"layers": [{"name": name, "device": device} for device, name in enumerate("ABC")]}
    file.write_text(json.dumps(chain), encoding="utf-8")
    words = ("schedule", "--schedule", order, "--pipeline", str(file), "--n-micro-batches", "6", "--json")
    assert json.loads(run_cli(*words).out)["n_pipeline_cycles"] == n_cycles


def test_a_program_is_printed_beside_what_is_simulated(run_cli: RunCli, tmp_path: Path) -> None:
    page = tmp_path / "timeline.json"
    record = json.loads(run_cli(*THREE, "--program", "--trace", str(page), "--json").out)
    assert record["makespan_cycles"] == (5 + 3 - 1) * 3
    assert record["program"][1] == "seq.add(ps0[D]);"
    assert page.exists()


def test_layers_of_a_file_are_not_simulated(run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.json"
    file.write_text(json.dumps(SKIP), encoding="utf-8")
    refused = run_cli(
        "schedule", "--schedule", "popart", "--pipeline", str(file), "--trace", "x.json", "--bubble-checks"
    )
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "trace, bubble_checks" in refused.err


def test_other_orders_have_no_such_pipeline(run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.json"
    file.write_text(json.dumps(SKIP), encoding="utf-8")
    assert "popart" in run_cli("schedule", "--schedule", "1f1b", "--pipeline", str(file)).err
    assert "popart" in run_cli("schedule", "--schedule", "1f1b", "--view", "stages").err
