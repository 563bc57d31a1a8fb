from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from autoauto.plan.chunks import chunk_table, device_bytes, evaluate_chunks
from autoauto.records.cost import CostTable

MakeTable = Callable[[int], CostTable]


def test_the_host_counts_once_a_device_and_the_ring_closes() -> None:
    """Two devices: the host's constants are 100 in and 1000 out, the link between them 1 + i in and 10 + i out."""
    nothing = np.zeros(5, dtype=np.int64)
    inward, outward = np.arange(4) + 1, np.arange(5) + 10
    table = CostTable(
        np.array([0, 3, 5, 6, 10]), nothing, {}, ((),) * 4, (), (), nothing[:4], nothing,
        np.stack((nothing[:4], inward)) + 100, np.stack((outward, nothing)) + 1000,
        np.ones(5, dtype=np.bool_), nothing[:2],
    )  # fmt: skip
    plan = evaluate_chunks(chunk_table(table, 2), 2, (0, 1, 2, 3, 4))
    assert [stage.device for stage in plan.stages] == [0, 1, 0, 1]
    assert [stage.receive_cycles for stage in plan.stages] == [100, 100 + 2, 3, 4]
    assert [stage.send_cycles for stage in plan.stages] == [1000 + 11, 1000 + 12, 13, 0]
    assert plan.device_compute_cycles == {0: 3 + 1, 1: 2 + 4}
    assert plan.device_transfer_cycles == {0: 1100 + 11 + 3 + 13, 1: 1100 + 2 + 12 + 4}
    assert plan.cost_cycles == 6 + 1127


def test_one_device_sends_nothing_to_itself() -> None:
    nothing = np.zeros(4, dtype=np.int64)
    table = CostTable(
        np.array([0, 3, 5, 6]), nothing, {}, ((),) * 3, (), (), nothing[:3], nothing,
        np.full((1, 3), 100), np.full((1, 4), 1000), np.ones(4, dtype=np.bool_), nothing[:1],
    )  # fmt: skip
    plan = evaluate_chunks(chunk_table(table, 3), 1, (0, 1, 2, 3))
    assert (plan.compute_cycles, plan.transfer_cycles) == (6, 1100)


def test_one_chunk_is_the_table_itself(any_table: MakeTable) -> None:
    for table in map(any_table, range(50)):
        same = chunk_table(table, 1)
        assert (same.receive_cycles == table.receive_cycles).all()
        assert (same.send_cycles == table.send_cycles).all()
        assert same.speeds == table.speeds


def test_chunks_that_touch_need_what_their_range_needs(any_table: MakeTable) -> None:
    for table in map(any_table, range(200)):
        cuts = sorted({0, table.n_layers // 3, table.n_layers // 2, table.n_layers})
        whole = sum(table.memory_bytes(0, table.n_layers).values())
        together = device_bytes(table, list(pairwise(cuts)))
        assert device_bytes(table, [(0, table.n_layers)]) == whole
        assert whole <= together <= whole + int(table.activation_prefix_bytes[-1])


def test_chunks_keep_their_inputs_alone_when_they_compute_again() -> None:
    """Two chunks of two layers, each layer keeping 10 bytes, working on 5 and receiving 3."""
    nothing = np.zeros(5, dtype=np.int64)
    table = CostTable(
        nothing, nothing, {}, ((),) * 4, (), (), nothing[:4] + 5, np.arange(5) * 10,
        nothing[None, :4], nothing[None], np.ones(5, dtype=np.bool_), nothing[:1],
    )  # fmt: skip
    chunks = [(0, 2), (2, 4)]
    assert device_bytes(table, chunks) == 20 + 10 + 5
    assert device_bytes(replace(table, recompute_bytes=nothing[:4] + 3), chunks) == 3 + 10 + 5
