from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from autoauto.programs.popart.graph import OpKind, PipelineOp, PopartPipeline, Stash
from autoauto.programs.popart.input import read_pipeline, simple_pipeline
from autoauto.programs.popart.passes import (
    add_copies,
    add_stashes,
    backward_ops,
    find_stashes,
    forward_ops,
    merge_stages,
    stage_devices,
)
from autoauto.programs.popart.transform import transform
from autoauto.records.errors import BadInput

# Gradients and stages.


def gradients(*layers: tuple[str, list[str], int]) -> list[tuple[str, int, tuple[str, ...], tuple[str, ...]]]:
    """Gradient ops of layers with name, inputs and device; "w" is a variable, "k" a constant."""
    entries = [
        {"name": name, "inputs": inputs, "device": device, "outputs": [name.lower()]} for name, inputs, device in layers
    ]
    read = {name for _, inputs, _ in layers for name in inputs}
    listed = [{"name": name, "kind": kind} for name, kind in (("w", "variable"), ("k", "constant")) if name in read]
    graph = read_pipeline({"layers": entries, "tensors": listed})
    assert [op.name for op in forward_ops(graph)] == [name for name, _, _ in layers]
    return [(op.name, op.stage, op.inputs, op.outputs) for op in backward_ops(graph)]


def test_the_stages_of_gradients_are_those_of_the_notes() -> None:
    """Stage 2 has C and C', stage 3 B', stage 4 A'."""
    assert gradients(("A", ["in"], 0), ("B", ["a"], 1), ("C", ["b"], 2)) == [
        ("C'", 2, ("b",), ("d(b)",)),
        ("B'", 3, ("d(b)", "a"), ("d(a)",)),
        ("A'", 4, ("d(a)", "in"), ()),
    ]


def test_a_tensor_with_two_readers_gets_its_gradient_in_two_parts() -> None:
    assert gradients(("A", ["in"], 0), ("B", ["a"], 0), ("C", ["a", "b"], 1)) == [
        ("C'", 1, ("a", "b"), ("d(a) of C", "d(b)")),
        ("B'", 2, ("d(b)", "a"), ("d(a) of B",)),
        ("A'", 2, ("d(a) of C", "d(a) of B", "in"), ()),
    ]


def test_variables_and_constants_have_no_activation_gradient() -> None:
    assert gradients(("A", ["in", "w"], 0), ("B", ["a", "k"], 1))[0] == ("B'", 1, ("a", "k"), ("d(a)",))


def test_a_layer_that_does_not_lead_to_the_loss_has_no_gradient() -> None:
    assert [row[0] for row in gradients(("A", ["in"], 0), ("Log", ["a"], 0), ("B", ["a"], 1))] == ["B'", "A'"]


def test_two_losses_start_two_backwards() -> None:
    assert [row[0] for row in gradients(("A", ["in"], 0), ("B", ["a"], 1), ("C", ["a"], 1))] == ["C'", "B'", "A'"]


def test_a_gradient_may_need_outputs() -> None:
    layers = [{"name": "A", "device": 0}, {"name": "B", "device": 1, "gradient_needs": ["B:0"]}]
    assert backward_ops(read_pipeline({"layers": layers}))[0].inputs == ("B:0",)


def test_every_stage_must_lead_to_the_loss() -> None:
    with pytest.raises(BadInput, match="forward ones, 3, got 2: no layer of stage 1 leads to the loss"):
        gradients(("A", ["in"], 0), ("B", ["a"], 1), ("C", ["a"], 2))


@pytest.mark.parametrize(
    ("devices", "merged"),
    [
        ((0, 1, 2, 1, 0), (0, 1, 2, 3, 4)),
        ((0, 0, 1, 0, 0), (0, 0, 1, 2, 2)),
        ((0, 0, 1), (0, 0, 1)),
        ((1, 0, 0, 0), (0, 1, 1, 1)),
        ((0,), (0,)),
    ],
)
def test_neighbours_on_one_device_become_one_stage(devices: tuple[int, ...], merged: tuple[int, ...]) -> None:
    ops = [PipelineOp(f"L{stage}", OpKind.MAIN, stage, device, (), ()) for stage, device in enumerate(devices)]
    after = merge_stages(ops)
    assert tuple(op.stage for op in after) == merged
    assert tuple(op.device for op in after) == devices
    neighbours = stage_devices(after)
    assert all(a != b for a, b in pairwise(neighbours))


# Copies.

Layer = tuple[str, list[str], int]  # name, inputs, device; stages are numbered in this order


def moves(*layers: Layer, **more: object) -> tuple[dict[str, tuple[str, ...]], list[tuple[int, str, str]]]:
    """What every layer reads, and the copies with their stages."""
    graph = graph_of(*layers, **more)
    ops = add_copies(forward_ops(graph), graph)
    n = len(layers)
    return {op.name: op.inputs for op in ops[:n]}, [(op.stage, op.inputs[0], op.outputs[0]) for op in ops[n:]]


def graph_of(*layers: Layer, **more: object) -> Any:
    entries = [
        {"name": name, "inputs": inputs, "outputs": [name.lower()], "device": device, "stage": stage}
        for stage, (name, inputs, device) in enumerate(layers)
    ]
    return read_pipeline({"layers": entries, **more})


def test_a_copy_from_stage_to_stage() -> None:
    assert moves(("A", ["in"], 0), ("B", ["a"], 1)) == ({"A": ("in",), "B": ("a@1",)}, [(0, "a", "a@1")])


def test_a_tensor_passes_through_the_stages_between() -> None:
    reads, copies = moves(("A", ["in"], 0), ("B", ["other"], 1), ("C", ["b", "a"], 2))
    assert reads["C"] == ("b@2", "a@2")
    assert copies == [(1, "b", "b@2"), (0, "a", "a@1"), (1, "a@1", "a@2")]


def test_one_chain_for_all_readers() -> None:
    reads, copies = moves(("A", ["in"], 0), ("B", ["a"], 1), ("C", ["b", "a"], 2))
    assert (reads["B"], reads["C"]) == (("a@1",), ("b@2", "a@2"))
    assert [source for _, source, _ in copies] == ["a", "a@1", "b"]


def test_a_later_stage_on_a_device_reads_the_copy_of_the_first() -> None:
    """C reads a itself, D the copy that B received."""
    reads, copies = moves(("A", ["in"], 0), ("B", ["a"], 1), ("C", ["b", "a"], 0), ("D", ["c", "a"], 1))
    assert (reads["C"], reads["D"]) == (("b@2", "a"), ("c@3", "a@1"))
    assert [(stage, source) for stage, source, _ in copies if source.startswith("a")] == [(0, "a")]


def test_variables_constants_and_optimizer_tensors_are_not_copied() -> None:
    for kind in ("variable", "constant", "optimizer"):
        _, copies = moves(("A", ["in", "x"], 0), ("B", ["a", "x"], 1), tensors=[{"name": "x", "kind": kind}])
        assert [source for _, source, _ in copies] == ["a"]


def test_discontiguous_copies(vectors: Callable[[str], Any]) -> None:
    """A stream read on stages 0, 2 and 4 of 5 is streamed to stage 0 and copied through the others."""
    rows = vectors("popart_pipeline_cycles_stash")["repo_tests"]
    expected = next(row for row in rows if row["test"].startswith("discontiguous copies"))
    graph = graph_of(
        ("Add0", ["input0", "input1"], 0),
        ("Id1", ["add0"], 1),
        ("Add2", ["id1", "input1"], 2),
        ("Id3", ["add2"], 3),
        ("Add4", ["id3", "input1"], 4),
    )
    copies = transform(graph, 12, training=False, recompute=False).copies
    assert len(copies) == expected["total"]
    assert sum(op.inputs[0].startswith("input1") for op in copies) == expected["copies_for_tensor"]


def test_layers_need_not_be_listed_in_the_order_of_stages() -> None:
    """B of stage 1 is listed before A of stage 0; the stream goes to A."""
    layers = [{"name": "B", "device": 1}, {"name": "A", "device": 0, "inputs": ["in"]}]
    graph = read_pipeline({"layers": layers})
    assert [op.inputs for op in add_copies(forward_ops(graph), graph)] == [("in@1",), ("in",), ("in",)]


# Recomputation.

Entry = dict[str, Any]


def pipelined(*layers: Entry, recompute: bool = True, tensors: tuple[Entry, ...] = ()) -> PopartPipeline:
    graph = read_pipeline({"layers": list(layers), "tensors": list(tensors)})
    return transform(graph, 20, training=True, recompute=recompute)


def stashed(pipeline: PopartPipeline) -> set[str]:
    return {stash.tensor for stash in pipeline.stashes}


def second_runs(pipeline: PopartPipeline) -> list[tuple[str, int]]:
    """The layers that run a second time, and their stages."""
    return [(op.name, op.stage) for op in pipeline.ops if op.recompute]


def deep(n_devices: int, n_layers: int) -> list[Entry]:
    """`n_layers` layers on each device; gradients need outputs, as of sigmoids."""
    return [
        {"name": f"{device}{letter}", "device": device, "gradient_needs": [f"{device}{letter}:0"]}
        for device in range(n_devices)
        for letter in "abcdefg"[:n_layers]
    ]


def test_recomputation_stashes_the_inputs_of_a_stage_only() -> None:
    """0c' needs 0c:0, made from 0b:0, from 0a:0, from the stream: all three run again. The loss stage does not."""
    layers = deep(2, 3)
    assert stashed(pipelined(*layers, recompute=False)) == {"0a:0", "0b:0", "0c:0"}
    pipeline = pipelined(*layers)
    assert stashed(pipeline) == {"in"}
    assert second_runs(pipeline) == [("0a~", 2), ("0b~", 2), ("0c~", 2)]


def test_a_layer_whose_output_no_gradient_needs_does_not_run_again() -> None:
    """Gradients need inputs: B's is made again by A, but what B makes is needed on the next device only."""
    layers = ({"name": "A", "device": 0}, {"name": "B", "device": 0}, {"name": "C", "device": 1})
    assert second_runs(pipelined(*layers)) == [("A~", 2)]


def test_second_runs_come_before_the_gradients() -> None:
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


def test_an_output_that_a_later_stage_on_the_device_reads_is_stashed() -> None:
    """A makes a for B on device 1 and for C on device 0, two stages later; the gradients read C's stash."""
    layers = (
        {"name": "A", "device": 0, "stage": 0, "outputs": ["a"], "gradient_needs": ["a"]},
        {"name": "B", "device": 1, "stage": 1, "outputs": ["b"]},
        {"name": "C", "device": 0, "stage": 2, "inputs": ["a", "b"]},
        {"name": "D", "device": 1, "stage": 3},
    )
    pipeline = pipelined(*layers)
    assert second_runs(pipeline) == []
    assert next(s for s in pipeline.stashes if s.tensor == "a").restore_stages == (2, 4, 6)


def test_a_recomputed_tensor_leaves_from_a_clone() -> None:
    layers = ({"name": "A", "device": 0, "outputs": ["a"], "gradient_needs": ["a"]}, {"name": "B", "device": 1})
    pipeline = pipelined(*layers, tensors=({"name": "a", "anchored": True},))
    left = {op.name: op.inputs for op in pipeline.ops if op.kind in {OpKind.COPY, OpKind.TO_HOST} and op.stage == 0}
    assert left == {"copy a -> a@1": ("clone(a)",), "store a": ("clone(a)",)}
    assert [(op.name, op.stage) for op in pipeline.ops if op.kind is OpKind.CLONE] == [("clone a", 0)]


def test_a_restored_input_of_a_second_run_leaves_from_a_clone() -> None:
    """A runs again on x, which B's device reads, too; so it is cloned before stage 2 restores it in place."""
    layers = (
        {"name": "A", "device": 0, "inputs": ["x"], "gradient_needs": ["A:0"]},
        {"name": "B", "device": 1, "inputs": ["A:0", "x"]},
    )
    pipeline = pipelined(*layers)
    assert {op.inputs for op in pipeline.copies if op.stage == 0} == {("clone(A:0)",), ("clone(x)",)}
    assert [(stash.tensor, stash.in_place) for stash in pipeline.stashes] == [("x", True)]


def test_an_anchored_input_of_a_second_run_is_refused() -> None:
    """Without recomputation it is restored beside the anchor."""
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


# Stashes.


def main(name: str, stage: int, inputs: tuple[str, ...], outputs: tuple[str, ...] = ()) -> PipelineOp:
    return PipelineOp(name, OpKind.MAIN, stage, 0, inputs, outputs)


GRAPH = read_pipeline(
    {
        "layers": [{"name": "A", "inputs": ["in", "w", "k", "o"], "outputs": ["a", "b"]}],
        "tensors": [
            {"name": "w", "kind": "variable"},
            {"name": "k", "kind": "constant"},
            {"name": "o", "kind": "optimizer"},
        ],
    }
)
A = main("A", 0, ("in", "w", "k", "o"), ("x", "y"))


@pytest.mark.parametrize(
    ("readers", "stashes"),
    [
        ([main("B", 0, ("x",))], []),
        ([main("B", 2, ("x",))], [Stash("x", 0, 0, (2,), True)]),
        ([main("B", 2, ("x",)), main("C", 4, ("x",))], [Stash("x", 0, 0, (2, 4), True)]),
        ([main("B", 4, ("w", "k", "o"))], []),
        ([main("B", 3, ("in",))], [Stash("in", 0, 0, (3,), True)]),
        ([main("A~", 3, ("in",), ("x",)), main("B", 3, ("x",))], [Stash("in", 0, 0, (3,), True)]),
        ([main("B", 2, ("x@2",)), main("C", 4, ("x@2",))], [Stash("x@2", 0, 2, (4,), True)]),
    ],
    ids=["same stage", "later", "twice", "on the device anyway", "stream", "recomputed", "copied here"],
)
def test_tensors_that_later_stages_read_are_stashed(readers: list[PipelineOp], stashes: list[Stash]) -> None:
    assert list(find_stashes([A, *readers], GRAPH)) == stashes


def test_copied_tensors_and_anchors_are_not_restored_in_place() -> None:
    """Layer A's own outputs a and b are read by none, so they go to the host."""
    copy = PipelineOp("copy", OpKind.COPY, 0, 0, ("x",), ("x@1",))
    ops = [A, main("B", 0, (), ("a",)), main("C", 2, ("x", "y", "a")), copy]
    assert {stash.tensor: stash.in_place for stash in find_stashes(ops, GRAPH)} == {"x": False, "y": True, "a": False}


def test_restores_come_first_and_stashes_last() -> None:
    stashes = [Stash("x", 0, 0, (2,), True), Stash("y", 0, 0, (2, 3), False)]
    ops = add_stashes([A, main("B", 2, ("x", "y")), main("C", 3, ("y",))], stashes)
    assert [(op.stage, op.kind.value, op.inputs, op.outputs) for op in ops if op.name != "A"] == [
        (2, "restore", ("stash(x)",), ("x",)),
        (2, "restore", ("stash(y)",), ("y~2",)),
        (3, "restore", ("stash(y)",), ("y~3",)),
        (2, "main", ("x", "y~2"), ()),
        (3, "main", ("y~3",), ()),
        (0, "stash", ("x",), ("stash(x)",)),
        (0, "stash", ("y",), ("stash(y)",)),
    ]


def test_stash_sizes_of_3_stages(vectors: Callable[[str], Any]) -> None:
    """Sin | Exp, Conv | Reshape, Softmax, NLL, whose gradients need d0, e0 twice, and what the last device makes."""
    rows = vectors("popart_pipeline_cycles_stash")["repo_tests"]
    expected = next(row for row in rows if row["test"] == "3-stage training stash sizes")
    layers = [
        {"name": "Sin", "inputs": ["d0"], "outputs": ["s0"], "device": 0},
        {"name": "Exp", "inputs": ["s0"], "outputs": ["e0"], "device": 1, "gradient_needs": ["e0"]},
        {"name": "Conv", "inputs": ["e0", "w0"], "outputs": ["c0"], "device": 1},
        {"name": "Reshape", "inputs": ["c0"], "outputs": ["r0"], "device": 2, "gradient_needs": []},
        {"name": "Softmax", "inputs": ["r0"], "outputs": ["out"], "device": 2, "gradient_needs": ["out"]},
        {"name": "Nll", "inputs": ["out", "l0"], "outputs": ["nll"], "device": 2},
    ]
    graph = read_pipeline({"layers": layers, "tensors": [{"name": "w0", "kind": "variable"}]})
    pipeline = transform(graph, 8, training=True, recompute=False)
    sizes = {stash.tensor: stash.n_entries for stash in pipeline.stashes}
    assert sizes == {"d0": expected["d0"], "e0": expected["e0"]}
    assert len(sizes) == expected["num_stashes"]
