"""When a loop loads, computes and stores: one after the other, or overlapped (seed 002; IPU.md section 5)."""

from __future__ import annotations

from autoauto.records.batch_serial import LoopKind, LoopOp, LoopOrder
from autoauto.records.errors import BadInput
from autoauto.records.phased import IoMode

# io tiles       load 0 | load 1    | load 2 store 0 | store 1   | store 2
# compute tiles         | compute 0 | compute 1      | compute 2 |


def loop_order(io_mode: IoMode, steps: int) -> LoopOrder:
    """The operations of all steps in the order of a mode.

    Raises:
        BadInput: there are fewer than two steps to overlap.

    >>> [[str(op) for op in group] for group in loop_order(IoMode.IO, 1)]
    [['load 0'], ['compute 0'], ['store 0']]
    """
    if io_mode is IoMode.IO_OVERLAPPED:
        return overlapped_order(steps)
    return tuple((LoopOp(kind, step),) for step in range(steps) for kind in LoopKind)


def overlapped_order(steps: int) -> LoopOrder:
    """Every group loads micro-batch i and stores i - 2 in one exchange of the io tiles while i - 1 is computed.

    Raises:
        BadInput: there are fewer than two steps.

    >>> for group in overlapped_order(2):
    ...     print(" | ".join(map(str, group)))
    load 0
    load 1 | compute 0
    store 0 | compute 1
    store 1
    """
    if steps < 2:
        raise BadInput(f"steps must be >=2 if using overlapped IO, got {steps}; try io_mode io")
    kinds = ((LoopKind.LOAD, 0), (LoopKind.STORE, 2), (LoopKind.COMPUTE, 1))
    return tuple(
        tuple(LoopOp(kind, i - behind) for kind, behind in kinds if 0 <= i - behind < steps) for i in range(steps + 2)
    )


def order_cycles(order: LoopOrder, load_cycles: int, compute_cycles: int, store_cycles: int) -> int:
    """How long an order takes: in every group loads and stores follow each other, and compute runs beside them.

    >>> order_cycles(overlapped_order(2), 1, 4, 1), order_cycles(loop_order(IoMode.IO, 2), 1, 4, 1)
    (10, 12)
    """
    io_cycles = {LoopKind.LOAD: load_cycles, LoopKind.STORE: store_cycles, LoopKind.COMPUTE: 0}
    total = 0
    for group in order:
        computes = compute_cycles * any(op.kind is LoopKind.COMPUTE for op in group)
        total += max(computes, sum(io_cycles[op.kind] for op in group))
    return total
