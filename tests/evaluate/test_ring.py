"""The first and the last stage on one device, where they may read one weight."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest

from autoauto.estimate.sums import cuts_around
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.modes.training_table import default_orders
from autoauto.evaluate.open import load_flow
from autoauto.records.costs.profile import GRADIENT, PARAMETER
from autoauto.records.errors import BadInput, DoesNotFit
from autoauto.records.layers import LayerGraph
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs

RING = Knobs(2, 1, schedule=Order.POPART_RING, n_micro_batches=8)


def legal(tied: list[str | None], cuts: tuple[int, ...]) -> bool:
    """Whether the layers of every key are on one device, if the first and the last stage share it."""
    stage_of = [sum(cut <= layer for cut in cuts) for layer in range(len(tied))]
    devices = [stage % len(cuts) for stage in stage_of]
    return all(
        len({device for device, key in zip(devices, tied, strict=True) if key == name}) == 1
        for name in set(tied) - {None}
    )


@pytest.mark.parametrize(
    "tied",
    [
        [None] * 7,
        ["w", None, None, None, None, None, "w"],
        ["w", "v", None, "v", None, None, "w"],
        [None, "w", None, "w", None, None, "w"],
        ["w", "v", None, None, None, "w", "v"],
        [None, "w", "w", None, "v", None, "v"],
    ],
)
@pytest.mark.parametrize("n_cuts", [2, 3, 4])
def test_the_cuts_of_a_ring_are_those_that_keep_every_weight_on_one_device(tied: list[str | None], n_cuts: int) -> None:
    groups = [set(cuts.nonzero()[0].tolist()) for cuts in cuts_around(tied)]
    for cuts in combinations(range(1, len(tied)), n_cuts):
        assert any(group.issuperset(cuts) for group in groups) == legal(tied, cuts)


@pytest.mark.parametrize("tie", [None, (0, 7), (1, 6)])
def test_the_plan_of_a_ring_is_the_best_of_all(
    flow: Flow, chain: Callable[..., LayerGraph], tie: tuple[int, int] | None
) -> None:
    flow = flow.with_setting(graph=chain(kinds=["a"] * 8, **({"tie": tie} if tie else {})))
    steps = {}
    for inner in combinations(range(1, 8), 2):
        try:
            plan = flow.plans.cut_at(RING, (0, *inner, 8))
        except BadInput:
            continue
        if plan.excess_bytes <= 0:
            steps[inner] = flow.samples_per_s(RING, plan)
    assert len(steps) > 1
    best = flow.predict(RING)
    assert [stage.device for stage in best.stages] == [0, 1, 0]
    assert flow.samples_per_s(RING, best) == max(steps.values())


def test_gpt2_trains_with_embedding_and_head_on_one_device() -> None:
    flow = load_flow("gpt2-small", "bow-2000")
    assert default_orders(flow.setting, 4) == (Order.POPART_RING,)
    assert default_orders(flow.setting, 1) == (Order.POPART,)
    knobs = Knobs(4, 1, schedule=Order.POPART_RING, n_micro_batches=16, recompute=True)
    plan = flow.pipelines.plan_to_measure(knobs)
    measured = flow.measure(knobs, plan).plan
    table_bytes = 50257 * 768 * 2
    for each in (plan, measured):
        assert [stage.device for stage in each.stages] == [0, 1, 2, 3, 0]
        first, *_, last = each.stages
        for category in (PARAMETER, GRADIENT):
            assert first.memory_bytes[category] > table_bytes
            assert last.memory_bytes.get(category, 0) < table_bytes / 4, "the device holds it once"
    with pytest.raises(DoesNotFit, match="cuts between layers that share no variable"):
        flow.predict(Knobs(4, 1, schedule=Order.POPART, n_micro_batches=16))
    with pytest.raises(BadInput, match="no stage may begin at layer 1"):
        flow.plans.cut_at(Knobs(4, 1, schedule=Order.POPART, n_micro_batches=16), (0, 1, 2, 3, len(flow.graph)))


def test_a_ring_needs_two_devices() -> None:
    with pytest.raises(BadInput, match="several stages a device are for pipelines of 2 devices or more"):
        Knobs(1, 1, schedule=Order.POPART_RING, n_micro_batches=8)
