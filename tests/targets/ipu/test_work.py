from collections.abc import Callable
from typing import Any

from autoauto.targets.ipu.work import Demand, Family, Site, Work, together

MakeSite = Callable[..., Site]


def test_together_adds_time_and_joins_the_rest() -> None:
    first = Work(Family.PRODUCT, 10, 20, ("a", "b"), 5, 1, 100, demands=(Demand(0, 7),))
    second = Work(Family.ELEMENTWISE, 1, 2, ("b", "c"), 8, 2, 50, within_bound=False)
    both = together(first, second)
    assert both == Work(Family.PRODUCT, 11, 22, ("a", "b", "c"), 8, 3, 100, demands=(Demand(0, 7),), within_bound=False)
    assert both.cycles == 33


def test_a_site_reads_operands_at_the_batch_size(site: MakeSite, node: Any) -> None:
    here = site(node("Conv", ["x:1x3x8x8", (4, 3, 1, 1), ""], (1, 4, 8, 8)), batch_size=5)
    assert here.shape(0) == (5, 3, 8, 8)
    assert here.shape(1) == (4, 3, 1, 1)
    assert here.shape(2) == here.shape(9) == ()
    assert here.tensor(2) is None
    assert here.out_shape == (5, 4, 8, 8)
    assert here.out_bytes == 2 * here.n_out == 2 * 5 * 4 * 8 * 8
    assert [here.is_activation(index) for index in here.present] == [True, False]
    assert here.bound_bytes == 638976 * 0.6


def test_attributes_have_defaults(site: MakeSite, node: Any) -> None:
    here = site(node("Op", ["x:1x3"], (1, 3), axis=-1, axes=(1, 2), mode="linear", scale=1.5))
    assert (here.axis(0, 4), here.integer("scale", 7), here.integers("axes", ()), here.text("mode")) == (
        3,
        7,
        (1, 2),
        "linear",
    )
    assert (here.axis(0, 0), here.integers("none", (9,)), here.integers("axis", ()), here.text("none")) == (
        0,
        (9,),
        (-1,),
        "",
    )
