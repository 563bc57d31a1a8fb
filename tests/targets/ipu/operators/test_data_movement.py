from collections.abc import Callable
from typing import Any

from autoauto.targets.ipu.operator_cost import Family, Site
from autoauto.targets.ipu.operators import data_movement as moves

MakeSite = Callable[..., Site]


def test_a_relayout_takes_its_bytes_in_and_copies_them(site: MakeSite, node: Any) -> None:
    work = moves.move(site(node("Concat", ["x:1x64x46x32"], (1, 64, 46, 32))))
    share = 64 * 46 * 32 * 2 // 1472
    assert (work.exchange_cycles, work.compute_cycles) == (126 + max(160, share // 4 + 8 * 12), 288 + share // 8)


def test_transposing_the_last_axis_goes_element_by_element(site: MakeSite, node: Any) -> None:
    def cycles(*perm: int) -> int:
        return moves.shuffle(site(node("Transpose", ["x:1x64x64x64"], (1, 64, 64, 64), perm=perm))).compute_cycles

    assert cycles(0, 2, 1, 3) < cycles(0, 1, 3, 2)


def test_linear_interpolation_also_computes(site: MakeSite, node: Any) -> None:
    def cycles(mode: str) -> int:
        return moves.interpolate(site(node("Resize", ["x:1x3x64x64"], (1, 3, 128, 128), mode=mode))).cycles

    assert cycles("nearest") < cycles("linear")


def test_what_is_not_known_moves_all_it_touches(site: MakeSite, node: Any) -> None:
    assert moves.anything(site(node("Mystery", ["x:1x8"], (1, 8)))).cycles > 0
    small = moves.anything(site(node("Mystery", ["x:1x8"], (1, 8)))).cycles
    assert moves.anything(site(node("Mystery", ["x:1x8000000"], (1, 8)))).cycles > small


def test_looking_up_more_rows_takes_longer(site: MakeSite, node: Any) -> None:
    def cycles(n: int) -> int:
        return moves.look_up(site(node("Gather", [(30522, 768), f"x:1x{n}"], (1, n, 768)))).cycles

    assert 0 < cycles(16) < cycles(128) < cycles(1024)


def test_indices_may_be_attributes_or_tuples(site: MakeSite, node: Any) -> None:
    one = moves.look_up(site(node("Gather", ["x:1x128x768"], (1, 768), indices=0, axis=1)))
    tuples = moves.look_up(site(node("GatherND", ["x:1x128x768", "x:1x5x2"], (1, 5, 768))))
    written = moves.look_up(site(node("ScatterND", ["x:1x128x768", "x:1x5x2", "x:1x5x768"], (1, 128, 768))))
    assert min(one.cycles, tuples.cycles, written.cycles) > 0
    assert one.family is Family.GATHER


def test_sorting_takes_longer_than_scanning(site: MakeSite, node: Any) -> None:
    scanned = moves.scan(site(node("CumSum", ["x:1x1000"], (1, 1000))))
    sorted_ = moves.sort(site(node("TopK", ["x:1x1000"], (1, 10))))
    assert 0 < scanned.cycles < sorted_.cycles
