from collections.abc import Callable
from typing import Any

from autoauto.targets.ipu.operator_cost import Family, OperatorContext
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


def test_an_unknown_operator_moves_all_it_reads_and_writes(context_of: MakeContext, node: Any) -> None:
    assert moves.move_everything(context_of(node("Mystery", ["x:1x8"], (1, 8)))).cycles > 0
    small = moves.move_everything(context_of(node("Mystery", ["x:1x8"], (1, 8)))).cycles
    assert moves.move_everything(context_of(node("Mystery", ["x:1x8000000"], (1, 8)))).cycles > small


def test_looking_up_more_rows_takes_longer(context_of: MakeContext, node: Any) -> None:
    def cycles(n: int) -> int:
        return moves.look_up(context_of(node("Gather", [(30522, 768), f"x:1x{n}"], (1, n, 768)))).cycles

    assert 0 < cycles(16) < cycles(128) < cycles(1024)


def test_indices_may_be_attributes_or_tuples(context_of: MakeContext, node: Any) -> None:
    row = moves.look_up(context_of(node("Gather", ["x:1x128x768"], (1, 768), indices=0, axis=1)))
    tuples = moves.look_up(context_of(node("GatherND", ["x:1x128x768", "x:1x5x2"], (1, 5, 768))))
    written = moves.look_up(context_of(node("ScatterND", ["x:1x128x768", "x:1x5x2", "x:1x5x768"], (1, 128, 768))))
    assert min(row.cycles, tuples.cycles, written.cycles) > 0
    assert row.family is Family.GATHER


def test_sorting_takes_longer_than_scanning(context_of: MakeContext, node: Any) -> None:
    scanned = moves.scan(context_of(node("CumSum", ["x:1x1000"], (1, 1000))))
    sorted_ = moves.sort(context_of(node("TopK", ["x:1x1000"], (1, 10))))
    assert 0 < scanned.cycles < sorted_.cycles
