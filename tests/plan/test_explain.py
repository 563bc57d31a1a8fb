from __future__ import annotations

from collections.abc import Callable

from autoauto.plan.pipeline.optimal import optimal
from autoauto.plan.pipeline.problem import evaluate
from autoauto.plan.queries import explain
from autoauto.records.costs.cost import CostTable
from autoauto.records.hardware import Period
from tests.plan.exhaustive import all_fitting

MakeTable = Callable[[int], CostTable]


def test_the_explanation_names_the_stages_that_bind(any_table: MakeTable) -> None:
    for table in map(any_table, range(300)):
        for plan in all_fitting(table):
            explanation = explain(table, plan)
            cost, period = plan.cost_cycles, table.period
            slowest, longest = [], []
            for i, stage in enumerate(plan.stages):
                compute, receive, send = stage.compute_cycles, stage.receive_cycles, stage.send_cycles
                if period is Period.BARRIER:
                    binds = compute == plan.compute_cycles, receive + send == plan.transfer_cycles
                elif period is Period.OVERLAP:
                    binds = compute == cost, receive + send == cost
                elif period is Period.DUPLEX:
                    binds = compute == cost, max(receive, send) == cost
                else:
                    busiest = compute + receive + send == cost
                    binds = busiest and compute > 0, busiest and receive + send > 0
                slowest += [i] * binds[0]
                longest += [i] * binds[1]
            assert (explanation.compute_stages, explanation.transfer_stages) == (tuple(slowest), tuple(longest))
            spare = [stage.limit_bytes - stage.total_bytes for stage in plan.stages]
            assert explanation.spare_bytes == min(spare) == spare[explanation.memory_stage] >= 0


def test_every_move_costs_what_the_moved_plan_costs(any_table: MakeTable) -> None:
    n_moves = 0
    for table in map(any_table, range(300)):
        for plan in all_fitting(table):
            explanation = explain(table, plan)
            assert [cut.layer for cut in explanation.cuts] == list(plan.partition[1:-1])
            for i, cut in enumerate(explanation.cuts, start=1):
                for move in filter(None, (cut.earlier, cut.later)):
                    moved = evaluate(table, (*plan.partition[:i], move.layer, *plan.partition[i + 1 :]))
                    excess = max(stage.total_bytes - stage.limit_bytes for stage in moved.stages)
                    assert (move.cost_cycles, move.excess_bytes) == (moved.cost_cycles, max(0, excess))
                    low, high = sorted((cut.layer, move.layer))
                    assert table.cut_allowed[move.layer]
                    assert not table.cut_allowed[low + 1 : high].any()
                    n_moves += 1
    assert n_moves > 1000


def test_the_next_best_move_is_no_better_than_the_optimum(any_table: MakeTable) -> None:
    n_moves = 0
    for table in map(any_table, range(300)):
        if plans := list(all_fitting(table)):
            move = explain(table, optimal(table)).next_best
            assert move is None or move.cost_cycles >= min(plan.cost_cycles for plan in plans)
            n_moves += move is not None
    assert n_moves > 50


def test_the_excess_of_a_move_counts_the_stashes(training_table: MakeTable) -> None:
    n_moves = 0
    for table in map(training_table, range(200)):
        for plan in all_fitting(table):
            for i, cut in enumerate(explain(table, plan).cuts, start=1):
                for move in filter(None, (cut.earlier, cut.later)):
                    moved = evaluate(table, (*plan.partition[:i], move.layer, *plan.partition[i + 1 :]))
                    assert move.excess_bytes == max(0, *(s.total_bytes - s.limit_bytes for s in moved.stages))
                    n_moves += move.excess_bytes > 0
    assert n_moves > 100
