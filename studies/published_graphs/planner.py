"""The best plan of a published graph of layers: `ImportedPlanner`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from random import Random
from typing import NamedTuple

from autoauto.estimate.table import cost_table
from autoauto.plan.pipeline.range_plans import anywhere, best_in_any_order, no_cycles
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import BoundedPlan
from studies.published_graphs.graph import ImportedGraph, ImportedProfile, linear_orders, order_by

N_REORDERINGS = 40
"""Orders of layers that are tried after the first ones."""


class PlannedProfile(NamedTuple):
    """A profile with its layers in an order, and the best plan of its ranges."""

    order: Sequence[int]
    profile: ImportedProfile
    bounded: BoundedPlan

    @property
    def cost_cycles(self) -> int:
        """The cost of the plan."""
        return self.bounded.plan.cost_cycles


_cost_cycles = attrgetter("cost_cycles")
_BY_DEVICE = ("devices", "receive_links", "send_links")


class ImportedPlanner(NamedTuple):
    """What a profile of another program is planned for.

    Attributes:
        period: what the devices do at the same time; None is that of the program that the profile is of.
        planning_proportion: share of a device's memory that a stage may fill.
        stage_replicas: whether several devices may run one stage in turn. In training they exchange the gradients of
            its weights.
    """

    period: Period | None = None
    planning_proportion: float = 1.0
    stage_replicas: bool = False

    def best(self, graph: ImportedGraph) -> PlannedProfile:
        """The cheapest plan that was found on at most all devices, of whichever kinds in whichever order.

        Stages are ranges of an order of the layers, and for an order the plan is exact. Orders are tried by a few rules
        (`linear_orders`), then shuffled: layers stay in their stage, or change between two neighbouring stages, and the
        next order is a random one that keeps to that. The last plan is one of it, so the cost never rises.

        Raises:
            Infeasible: nothing fits in any order; of all the errors, the one with the fewest missing bytes.
            BadInput: `planning_proportion` is not in (0, 1], or numbers are too large to be added exactly.
        """
        planned, failures = [], []
        for order in linear_orders(graph.n_layers, graph.edges):
            try:
                planned.append(self.plan(graph, order))
            except Infeasible as failure:
                failures.append(failure)
        if not planned:
            raise min(failures, key=lambda failure: failure.excess_bytes)
        best, random = min(planned, key=_cost_cycles), Random(0)
        for _ in range(N_REORDERINGS if len(planned) > 1 else 0):
            best = min(self.plan(graph, _shuffled(graph, best, random)), best, key=_cost_cycles)
        return best

    def plan(self, graph: ImportedGraph, order: Sequence[int]) -> PlannedProfile:
        """The best plan for the layers in one order.

        Raises:
            Infeasible: nothing fits.
        """
        profile = graph.in_order(order)
        tables = [self._table(profile, kind) for kind in range(len(profile.kinds))]
        cluster = profile.kinds[0].cluster
        move = partial(cluster.send_links[0].load_cycles, clock_hz=cluster.clock_hz)
        n_devices = [len(kind.cluster) for kind in profile.kinds]
        max_replicas = max(n_devices) if self.stage_replicas else 1
        bounded = best_in_any_order(tables, n_devices, max_replicas, move if profile.training else no_cycles)
        return PlannedProfile(order, profile, bounded)

    def _table(self, profile: ImportedProfile, kind: int) -> CostTable:
        """The costs of one device of a kind, which has neighbours although it may be the only one of its kind."""
        layers, cluster = profile.kinds[kind]
        cluster = replace(cluster, **{name: getattr(cluster, name)[:1] * 3 for name in _BY_DEVICE})
        in_flight = (1,) * len(cluster) if profile.training else None
        period, proportion = self.period or profile.period, self.planning_proportion
        return anywhere(cost_table(layers, cluster, proportion, period, in_flight, tensors=profile.tensors))


def _shuffled(graph: ImportedGraph, planned: PlannedProfile, random: Random) -> list[int]:
    """A random order that keeps every layer in its stage, but for those of two neighbouring stages, which may mix."""
    partition = planned.bounded.plan.partition
    joined = random.randrange(1, len(partition))
    stage_of = {}
    for stage, (start, stop) in enumerate(pairwise(partition)):
        for layer in planned.order[start:stop]:
            stage_of[layer] = stage - (stage == joined)
    ranks = [random.random() for _ in range(graph.n_layers)]
    return order_by(graph.n_layers, graph.edges, lambda layer, _: (stage_of[layer], ranks[layer]))
