"""PopART's pipeline through the door: its program, its views, pipelines from files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Printed

Door = Callable[..., Printed]

THREE = ("schedule", "--order", "popart", "--stages", "3", "--micro-batches", "5")
SKIP = {
    "layers": [
        {"name": "A", "device": 0},
        {"name": "B", "device": 1},
        {"name": "C", "device": 2, "inputs": ["A:0", "B:0"]},
    ]
}


def test_the_program_is_the_default(door: Door) -> None:
    begin = "seq.add(ps0[D]);\nseq.add(ps0[M]);\nseq.add(C);\nseq.add(ps0[D]);\nseq.add(ps0[M]);\nseq.add(ps1[M]);"
    assert begin in door(*THREE, "--program").out


def test_a_view_stands_alone_or_after_the_program(door: Door) -> None:
    stages, devices = door(*THREE, "--view", "stages").out, door(*THREE, "--view", "devices").out
    assert "PS0: D0.M0." in stages
    assert "IPU0: PS0(0)" in devices
    assert door(*THREE, "--program", "--view", "stages").out == door(*THREE, "--program").out + "\n" + stages


def test_a_pipeline_comes_from_a_file(door: Door, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.json"
    file.write_text(json.dumps(SKIP), encoding="utf-8")
    told = json.loads(
        door("schedule", "--order", "popart", "--pipeline", str(file), "--micro-batches", "5", "--json").out
    )
    assert told["stage_devices"] == [0, 1, 2, 1, 0]
    assert told["n_pipeline_cycles"] == 9
    assert told["stash_entries"] == [5, 3, 0]
    assert told["n_copies"] == 3 + 4  # A's output goes by B to C, B's to C; back, B and C each have a gradient for A
    assert told["program"][1] == "seq.add(ps0[D]);"


def test_a_refused_pipeline_is_told_in_one_line(door: Door, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.json"
    layers = [{"name": "A", "device": 0, "stage": 0}, {"name": "B", "device": 1}]
    file.write_text(json.dumps({"layers": layers}), encoding="utf-8")
    refused = door("schedule", "--order", "popart", "--pipeline", str(file))
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "stage" in refused.err


@pytest.mark.parametrize(("order", "n_cycles"), [("grouped", 6 + 5), ("sequential", 6 * 6)])
def test_poplars_orders_take_the_devices_of_a_file(door: Door, tmp_path: Path, order: str, n_cycles: int) -> None:
    file = tmp_path / "pipeline.json"
    chain = {"layers": [{"name": name, "device": device} for device, name in enumerate("ABC")]}
    file.write_text(json.dumps(chain), encoding="utf-8")
    words = ("schedule", "--order", order, "--pipeline", str(file), "--micro-batches", "6", "--json")
    assert json.loads(door(*words).out)["n_pipeline_cycles"] == n_cycles


def test_a_program_is_printed_beside_what_is_simulated(door: Door, tmp_path: Path) -> None:
    page = tmp_path / "timeline.json"
    told = json.loads(door(*THREE, "--program", "--trace", str(page), "--json").out)
    assert told["makespan_cycles"] == (5 + 3 - 1) * 3
    assert told["program"][1] == "seq.add(ps0[D]);"
    assert page.exists()


def test_layers_of_a_file_are_not_simulated(door: Door, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.json"
    file.write_text(json.dumps(SKIP), encoding="utf-8")
    refused = door("schedule", "--order", "popart", "--pipeline", str(file), "--trace", "x.json", "--bubble-checks")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "trace, bubble_checks" in refused.err


def test_other_orders_have_no_such_pipeline(door: Door, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.json"
    file.write_text(json.dumps(SKIP), encoding="utf-8")
    assert "popart" in door("schedule", "--order", "1f1b", "--pipeline", str(file)).err
    assert "popart" in door("schedule", "--order", "1f1b", "--view", "stages").err
