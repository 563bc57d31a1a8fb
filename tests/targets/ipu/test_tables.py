from autoauto.records.units import Precision
from autoauto.targets.ipu.tables import ELEMENTWISE, LOOPS, loop


def test_every_operator_uses_loops_of_the_table() -> None:
    assert {name for loops in ELEMENTWISE.values() for name in loops} <= LOOPS.keys()


def test_every_loop_takes_time_and_half_is_never_slower_than_twice_single() -> None:
    for name in LOOPS:
        half, single = loop(name, Precision.FP16), loop(name, Precision.FP32)
        assert min(*half, *single) > 0
        assert half.cycles / half.elements <= 2 * single.cycles / single.elements
