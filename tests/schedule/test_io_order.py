from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.batch_serial import LoopKind, LoopOp
from autoauto.records.errors import BadInput
from autoauto.records.phased import IoMode, loop_cycles
from autoauto.schedule.io_order import loop_order, order_cycles, overlapped_order


def test_the_overlapped_orders_of_the_vectors(vectors: Callable[[str], Any]) -> None:
    for steps, groups in vectors("batch_serialise")["overlapped_order"].items():
        assert [[[str(op.kind), op.step] for op in group] for group in overlapped_order(int(steps))] == groups


def test_one_step_cannot_overlap() -> None:
    with pytest.raises(BadInput, match=r"steps must be >=2 if using overlapped IO, got 1"):
        overlapped_order(1)


def test_times_of_the_vectors(vectors: Callable[[str], Any]) -> None:
    for case in vectors("batch_serialise")["time_model"]["cases"]:
        n, *parts = (case[name] for name in "NLCS")
        assert order_cycles(loop_order(IoMode.IO, n), *parts) == case["serial"]
        assert order_cycles(overlapped_order(n), *parts) == case["overlapped"]


CYCLES = st.integers(0, 50)


@given(st.integers(2, 40), CYCLES, CYCLES, CYCLES)
def test_the_closed_form_adds_up_the_groups(steps: int, load: int, compute: int, store: int) -> None:
    arrays = [np.array([part]) for part in (load, compute, store)]
    for mode in IoMode:
        total = order_cycles(loop_order(mode, steps), load, compute, store)
        assert int(loop_cycles(mode, steps, *arrays)[0]) == total
    assert order_cycles(overlapped_order(steps), load, compute, store) <= steps * (load + compute + store)


@given(st.integers(2, 40))
def test_every_micro_batch_is_loaded_then_computed_then_stored(steps: int) -> None:
    when = {op: i for i, group in enumerate(overlapped_order(steps)) for op in group}
    assert len(when) == 3 * steps
    for step in range(steps):
        groups = [when[LoopOp(kind, step)] for kind in (LoopKind.LOAD, LoopKind.COMPUTE, LoopKind.STORE)]
        assert groups == [step, step + 1, step + 2]
