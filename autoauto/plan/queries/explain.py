"""Why a plan costs what it costs: the stages that bind, and the cost of moving each cut (`explain`)."""

from __future__ import annotations

import numpy as np

from autoauto.plan.pipeline.evaluate import evaluate
from autoauto.records.cost import CostTable
from autoauto.records.plan import CutMoves, Explanation, Move, Plan


def explain(table: CostTable, plan: Plan) -> Explanation:
    """The stages that determine the cost of a plan, and its cost with each cut moved to a neighbouring legal position.

    The plan has one stage a device.

    Where there is no plan, the error `Infeasible` explains why.
    """
    partition, legal = plan.partition, np.flatnonzero(table.cut_allowed).tolist()
    spare = [stage.limit_bytes - stage.total_bytes for stage in plan.stages]
    memory_stage = spare.index(min(spare))
    return Explanation(
        compute_stages=plan.compute_bottlenecks,
        transfer_stages=plan.transfer_bottlenecks,
        memory_stage=memory_stage,
        spare_bytes=min(spare),
        cuts=tuple(_moves(table, partition, legal, i) for i in range(1, len(plan.stages))),
    )


def _moves(table: CostTable, partition: tuple[int, ...], legal: list[int], i: int) -> CutMoves:
    """The moves of cut `i` to the neighbouring positions among the `legal` ones."""
    index = legal.index(partition[i])
    earlier, later = legal[index - 1], legal[index + 1]
    return CutMoves(
        partition[i],
        _move(table, partition, i, earlier) if earlier > partition[i - 1] else None,
        _move(table, partition, i, later) if later < partition[i + 1] else None,
    )


def _move(table: CostTable, partition: tuple[int, ...], i: int, layer: int) -> Move:
    plan = evaluate(table, (*partition[:i], layer, *partition[i + 1 :]))
    return Move(layer, plan.cost_cycles, max(0, *(stage.total_bytes - stage.limit_bytes for stage in plan.stages)))
