"""Cost tables for tests, with a neutral value for every column that a test does not give: `make_table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import RangeMemory, SharedMemory
from autoauto.records.units import BoolArray, IntArray

Column = Sequence[int] | IntArray | None


def make_table(
    compute_prefix_cycles: IntArray,
    n_devices: int = 1,
    *,
    backward_prefix_cycles: Column = None,
    exclusive_prefix_bytes: Mapping[str, IntArray] | None = None,
    shared: SharedMemory | None = None,
    peak_bytes: Column = None,
    activation_prefix_bytes: Column = None,
    receive_cycles: Column = None,
    send_cycles: Column = None,
    cut_allowed: BoolArray | None = None,
    memory_limit_bytes: Column = None,
) -> CostTable:
    """Layers of these cycles on devices of one clock; what is not given is 0, and cuts are allowed everywhere."""
    n = len(compute_prefix_cycles) - 1

    def column(values: Column, *shape: int) -> IntArray:
        return np.zeros(shape, dtype=np.int64) if values is None else np.asarray(values)

    return CostTable(
        compute_prefix_cycles=np.asarray(compute_prefix_cycles),
        backward_prefix_cycles=column(backward_prefix_cycles, n + 1),
        weight_prefix_cycles=column(None, n + 1),
        entry_cycles=column(None, n),
        memory=RangeMemory(
            exclusive_prefix_bytes=exclusive_prefix_bytes or {},
            shared=shared or SharedMemory(((),) * n, (), ()),
            peak_bytes=column(peak_bytes, n),
            activation_prefix_bytes=column(activation_prefix_bytes, n + 1),
            stashed_input_bytes=column(None, n),
            input_bytes=column(None, n),
            checkpoint_prefix_bytes=column(None, n + 1),
            recompute=False,
        ),
        stash_entries=(0,) * n_devices,
        memory_limit_bytes=column(memory_limit_bytes, n_devices),
        receive_cycles=column(receive_cycles, n_devices, n),
        send_cycles=column(send_cycles, n_devices, n + 1),
        cut_allowed=np.ones(n + 1, dtype=np.bool_) if cut_allowed is None else cut_allowed,
        speeds=(Fraction(1),) * n_devices,
    )


def with_memory(table: CostTable, **columns: Any) -> CostTable:
    """The table with other columns of its `RangeMemory`."""
    return replace(table, memory=replace(table.memory, **columns))


def one_clock(table: CostTable) -> CostTable:
    """The table with devices of one clock."""
    return replace(table, speeds=(Fraction(1),) * table.n_devices)


def with_unlike_devices(table: CostTable, seed: int) -> CostTable:
    """The table where ranges cost other cycles and other memory on some devices, as if their sessions differed."""
    random = np.random.default_rng(seed)
    kinds = [table, *(_dearer(table, random) for _ in range(2))]
    of_devices = [kinds[kind] for kind in random.integers(0, len(kinds), table.n_devices)]
    return replace(table, of_devices=tuple(of_devices)).part(0, table.n_devices)


def _dearer(table: CostTable, random: np.random.Generator) -> CostTable:
    """Every layer takes up to twice the cycles, most of them in its forward pass, and another peak of memory."""
    scale = max(1, int(table.compute_prefix_cycles[-1]) // 400)
    more = np.concatenate(([0], np.cumsum(random.integers(0, 40, table.n_layers)))) * scale
    backward = np.concatenate(([0], np.cumsum(random.integers(0, 2, table.n_layers)))) * scale
    peaks = table.memory.peak_bytes + random.integers(0, 20, table.n_layers)
    return replace(
        with_memory(table, peak_bytes=peaks),
        compute_prefix_cycles=table.compute_prefix_cycles + more + backward,
        backward_prefix_cycles=table.backward_prefix_cycles + backward,
    )
