"""A tiny interpreter of loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from autoauto.programs.batch_serialisation.program import BatchSerialResult, LoopKind, TensorMove
from autoauto.records.units import FloatArray

Arrays = dict[str, FloatArray]


@dataclass
class Machine:
    """A tiny interpreter of loops: arrays are buffers; the first axis of every array counts replicas.

    A group's operations see only what earlier groups have made, as those of a group run at the same time.
    """

    buffers: dict[str, dict[int, FloatArray]] = field(default_factory=dict)
    inputs: dict[str, list[FloatArray]] = field(default_factory=dict)
    outputs: dict[str, list[FloatArray]] = field(default_factory=dict)
    seeds: list[tuple[int, int]] = field(default_factory=list)

    def run(self, loop: BatchSerialResult, row: int, compute: Callable[[Arrays], Arrays], **bound: Any) -> None:
        """Call a loop with a row; `bound` are its other inputs by the names that the graph has for them."""
        assert {loop.remap[name] for name in bound} == set(loop.inputs) - {"row"}
        values: dict[int, Arrays] = {}
        for group in loop.call(row):
            before = {step: dict(arrays) for step, arrays in values.items()}
            for op, moves in group:
                if op.kind is LoopKind.LOAD:
                    values[op.step] = {move.tensor: self._load(move) for move in moves} | bound
                elif op.kind is LoopKind.COMPUTE:
                    if loop.seed_input:
                        self.seeds.append((row, op.step))
                    values[op.step] = before[op.step] | compute(before[op.step])
                else:
                    for move in moves:
                        self._store(move, before[op.step][move.tensor])

    def _load(self, move: TensorMove) -> FloatArray:
        if move.entry is None:
            return self.inputs[move.location].pop(0)
        return collective(self.buffers[move.location][move.entry], move.collectives)

    def _store(self, move: TensorMove, value: FloatArray) -> None:
        if move.entry is None:
            self.outputs.setdefault(move.location, []).append(value)
        else:
            self.buffers.setdefault(move.location, {})[move.entry] = collective(value, move.collectives)


def collective(value: FloatArray, names: tuple[str, ...]) -> FloatArray:
    n = len(value)
    for name in names:
        if name == "all_gather":
            value = np.stack([value.reshape(-1)] * n)
        elif name == "reduce_scatter":
            value = value.sum(axis=0).reshape(n, -1)
        elif name == "all_reduce":
            value = np.stack([value.sum(axis=0)] * n)
        else:
            assert name == "slice"
            value = np.stack(list(value[0].reshape(n, -1)))
    return value


@pytest.fixture
def machine() -> Machine:
    return Machine()
