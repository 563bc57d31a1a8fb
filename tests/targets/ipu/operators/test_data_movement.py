from collections.abc import Callable
from typing import Any

from autoauto.targets.ipu.operator_cost import OperatorContext
from autoauto.targets.ipu.operators import data_movement as moves

MakeContext = Callable[..., OperatorContext]


def test_a_relayout_takes_its_bytes_in_and_copies_them(context_of: MakeContext, node: Any) -> None:
    cost = moves.move(context_of(node("Concat", ["x:1x64x46x32"], (1, 64, 46, 32))))
    share = 64 * 46 * 32 * 2 // 1472
    assert (cost.exchange_cycles, cost.compute_cycles) == (126 + max(160, share // 4 + 8 * 12), 288 + share // 8)


def test_transposing_the_last_axis_goes_element_by_element(context_of: MakeContext, node: Any) -> None:
    def cycles(*perm: int) -> int:
        return moves.shuffle(context_of(node("Transpose", ["x:1x64x64x64"], (1, 64, 64, 64), perm=perm))).compute_cycles

    assert cycles(0, 2, 1, 3) < cycles(0, 1, 3, 2)


def test_linear_interpolation_also_computes(context_of: MakeContext, node: Any) -> None:
    def cycles(mode: str) -> int:
        return moves.interpolate(context_of(node("Resize", ["x:1x3x64x64"], (1, 3, 128, 128), mode=mode))).cycles

    assert cycles("nearest") < cycles("linear")


def test_moving_everything_takes_all_that_is_read_and_written(context_of: MakeContext, node: Any) -> None:
    assert moves.move_everything(context_of(node("Mystery", ["x:1x8"], (1, 8)))).cycles > 0
    small = moves.move_everything(context_of(node("Mystery", ["x:1x8"], (1, 8)))).cycles
    assert moves.move_everything(context_of(node("Mystery", ["x:1x8000000"], (1, 8)))).cycles > small
