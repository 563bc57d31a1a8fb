from collections.abc import Callable
from typing import Any

import pytest

from autoauto.records.pipeline import OpKind, PipelineOp, Stash
from autoauto.schedule.pipeline_input import read_pipeline
from autoauto.schedule.stash_ops import add_stashes, find_stashes
from autoauto.schedule.transform import transform


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
    ids=["same stage", "later", "twice", "kept anyway", "stream", "recomputed", "copied here"],
)
def test_what_is_stashed(readers: list[PipelineOp], stashes: list[Stash]) -> None:
    assert list(find_stashes([A, *readers], GRAPH)) == stashes


def test_what_is_copied_or_anchored_is_restored_elsewhere() -> None:
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
