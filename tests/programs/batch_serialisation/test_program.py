from collections.abc import Callable
from typing import Any

import pytest

from autoauto.programs.batch_serialisation.program import (
    BatchSerialResult,
    LoopKind,
    LoopOp,
    PhaseGraph,
    RowHandle,
    Stream,
    TensorMove,
)
from autoauto.records.errors import BadInput
from autoauto.records.plans.phased import BufferLayout, IoMode


@pytest.mark.parametrize(
    ("offset", "entries"), [(None, [0, 1]), (0, [4, 5]), (1, [8, 9]), (lambda row: 3 * row, [12, 13])]
)
def test_offsets_choose_the_row(offset: Any, entries: list[int]) -> None:
    handle = RowHandle(BufferLayout("x", 4, 4), offset)
    assert [handle.entry(1, step) for step in range(2)] == entries


def test_the_index_rule_agrees_with_the_vectors(vectors: Callable[[str], Any]) -> None:
    for case in vectors("batch_serialise")["index_vectors"]:
        handle = RowHandle(BufferLayout("x", case["rows"], case["steps"]), case["row_offset"])
        entries = [handle.entry(case["call_row"], step) for step in range(case["steps"])]
        assert entries == case["entries"]


def test_a_row_beyond_the_buffer_is_refused() -> None:
    with pytest.raises(BadInput, match="buffer x has rows 0 to 1"):
        RowHandle(BufferLayout("x", 2, 4), 1).entry(1, 0)


def test_shards_are_gathered_after_and_reduced_before() -> None:
    x = BufferLayout("x", 1, 1)
    whole, shards = RowHandle(x), RowHandle(x, shards=4)
    assert (whole.after_load, whole.before_store) == ((), ())
    assert (shards.after_load, shards.before_store) == (("all_gather",), ("reduce_scatter",))
    assert RowHandle(x, shards=4, groups_match=False).before_store == ("all_reduce", "slice")


def test_a_call_lists_the_tensors_that_it_moves() -> None:
    x = BufferLayout("x", 3, 2)
    loop = BatchSerialResult(
        graph=PhaseGraph("g", ("a", "b"), ("c",), ("w",)),
        steps=2,
        rows=2,
        io_mode=IoMode.IO,
        loads={"b": Stream("in"), "a": RowHandle(x, 0)},
        streams={"c": Stream("out")},
        buffers={"c": RowHandle(x, 1)},
        store_buffers={"c": RowHandle(x, 1)},
        seed_input=None,
        order=tuple((LoopOp(kind, 1),) for kind in LoopKind),
        remap={"w": "g/w"},
    )
    assert loop.inputs == ("row", "g/w")
    assert [step.moves for group in loop.call(1) for step in group] == [
        (TensorMove("a", "x", 3), TensorMove("b", "in", None)),
        (),
        (TensorMove("c", "out", None), TensorMove("c", "x", 5)),
    ]
