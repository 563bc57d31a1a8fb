"""What fits at a batch size fits below, for whole models."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autoauto.graph.load import load_graph
from autoauto.records.costs.options import CompileOptions
from autoauto.records.installation import builtin_models
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.session import IpuSession
from autoauto.targets.ipu.target import IpuTarget
from studies import monotone
from studies.monotone import Need
from tests.drawn import daily

MODELS = ["resnet50", "gpt2-small", *sorted({*builtin_models()} - {"resnet50", "gpt2-small"})]


def test_a_need_below_any_earlier_one_is_a_fall() -> None:
    assert monotone.falls([Need(1.0, 1.0), Need(2.0, 1.0), Need(2.0, 2.0)]) == 0
    assert monotone.falls([Need(5.0, 4.0), Need(3.0, 4.0), Need(4.0, 4.0), Need(5.0, 3.0)]) == 3
    assert monotone.falls([Need(1.0, 1.0), Need(float("inf"), float("inf")), Need(9.0, 9.0)]) == 1, "too much code"


@pytest.mark.parametrize("largest", [0, 1, 7, 23, 24, 180, 255, 256])
def test_where_a_model_ends_is_found_with_the_sizes_around_it(largest: int) -> None:
    def at(batch_size: int) -> Need:
        return Need(float(batch_size), float(batch_size) - 0.5)

    needs = {n: at(n) for n in monotone.BATCH_SIZES}
    assert monotone.last_fit(needs, at, largest) == largest
    around = range(largest - monotone.AROUND, largest + monotone.AROUND + 1)
    assert {n for n in around if 1 <= n <= 256} <= set(needs)
    assert monotone.falls([needs[n] for n in sorted(needs)]) == 0


@pytest.mark.parametrize("model", daily(MODELS, 2))
@pytest.mark.parametrize("training", [False, True])
def test_no_built_in_model_needs_less_for_a_larger_batch(model: str, training: bool) -> None:
    assert IpuTarget.traits.memory_never_falls
    graph, device = load_graph(model), load_cluster("c600").devices[0]
    for proportion in monotone.QUICK_PROPORTIONS:
        session = IpuSession(proportion)
        needs = [
            monotone.need(graph, device, CompileOptions(n, Precision.FP16, training, session))
            for n in (1, 3, 4, 12, 64)
        ]
        assert monotone.falls(needs) == 0
        assert needs[0] < needs[-1]


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_neither_a_transformer_nor_a_convolutional_network_needs_less_for_a_larger_batch(
    run_script: Callable[..., list[str]],
) -> None:
    _, *rows = (line.split() for line in run_script("monotone", "--quick", "bert-base-128", "resnet50"))
    assert len(rows) == 2 * sum(map(len, monotone.MODES.values()))
    for _, _, _, n_programs, n_falls, *_ in rows:
        assert int(n_programs) >= 2 * len(monotone.BATCH_SIZES)
        assert n_falls == "0"
