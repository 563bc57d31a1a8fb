from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.pipelines.plans import block_cuts, even_partitions
from autoauto.graph.load import load_graph
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import GRADIENT, CompiledRange, WeightUpdate
from autoauto.records.hardware import Device
from autoauto.records.layers import Block, LayerGraph, LayerRange
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


def test_training_is_compared_with_as_many_blocks_on_each_device(flow: Flow) -> None:
    blocks = tuple(Block(f"layers.{i}", LayerRange(i, i + 1)) for i in range(8))
    flow = flow.with_setting(target=LinearTarget(), graph=replace(flow.graph, blocks=blocks))
    knobs = training(1)
    even = flow.measure(knobs, flow.plans.cut_at(knobs, (0, 4, 8)))
    assert flow.even_samples_per_s(knobs) == flow.pipelines.measured_samples_per_s(knobs, even) > 0
    assert flow.even_samples_per_s(Knobs(2, 1)) == flow.even_samples_per_s(replace(knobs, n_ipu=1)) == 0


class HeavyKind(LinearTarget):
    """Layers of the kind "b" have gradients of 1 MB, ten times those of others, and an update of 20,000 cycles."""

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        compiled = super().compile(graph, layers, device, options)
        more = 900_000 * sum(layer.kind == "b" for layer in graph.layers[slice(*layers)])
        gradients = compiled.exclusive.get(GRADIENT, 0) + more
        return replace(compiled, exclusive={**compiled.exclusive, GRADIENT: gradients})

    def weight_update_cycles(
        self, graph: LayerGraph, device: Device, options: CompileOptions, update: WeightUpdate
    ) -> tuple[int, ...]:
        return tuple(20_000 if layer.kind == "b" else 2_000 for layer in graph.layers)


def test_cuts_balance_the_ends_of_steps_where_they_are_long(flow: Flow, chain: Callable[..., LayerGraph]) -> None:
    """With equal stages the first device ends a step with 62,000 cycles, with 2 layers with 40,000."""
    flow = flow.with_setting(target=HeavyKind(), graph=chain(["b"] * 3 + ["a"] * 5))
    few = training(1).with_values(n_micro_batches=2)
    many = few.with_values(n_micro_batches=24)
    assert [flow.predict(knobs).partition for knobs in (few, many)] == [(0, 4, 8)] * 2, "before the ends of steps"
    trials = [flow.evaluate(knobs) for knobs in (few, many)]
    assert [trial.plan.partition for trial in trials] == [(0, 2, 8), (0, 4, 8)]
    equal = flow.plans.cut_at(few, (0, 4, 8))
    assert trials[0].samples_per_s > flow.samples_per_s(few, equal)


def training(batch_size: int) -> Knobs:
    return Knobs(2, batch_size, schedule=Order.GPIPE, n_micro_batches=1)
