"""A search over orders, stages a device, recomputation and replicas of training, against every configuration."""

from __future__ import annotations

import pytest

from autoauto.evaluate.open import load_flow
from autoauto.records.schedule import Order
from autoauto.space.modes.mode import Recompute
from autoauto.space.space import SearchSpace
from autoauto.study.defaults import default_space
from autoauto.study.search import search_flow

ORDERS = (Order.POPART, Order.INTERLEAVED, Order.ZB1P)


@pytest.mark.slow
@pytest.mark.timeout(300)  # compiles 41 configurations of training
def test_few_measurements_find_the_best_of_all() -> None:
    given = {
        "n_ipu": (2, 4),
        "replicas": (4,),
        "memory_proportion": (0.3,),
        "batch_size": (8, 16),
        "schedule": ORDERS,
        "stages_per_device": (1, 2),
        "recompute": (False, True, Recompute.AUTO),
    }
    flow = load_flow("bert-base-128", "bow-pod16")
    space = default_space(flow, given, global_batch=1024)
    guided, exhaustive = (search_flow(flow, space, method=method, n_repeats=0) for method in ("guided", "exhaustive"))
    assert guided.best is not None
    assert exhaustive.best is not None
    assert len(exhaustive.trials) == space.n_configurations > 30
    assert guided.best.samples_per_s >= 0.995 * exhaustive.best.samples_per_s
    assert sum(trial.was_measured for trial in guided.trials.values()) <= 20


def test_steps_that_an_order_does_not_divide_leave_those_that_it_does() -> None:
    space = SearchSpace(
        (2, 4), (1.0,), (1,), schedule=(Order.INTERLEAVED,), stages_per_device=(2,), n_micro_batches=(4, 6)
    )
    assert {(each.n_ipu, each.mode.n_micro_batches) for (each,) in space.cells} == {(2, 4), (2, 6), (4, 4)}
