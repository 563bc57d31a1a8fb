from collections.abc import Callable
from typing import Any

from autoauto.records.units import Precision
from autoauto.targets.ipu.kernels import LOOPS, loop


def test_every_loop_takes_time_and_half_is_never_slower_than_twice_single() -> None:
    for name in LOOPS:
        half, single = loop(name, Precision.FP16), loop(name, Precision.FP32)
        assert min(*half, *single) > 0
        assert half.cycles / half.elements <= 2 * single.cycles / single.elements


def test_loops_are_those_of_poplibs(vectors: Callable[[str], Any]) -> None:
    """In-place tables but for comparisons; a natural vector takes two cycles more; sines have no loop in fp32."""
    tables = vectors("poplibs_elementwise_tables")["tables"]
    published = tables["unaryOpInPlacePerfInfo"] | tables["binaryOpInPlacePerfInfo"]
    published["COMPARE"] = tables["binaryOpPerfInfo"]["EQUAL"]
    for name in LOOPS.keys() - {"cast", "convert", "dropout", "gelu", "select", "sine"}:
        for inner, (kind, width) in zip(LOOPS[name], (("HALF", 4), ("FLOAT", 2)), strict=True):
            row = published[name.upper()][kind]
            natural = (row["cycles_per_loop"] + 2, width)
            assert inner == (natural if row["natural_vector"] else (row["cycles_per_loop"], row["unroll"])), name


def test_four_floats_pass_the_data_path_of_eight_bytes_in_the_two_cycles_of_their_conversion() -> None:
    for precision in (Precision.FP16, Precision.FP32):
        cycles, elements = loop("convert", precision)
        assert cycles == elements * Precision.FP32.n_bytes // 8
