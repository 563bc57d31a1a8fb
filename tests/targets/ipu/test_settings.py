from collections.abc import Callable
from typing import Any

from autoauto.records.units import Precision
from autoauto.targets.ipu import IpuTarget, Settings
from autoauto.targets.ipu.operators import work
from autoauto.targets.ipu.work import Site

MakeSite = Callable[..., Site]


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
