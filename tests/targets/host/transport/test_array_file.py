"""Streaming memory: entries copied out and back, traffic counted, and no file left."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.errors import BadInput
from autoauto.targets.host.transport.shared_memory import PAGE_BYTES, ArrayFile, Buffer, Traffic

X = Buffer.of("x", (2, 3), rows=3, steps=4)
LABEL = Buffer.of("label", (5,), steps=2, dtype="int64")
LOSS = Buffer.of("loss", (), steps=2)


def test_entries_do_not_touch_each_other() -> None:
    with ArrayFile([X, LABEL, LOSS]) as memory:
        for row in range(3):
            for step in range(4):
                memory.store("x", row, step, np.full((2, 3), 10 * row + step, np.float32))
        memory.store("label", 0, 1, np.arange(5))
        memory.store("loss", 0, 1, np.array(0.5, np.float32))
        loaded = [memory.load("x", row, step)[1, 2] for row in range(3) for step in range(4)]
        assert loaded == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]
        assert memory.load("label", 0, 1).tolist() == [0, 1, 2, 3, 4]
        assert memory.load("label", 0, 0).tolist() == [0] * 5
        assert memory.load("loss", 0, 1) == 0.5


def test_a_loaded_entry_is_a_copy() -> None:
    with ArrayFile([X]) as memory:
        loaded = memory.load("x", 0)
        assert type(loaded) is np.ndarray
        assert loaded.flags.owndata
        loaded[:] = 7
        assert not memory.load("x", 0).any()


def test_traffic_is_counted() -> None:
    with ArrayFile([X, LABEL]) as memory:
        memory.load("x", 0, 1)
        memory.load("label", 0, 1)
        memory.store("x", 0, 0, np.ones((2, 3), np.float32))
        assert (memory.loads.n_entries, memory.loads.n_bytes) == (2, 24 + 40)
        assert (memory.stores.n_entries, memory.stores.n_bytes) == (1, 24)
        assert memory.loads.seconds > 0
        assert memory.stores.seconds > 0


def test_traffic_adds_up() -> None:
    traffic = Traffic()
    traffic.add(3, 0.5)
    traffic.add(4, 0.25)
    assert traffic == Traffic(2, 7, 0.75)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2000)), min_size=1, max_size=4))
def test_every_buffer_starts_on_a_page_of_its_own(sizes: list[tuple[int, int, int]]) -> None:
    buffers = [Buffer.of(str(i), (n,), rows, steps) for i, (rows, steps, n) in enumerate(sizes)]
    with ArrayFile(buffers) as memory:
        assert memory.n_bytes == sum(PAGE_BYTES * -(-4 * rows * steps * n // PAGE_BYTES) for rows, steps, n in sizes)
        for i, (rows, steps, n) in enumerate(sizes):
            memory.store(str(i), rows - 1, steps - 1, np.full(n, i, np.float32))
        for i, (rows, steps, _) in enumerate(sizes):
            assert set(memory.load(str(i), rows - 1, steps - 1)) == {i}


def test_the_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ArrayFile([X]) as memory:
        memory.store("x", 0, 0, np.ones((2, 3), np.float32))
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("row", "step"), [(3, 0), (0, 4), (-1, 0)])
def test_an_entry_outside_the_buffer_is_refused(row: int, step: int) -> None:
    with ArrayFile([X]) as memory, pytest.raises(BadInput, match="buffer x has rows 0 to 2 and steps 0 to 3"):
        memory.load("x", row, step)


def test_an_array_of_another_shape_is_not_broadcast() -> None:
    with ArrayFile([X]) as memory, pytest.raises(AssertionError):
        memory.store("x", 0, 0, np.ones((1, 3), np.float32))
