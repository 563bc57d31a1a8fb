from collections.abc import Callable
from typing import Any

from autoauto.schedule.autodiff import forward_ops
from autoauto.schedule.copies import add_copies
from autoauto.schedule.pipeline_input import read_pipeline
from autoauto.schedule.transform import transform

Layer = tuple[str, list[str], int]  # name, inputs, device; stages are numbered on


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


def test_a_later_stage_on_a_device_reads_what_the_first_got() -> None:
    """C reads a at home, D what B got."""
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


def test_layers_need_not_stand_in_the_order_of_stages() -> None:
    """B of stage 1 stands before A of stage 0; the stream goes to the latter."""
    layers = [{"name": "B", "device": 1}, {"name": "A", "device": 0, "inputs": ["in"]}]
    graph = read_pipeline({"layers": layers})
    assert [op.inputs for op in add_copies(forward_ops(graph), graph)] == [("in@1",), ("in",), ("in",)]
