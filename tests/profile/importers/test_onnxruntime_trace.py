"""Profiles of ONNX Runtime that are written down here: which runs count, and what their shapes say of the batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from autoauto.profile.importers.onnxruntime_trace import line_of_nodes, read_onnxruntime
from autoauto.profile.importers.recorded import RecordedProfile
from autoauto.records.errors import BadInput

Ran = tuple[str, int]
"""A node that ran: its name and its microseconds."""
SHAPES = {"a": [2, 8], "b": [2, 4]}


def profile_of(folder: Path, runs: Sequence[Sequence[Ran]], shapes: dict[str, list[int]] = SHAPES) -> Path:
    """Runs of 1 ms, in which a node begins every 100 microseconds."""
    events: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        start = 1000 * number
        events.append({"cat": "Session", "name": "model_run", "ts": start, "dur": 900})
        for position, (name, duration) in enumerate(run):
            args = {"op_name": "Relu", "node_index": str(ord(name)), "output_type_shape": [{"float": shapes[name]}]}
            event = {"cat": "Node", "name": f"{name}_kernel_time", "ts": start + 100 * position, "dur": duration}
            events.append({**event, "args": args})
    path = folder / "p.json"
    path.write_text(json.dumps(events))
    return path


def seconds(path: Path) -> dict[str, float]:
    return {node.name: node.seconds for node in read_onnxruntime(path).nodes}


WARM: list[Ran] = [("a", 90), ("b", 80)]
FIRST: list[Ran] = [("a", 10), ("b", 20)]
SECOND: list[Ran] = [("a", 12), ("b", 22)]


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ([("b", 21)], "a"),  # as where the program was stopped
        ([("a", 11)], "b"),
        ([("a", 11), ("a", 11), ("b", 21)], "a"),
        ([("a", 11), ("b", 21), ("b", 21)], "b"),
    ],
)
@pytest.mark.parametrize("position", [1, 2, 3])
def test_runs_with_other_nodes_are_left_out_and_said(
    other: list[Ran], name: str, position: int, tmp_path: Path
) -> None:
    runs = [WARM, FIRST, SECOND]
    runs.insert(position, other)
    path = profile_of(tmp_path, runs)
    assert seconds(path) == pytest.approx({"a": 11e-6, "b": 21e-6})
    assert read_onnxruntime(path).notes == (
        "p.json: times are the median of 2 runs, without the first, which warms up",
        f"p.json: 1 of 4 runs are left out, since they lack nodes or have some twice, such as '{name}'",
    )


@pytest.mark.parametrize("other", [[("a", 11)], [("a", 11), ("a", 11), ("b", 21)]])
def test_the_first_run_counts_where_no_other_is_complete(other: list[Ran], tmp_path: Path) -> None:
    path = profile_of(tmp_path, [WARM, other])
    assert seconds(path) == pytest.approx({"a": 90e-6, "b": 80e-6})
    assert "p.json: times are one run, its first" in read_onnxruntime(path).notes


def test_a_node_that_runs_twice_in_every_run_has_the_sum(tmp_path: Path) -> None:
    path = profile_of(tmp_path, [[("a", 10), ("b", 20), ("a", 5)]] * 3)
    assert seconds(path) == pytest.approx({"a": 15e-6, "b": 20e-6})
    assert len(read_onnxruntime(path).notes) == 1


def line(folder: Path, shapes: dict[str, list[int]], batch_size: int | None) -> RecordedProfile:
    path = profile_of(folder, [[(name, 10) for name in shapes]], shapes)
    return line_of_nodes(path, read_onnxruntime(path), batch_size)


@pytest.mark.parametrize(
    ("shapes", "batch_size", "n_without"),
    [
        ({"a": [128, 768], "b": [12, 128, 128]}, None, 2),
        ({"a": [128, 768], "b": [12, 128, 128], "c": [1, 3], "d": [5]}, None, 2),
        ({"a": [8, 128, 768], "b": [96, 128, 128], "c": [8, 12]}, None, 3),
    ],
)
def test_a_batch_size_that_outputs_leave_open_is_said(
    shapes: dict[str, list[int]], batch_size: int | None, n_without: int, tmp_path: Path
) -> None:
    n_known = sum(len(shape) > 1 for shape in shapes.values())
    said = f"p.json: batch size 1 is assumed, although {n_without} of {n_known} shapes have no axis of it"
    assert said in line(tmp_path, shapes, batch_size).notes


@pytest.mark.parametrize(
    "shapes",
    [
        {"a": [8, 3], "b": [8, 4, 5]},
        {"a": [8, 64, 9, 9], "b": [8, 32, 9, 9], "c": [8, 10, 1, 1]},  # a pool leaves axes of 1
        {"a": [8, 1], "b": [8, 3]},
    ],
)
def test_a_batch_size_that_outputs_contradict_is_refused(shapes: dict[str, list[int]], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"must write an axis of the batch size 1, got \[8, .* of the first; give the"):
        line(tmp_path, shapes, None)
    assert not any("assumed" in note for note in line(tmp_path, shapes, 8).notes)


def test_samples_may_lie_along_the_second_axis(tmp_path: Path) -> None:
    """Of 20 tokens each, as in recurrent networks."""
    assert line(tmp_path, {"a": [20, 8, 64], "b": [20, 8, 32], "c": [20, 64]}, 8).batch_sizes == (8,)


def test_runs_of_several_threads_are_refused(tmp_path: Path) -> None:
    """Each would have the nodes of the other, and its times."""
    path = profile_of(tmp_path, [WARM, FIRST, SECOND])
    events = json.loads(path.read_text())
    events[3]["dur"] = 1100  # the second run, which the third one does not wait for
    path.write_text(json.dumps(events))
    with pytest.raises(
        BadInput, match="runs must follow each other, one begins at 2000 us before another ends at 2100"
    ):
        read_onnxruntime(path)


def test_nodes_that_run_while_another_does_all_count(tmp_path: Path) -> None:
    """With `ORT_PARALLEL` a node may begin and end while a longer one runs; it is no part of that one."""
    path = profile_of(tmp_path, [[("a", 350), ("b", 20)]] * 3)
    assert seconds(path) == pytest.approx({"a": 350e-6, "b": 20e-6})
    assert "p.json: nodes ran at once; a stage takes the sum of their times, one after the other" in (
        read_onnxruntime(path).notes
    )


def test_nodes_of_a_body_are_part_of_their_loop(tmp_path: Path) -> None:
    path = profile_of(tmp_path, [[("a", 350), ("b", 20)]] * 3)
    path.write_text(
        path.read_text().replace('"op_name": "Relu", "node_index": "97"', '"op_name": "Loop", "node_index": "97"')
    )
    assert seconds(path) == pytest.approx({"a": 350e-6})
