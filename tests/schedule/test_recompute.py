from collections.abc import Callable
from typing import Any

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.pipeline import OpKind, Pipeline
from autoauto.schedule.pipeline_input import read_pipeline, simple_pipeline
from autoauto.schedule.transform import transform

Entry = dict[str, Any]


def pipelined(*layers: Entry, recompute: bool = True, tensors: tuple[Entry, ...] = ()) -> Pipeline:
    graph = read_pipeline({"layers": list(layers), "tensors": list(tensors)})
    return transform(graph, 20, training=True, recompute=recompute)


def stashed(pipeline: Pipeline) -> set[str]:
    return {stash.tensor for stash in pipeline.stashes}


def again(pipeline: Pipeline) -> list[tuple[str, int]]:
    """What runs a second time, and in which stage."""
    return [(op.name, op.stage) for op in pipeline.ops if op.recompute]


def deep(n_devices: int, n_layers: int) -> list[Entry]:
    """`n_layers` layers on each device; gradients need outputs, as of sigmoids."""
    return [
        {"name": f"{device}{letter}", "device": device, "gradient_needs": [f"{device}{letter}:0"]}
        for device in range(n_devices)
        for letter in "abcdefg"[:n_layers]
    ]


def test_only_what_enters_a_stage_is_stashed() -> None:
    """0c' needs 0c:0, made from 0b:0, from 0a:0, from the stream: all three run again. The loss stage does not."""
    layers = deep(2, 3)
    assert stashed(pipelined(*layers, recompute=False)) == {"0a:0", "0b:0", "0c:0"}
    pipeline = pipelined(*layers)
    assert stashed(pipeline) == {"in"}
    assert again(pipeline) == [("0a~", 2), ("0b~", 2), ("0c~", 2)]


def test_what_no_gradient_needs_does_not_run_again() -> None:
    """Gradients need inputs: B's is made again by A, but what B makes is needed on the next device only."""
    layers = ({"name": "A", "device": 0}, {"name": "B", "device": 0}, {"name": "C", "device": 1})
    assert again(pipelined(*layers)) == [("A~", 2)]


def test_second_runs_stand_before_the_gradients() -> None:
    names = [op.name for op in pipelined(*deep(2, 2)).ops if op.stage == 2 and op.kind is OpKind.MAIN]
    assert names == ["0a~", "0b~", "0b'", "0a'"]


def test_recompute_stashes_one_tensor_a_device(vectors: Callable[[str], Any]) -> None:
    rows = vectors("popart_pipeline_cycles_stash")["repo_tests"]
    expected = next(row for row in rows if row["test"] == "recompute_ir")["stashes"]
    for n_devices in (3, 4):
        assert len(pipelined(*deep(n_devices, 3)).stashes) == expected[f"{n_devices} IPUs"]


def test_merged_stages_stash_the_first_input_alone(vectors: Callable[[str], Any]) -> None:
    rows = vectors("popart_pipeline_cycles_stash")["repo_tests"]
    expected = next(row for row in rows if row["test"].startswith("merge 3 stages to 2"))
    weights = [{"name": f"weight_{i}", "kind": "variable"} for i in (1, 2, 3)]
    layers = [
        {"name": "X0", "inputs": ["x_in", "weight_1"], "device": 0, "stage": 0},
        {"name": "X1", "inputs": ["X0:0", "weight_2"], "device": 0, "stage": 1},
        {"name": "O", "inputs": ["X1:0", "weight_3"], "device": 1, "stage": 2},
        {"name": "Loss", "device": 1, "stage": 2},
    ]
    graph = read_pipeline({"layers": layers, "tensors": weights})
    pipeline = transform(graph, expected["gradient_accumulation_ok"], training=True, recompute=True)
    assert pipeline.devices == (0, 1, 0)
    assert stashed(pipeline) == set(expected["stashed"])


def test_what_a_later_stage_on_the_device_reads_is_stashed_not_made_again() -> None:
    """A makes a for B on device 1 and for C on device 0, two stages later; the gradients read C's stash."""
    layers = (
        {"name": "A", "device": 0, "stage": 0, "outputs": ["a"], "gradient_needs": ["a"]},
        {"name": "B", "device": 1, "stage": 1, "outputs": ["b"]},
        {"name": "C", "device": 0, "stage": 2, "inputs": ["a", "b"]},
        {"name": "D", "device": 1, "stage": 3},
    )
    pipeline = pipelined(*layers)
    assert again(pipeline) == []
    assert next(s for s in pipeline.stashes if s.tensor == "a").restore_stages == (2, 4, 6)


def test_what_is_made_again_leaves_from_a_clone() -> None:
    layers = ({"name": "A", "device": 0, "outputs": ["a"], "gradient_needs": ["a"]}, {"name": "B", "device": 1})
    pipeline = pipelined(*layers, tensors=({"name": "a", "anchored": True},))
    left = {op.name: op.inputs for op in pipeline.ops if op.kind in {OpKind.COPY, OpKind.TO_HOST} and op.stage == 0}
    assert left == {"copy a -> a@1": ("clone(a)",), "store a": ("clone(a)",)}
    assert [(op.name, op.stage) for op in pipeline.ops if op.kind is OpKind.CLONE] == [("clone a", 0)]


def test_what_is_restored_for_a_second_run_leaves_from_a_clone() -> None:
    """A runs again on x, which B's device reads, too; so it is cloned before stage 2 restores it in place."""
    layers = (
        {"name": "A", "device": 0, "inputs": ["x"], "gradient_needs": ["A:0"]},
        {"name": "B", "device": 1, "inputs": ["A:0", "x"]},
    )
    pipeline = pipelined(*layers)
    assert {op.inputs for op in pipeline.copies if op.stage == 0} == {("clone(A:0)",), ("clone(x)",)}
    assert [(stash.tensor, stash.in_place) for stash in pipeline.stashes] == [("x", True)]


def test_an_anchored_input_of_a_second_run_is_refused() -> None:
    """Without recomputation it is restored beside the anchored tensor."""
    layers = ({"name": "A", "device": 0}, {"name": "B", "device": 0}, {"name": "C", "device": 1})
    tensors = ({"name": "in", "kind": "stream", "anchored": True},)
    pipeline = pipelined(*layers, recompute=False, tensors=tensors)
    assert [(stash.tensor, stash.in_place) for stash in pipeline.stashes] == [("in", False), ("A:0", True)]
    with pytest.raises(BadInput, match="recomputed reads in,"):
        pipelined(*layers, tensors=tensors)


def test_inference_has_nothing_to_recompute() -> None:
    graph = simple_pipeline(3)
    plain = transform(graph, 3, training=False, recompute=False)
    assert transform(graph, 3, training=False, recompute=True) == plain
