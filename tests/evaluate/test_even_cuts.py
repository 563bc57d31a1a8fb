from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.pipelines.even_cuts import block_cuts, even_partitions
from autoauto.graph.load import load_graph
from autoauto.records.layers import Block, LayerRange
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Status
from tests.cost_tables import make_table
from tests.evaluate.linear import LinearTarget

BLOCKS = tuple(Block(f"layers.{i}", LayerRange(i, i + 1)) for i in range(7))


def test_stages_compute_about_equally_long_or_have_as_many_blocks() -> None:
    table = make_table(np.array([0, 1, 2, 3, 4, 5, 6, 30]))
    assert list(even_partitions(table, BLOCKS, 2)) == [(0, 6, 7), (0, 6, 7), (0, 3, 7), (0, 3, 7)]
    assert list(even_partitions(make_table(np.arange(8)), BLOCKS, 4))[2:] == [(0, 1, 3, 5, 7), (0, 1, 3, 5, 7)]
    assert list(even_partitions(make_table(np.arange(8)), BLOCKS, 5))[2:] == [(0, 1, 2, 4, 5, 7), (0, 1, 2, 3, 5, 7)]
    assert not list(even_partitions(table, BLOCKS, 8))
    tied = np.array([cut not in (1, 3) for cut in range(8)])
    assert next(even_partitions(replace(make_table(np.arange(8)), cut_allowed=tied), (), 3)) == (0, 2, 5, 7)


def test_cuts_at_blocks_lie_between_embedding_encoder_layers_and_head() -> None:
    graph = load_graph("bert-base-128-mlm")
    cuts = block_cuts(graph)
    names = [graph.layers[cut].name for cut in cuts]
    assert len(cuts) == 13
    assert all(f"layer.{i}." in name for i, name in enumerate(names[:12]))
    assert names[12].startswith("cls.")
    assert block_cuts(replace(graph, blocks=())) == []


@pytest.mark.parametrize(("surplus", "fits"), [(1.0, True), (1.2, False)])
def test_even_cuts_are_measured_where_the_estimate_sees_no_plan(flow: Flow, surplus: float, fits: bool) -> None:
    """The estimate may fill 85 % of a device; compiled, they may fill all of it."""
    flow = flow.with_setting(target=LinearTarget(surplus))
    too_large = next(knobs for knobs in map(training, range(1, 99)) if flow.forecast(knobs).status is not Status.OK)
    trial = flow.evaluate(too_large)
    assert (trial.status is Status.OK) == fits
    if fits:
        assert trial.plan.partition == (0, 4, 8)


def training(batch_size: int) -> Knobs:
    return Knobs(2, batch_size, schedule=Order.GPIPE, n_micro_batches=1)
