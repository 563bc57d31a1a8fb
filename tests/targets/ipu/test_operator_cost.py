from collections.abc import Callable
from typing import Any

from autoauto.records.units import Precision
from autoauto.targets.ipu.operator_cost import Demand, Family, Settings, Site, Work, together
from autoauto.targets.ipu.operators.registry import work
from autoauto.targets.ipu.target import IpuTarget

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


def cycles(site: Site, settings: Settings) -> int:
    return work(Site(site.graph, site.layer, site.device, site.options, settings)).cycles


def test_settings_are_part_of_the_version() -> None:
    versions = [
        IpuTarget(s).version
        for s in (Settings(), Settings(Precision.FP32), Settings(float_operators=frozenset({"Gelu"})))
    ]
    assert len(set(versions)) == 3
    assert versions[0] == IpuTarget().version


def test_single_precision_sums_cost_more_in_products_alone(site: MakeSite, node: Any) -> None:
    single = Settings(partials=Precision.FP32)
    product = site(node("MatMul", ["x:1x512x768", (768, 768)], (1, 512, 768)))
    other = site(node("Relu", ["x:1x512x768"], (1, 512, 768)))
    assert cycles(product, single) > 1.3 * cycles(product, Settings())
    assert cycles(other, single) == cycles(other, Settings())


def test_float_operators_run_between_casts(site: MakeSite, node: Any) -> None:
    here = site(node("Gelu", ["x:1x2048x768"], (1, 2048, 768)), batch_size=4)
    single = site(node("Gelu", ["x:1x2048x768"], (1, 2048, 768)), batch_size=4, precision=Precision.FP32)
    between = cycles(here, Settings(float_operators=frozenset({"Gelu"})))
    assert between > cycles(single, Settings()) > cycles(here, Settings())
    assert cycles(single, Settings(float_operators=frozenset({"Gelu"}))) == cycles(single, Settings())
    assert cycles(here, Settings(float_operators=frozenset({"Softmax"}))) == cycles(here, Settings())
