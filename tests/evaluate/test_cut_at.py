"""Stages that begin at blocks: exact plans, a part of what a study is of, and refused where there are no blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autoauto.estimate.table import with_cuts_at
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow, open_problem
from autoauto.plan.pipeline.optimal import optimal
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Cluster, DeviceKind
from autoauto.records.layers import Block, LayerGraph, LayerRange
from autoauto.records.plans.phased import IoMode, PhasedOptions
from autoauto.records.plans.plan import CutAt, Plan
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.requests.problem import Planning, Problem
from autoauto.space.space import SearchSpace
from tests.evaluate.linear import DEVICE
from tests.plan.conftest import _training_table as training_table
from tests.plan.exhaustive import exhaustive

BLOCKS = tuple(Block(f"h.{i}", LayerRange(*ends)) for i, ends in enumerate([(0, 3), (3, 5), (5, 8)]))


@pytest.fixture
def at_blocks(flow: Flow) -> Flow:
    """Eight equal layers in blocks of 3, 2 and 3, on two devices."""
    return flow.with_setting(graph=replace(flow.graph, blocks=BLOCKS), cut_at=CutAt.BLOCKS)


def knobs(n_ipu: int = 2) -> Knobs:
    return Knobs(n_ipu=n_ipu, memory_proportion=0.6, batch_size=1)


@pytest.mark.parametrize("seed", range(60))
def test_with_fewer_cuts_plans_are_exact(seed: int) -> None:
    table = training_table(seed)
    cuts = [cut for cut in range(1, table.n_layers) if (cut + seed) % 3]
    restricted = with_cuts_at(table, cuts)
    assert outcome(optimal, restricted) == outcome(exhaustive, restricted)


def outcome(planner: Callable[[CostTable], Plan], table: CostTable) -> tuple[str, int]:
    """The cost of the plan, or the bytes that are missing for one."""
    try:
        return "cost", planner(table).cost_cycles
    except Infeasible as failure:
        return "missing", failure.excess_bytes


def test_a_cut_that_a_matrix_forbids_stays_forbidden(random_cuts: CostTable) -> None:
    allowed = with_cuts_at(random_cuts, range(random_cuts.n_layers)).cut_allowed
    assert allowed.tolist() == random_cuts.cut_allowed.tolist()
    assert with_cuts_at(random_cuts, []).cut_allowed.sum() == 2


@pytest.fixture
def random_cuts() -> CostTable:
    tables = (training_table(seed) for seed in range(100))
    return next(table for table in tables if not table.cut_allowed.all() and table.n_layers > 2)


def test_stages_begin_at_blocks(flow: Flow, at_blocks: Flow) -> None:
    assert flow.predict(knobs()).partition == (0, 4, 8)
    assert at_blocks.predict(knobs()).partition in ((0, 3, 8), (0, 5, 8))
    assert at_blocks.predict(knobs()).cost_cycles == exhaustive(at_blocks.table(knobs())).cost_cycles


def test_stages_on_devices_of_several_kinds_begin_at_blocks_too(at_blocks: Flow) -> None:
    link = at_blocks.cluster.send_links[0]
    kinds = Cluster.of_kinds(
        "two", "ipu", tuple(DeviceKind(replace(DEVICE, name=name), 1, link, link) for name in ("a", "b"))
    )
    assert set(at_blocks.with_setting(cluster=kinds).predict(knobs()).partition) <= {0, 3, 5, 8}


def test_it_is_part_of_the_fingerprint_only_where_it_matters(flow: Flow, at_blocks: Flow) -> None:
    assert flow.fingerprint()["cut_at"] == "layers"
    assert at_blocks.fingerprint() == {**flow.fingerprint(), "cut_at": "blocks"}


def test_a_problem_that_says_so_is_opened_with_it() -> None:
    assert open_problem(Problem("resnet50", planning=Planning(cut_at="blocks"))).setting.cut_at is CutAt.BLOCKS
    assert open_problem(Problem("resnet50")).setting.cut_at is CutAt.LAYERS


def test_a_model_without_blocks_is_refused(flow: Flow) -> None:
    with pytest.raises(BadInput, match=r"names of repeated modules like .* chain has none; try --cut-at layers$"):
        flow.with_setting(cut_at=CutAt.BLOCKS)


def test_another_word_is_refused() -> None:
    with pytest.raises(BadInput, match="cut_at is one of layers, blocks, got 'stages'"):
        load_flow("resnet50", cut_at="stages")


def test_phases_are_refused(at_blocks: Flow) -> None:
    with pytest.raises(BadInput, match="phases begin at any layer, got --cut-at blocks"):
        at_blocks.checked(SearchSpace((1,), (0.6,), (1,), strategy=(Strategy.PHASED,)))
    with pytest.raises(BadInput, match="phases begin at any layer, got --cut-at blocks"):
        at_blocks.phases.plan(knobs(1), PhasedOptions(1, next(iter(IoMode))))


def test_matrices_that_are_tied_across_blocks_leave_no_cut(at_blocks: Flow, chain: Callable[..., LayerGraph]) -> None:
    tied = at_blocks.with_setting(graph=replace(chain(["a"] * 8, tie=(0, 7)), blocks=BLOCKS))
    with pytest.raises(Infeasible, match="must stay together"):
        tied.predict(knobs())
