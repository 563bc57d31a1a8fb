"""Plans on devices of several kinds, which stand in any order: `best_on_kinds`, `whole_on_kinds`.

Those of replicas: `across_kinds`.

Each kind has a profile, a correction and a `CostTable` of its own, of one device that may stand anywhere. Where all
devices exchange at the same time, all of them wait for the host's links of the first and of the last device
(`autoauto/estimate/table.py`), whichever kinds these are of. So for every pair of such links there is a search of
its own, in which devices with other links stand at no end:

    host's link in, out    fast, fast    fast, slow    slow, fast    slow, slow
    first device           fast          fast          slow          slow
    last device            fast          slow          fast          slow
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from autoauto.evaluate.costs.layer_costs import LayerwiseCosts
from autoauto.evaluate.setting import Setting
from autoauto.memo import Memo
from autoauto.plan.pipeline.probe import UNBOUNDED
from autoauto.plan.pipeline.range_plans import anywhere, best_in_any_order
from autoauto.profile.profiler import Progress
from autoauto.records.costs.correction import Correction
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import Infeasible, Unsupported
from autoauto.records.hardware import Cluster, DeviceKind, MachineDevice, Period
from autoauto.records.plans.plan import BoundedPlan, Plan, replicated
from autoauto.records.units import MAX_EXACT
from autoauto.space.knobs import Knobs

_MAX_TABLES = 512  # in memory


def across_kinds(
    cluster: Cluster, knobs: Knobs, plan_on: Callable[[tuple[int, ...]], Plan], *, only_equal: bool
) -> Iterator[Callable[[], Plan]]:
    """One or two ways to divide the devices among replicas; of each what makes the plans, or raises Infeasible.

    Every replica may have an equal part of the devices of every kind. Or one replica after the other has the fastest
    pipeline on what is left: then single devices of all kinds are replicas, too. No way is exact for several pipelines
    of several devices.

    Args:
        cluster, knobs: the devices and the configuration.
        plan_on: plans a pipeline on at most so many devices of every kind.
        only_equal: whether replicas must be alike, as those that one run measures are.
    """
    yield lambda: _on_cluster([plan_on(_equal_part(cluster, knobs))] * knobs.replicas, cluster)
    if knobs.replicas > 1 and not only_equal:
        yield lambda: _on_cluster(_one_by_one(cluster, knobs, plan_on), cluster)


def _equal_part(cluster: Cluster, knobs: Knobs) -> tuple[int, ...]:
    """How many devices of every kind each replica may have; raises Infeasible if a pipeline needs more."""
    n_devices = tuple(kind.n_devices // knobs.replicas for kind in cluster.kinds)
    if sum(n_devices) < knobs.n_ipu:
        parts = ", ".join(f"{n} {kind.device.name}" for n, kind in zip(n_devices, cluster.kinds, strict=True))
        raise Infeasible(
            f"{knobs.replicas} like replicas of {knobs.n_ipu} devices need so many each, an equal part of "
            f"{cluster.name} has {parts}; try fewer replicas",
            0,
        )
    return n_devices


def _one_by_one(cluster: Cluster, knobs: Knobs, plan_on: Callable[[tuple[int, ...]], Plan]) -> list[Plan]:
    """The fastest pipeline on all devices, then on those that it leaves, and so on."""
    free = Counter({kind.device.name: kind.n_devices for kind in cluster.kinds})
    plans: list[Plan] = []
    for _ in range(knobs.replicas):
        plan = plan_on(tuple(free[kind.device.name] for kind in cluster.kinds))
        plans.append(plan)
        free -= Counter(stage.device_kind for stage in plan.stages)
    return plans


def _on_cluster(plans: Sequence[Plan], cluster: Cluster) -> Plan:
    """Plans side by side, each stage on the next free device of its kind."""
    free: dict[str, list[MachineDevice]] = {}
    for index, device in reversed(list(enumerate(cluster.devices))):  # so that `pop` gives the first
        free.setdefault(device.name, []).append(cluster.machine_device(index))
    placed = []
    for plan in plans:
        placed.append((plan, tuple(free[stage.device_kind].pop() for stage in plan.stages)))
    return replicated(placed)


class KindTables:
    """The costs of one device of every kind that may stand anywhere; all numbers of replicas and devices share them."""

    def __init__(self, costs: Sequence[LayerwiseCosts]) -> None:
        """Take the costs of every kind alone."""
        self._costs = costs
        self._tables: Memo[tuple[int, Knobs], tuple[Correction, CostTable]] = Memo(_MAX_TABLES)

    def of(
        self, number: int, kind: DeviceKind, reference_hz: float, knobs: Knobs, progress: Progress | None
    ) -> CostTable:
        """The table of a kind, by its number, for a configuration of one pipeline."""
        correction = self._costs[number].correction(knobs, progress)
        known = self._tables.get((number, knobs))
        if known is None or known[0] != correction:
            table = _anywhere(self._costs[number], kind, reference_hz, knobs, progress)
            known = self._tables[number, knobs] = correction, table
        return known[1]


def _anywhere(
    alone: LayerwiseCosts, kind: DeviceKind, reference_hz: float, knobs: Knobs, progress: Progress | None
) -> CostTable:
    """The costs of one device of a kind that may stand anywhere, by the estimates of the kind alone."""
    host, link = kind.host_link, kind.device_link
    line = replace(
        alone.setting.cluster,
        devices=(kind.device,) * 3,
        receive_links=(host, link, link),
        send_links=(link, link, host),
        machine=None,
        reference_hz=reference_hz,
    )
    return anywhere(alone.table_on(line, knobs, progress))


def best_on_kinds(
    setting: Setting, tables: KindTables, knobs: Knobs, n_devices: tuple[int, ...], progress: Progress | None
) -> BoundedPlan:
    """The cheapest plan of `knobs.n_ipu` stages by estimated costs, each on a device of whichever kind.

    It is exact, or has a lower bound, as `best_in_any_order`. `tables` are of every kind alone, and the pipeline may
    have `n_devices` of every kind; together they suffice.

    Raises:
        BadInput: the plan is for training.
        Infeasible: no plan respects the limits, or devices that run the model are too few.
        Unsupported: no kind runs the model.
    """
    if knobs.training:
        setting.check_one_kind("training")
    kinds, reference_hz = setting.devices(knobs).kinds, setting.cluster.clock_hz
    able: dict[int, CostTable] = {}
    for number, kind in enumerate(kinds):
        try:
            able[number] = tables.of(number, kind, reference_hz, knobs, progress)
        except Unsupported:
            if number == len(kinds) - 1 and not able:
                raise
    # The search knows kinds by their place among those that may be used.
    counts = {number: n_devices[number] for number in able if n_devices[number]}
    if sum(counts.values()) < knobs.n_ipu:
        raise Infeasible(f"a pipeline needs {knobs.n_ipu} devices that run the model, got {sum(counts.values())}", 0)
    bounded = _cheapest([able[number] for number in counts], list(counts.values()), knobs.n_ipu)
    names: list[str] = []
    for number, n in counts.items():
        names += [kinds[number].device.name] * n
    stages = []
    for index, stage in enumerate(bounded.plan.stages):
        stages.append(replace(stage, device=index, device_kind=names[stage.device]))
    return replace(bounded, plan=replace(bounded.plan, stages=tuple(stages)))


def whole_on_kinds(costs: Sequence[LayerwiseCosts], knobs: Knobs, n_devices: Sequence[int]) -> Plan | None:
    """The fastest device that runs the whole model, by measurements of it on every kind that has devices left.

    None where it takes costs of layers to know it. Raises Infeasible if it needs more memory than any of them has.
    """
    plans, failures = [], []
    for kind, n in zip(costs, n_devices, strict=True):
        try:
            plan = kind.whole_plan(knobs) if n else None
        except Infeasible as failure:
            failures.append(failure)
        else:
            if plan is not None:
                plans.append((kind.setting.cluster.devices[0].name, plan))
    if not plans:
        if failures:
            raise min(failures, key=lambda failure: failure.excess_bytes)
        return None
    name, plan = min(plans, key=lambda named: named[1].cost_cycles)
    return replace(plan, stages=(replace(plan.stages[0], device_kind=name),))


def _cheapest(tables: Sequence[CostTable], n_devices: Sequence[int], n_in_use: int) -> BoundedPlan:
    """The cheapest plan over all pairs of links to the host; after an exact one only cheaper ones are searched."""
    best: BoundedPlan | None = None
    for ends in with_host_links(tables):
        # Only an exact plan may cut a search short: of another the bound is still to be improved.
        below_cycles = UNBOUNDED if best is None or best.gap else best.plan.cost_cycles
        try:
            other = best_in_any_order(ends, n_devices, n_in_use=n_in_use, below_cycles=below_cycles)
        except Infeasible:
            if best is None:  # what fits does not depend on links
                raise
            continue
        if best is not None:
            plan = min(best.plan, other.plan, key=lambda plan: plan.cost_cycles)
            other = BoundedPlan(plan, min(best.bound_cycles, other.bound_cycles))
        best = other
    assert best is not None  # there is a pair of links
    return best


def with_host_links(tables: Sequence[CostTable]) -> Iterator[list[CostTable]]:
    """The tables with the cycles of the host's links of the first and last device, for all pairs of such links.

    Tables are of one device of a kind each, that waits for its own links to the host. Where it has another link to the
    host than the first (last) one, a stage of it that starts (ends) the pipeline takes `MAX_EXACT` cycles.
    """
    if tables[0].period not in (Period.BARRIER, Period.OVERLAP):
        yield list(tables)
        return
    arrivals, departures = map(set, zip(*map(_host_cycles, tables), strict=True))
    for host_cycles in product(sorted(arrivals), sorted(departures)):
        yield [_waiting_for(table, *host_cycles) for table in tables]


def _host_cycles(table: CostTable) -> tuple[int, int]:
    """Cycles in which a device receives the inputs from the host, and sends the outputs."""
    return int(table.receive_cycles[0, 0]), int(table.send_cycles[0, -1])


def _waiting_for(table: CostTable, arrival_cycles: int, departure_cycles: int) -> CostTable:
    """The costs of a device that waits for other links to the host than its own."""
    own_arrival_cycles, own_departure_cycles = _host_cycles(table)
    receive_cycles = table.receive_cycles + (arrival_cycles - own_arrival_cycles)
    send_cycles = table.send_cycles + (departure_cycles - own_departure_cycles)
    # A stage at an end of the pipeline has the device's own link, so a device with another link cannot be there.
    if arrival_cycles != own_arrival_cycles:
        receive_cycles[0, 0] = MAX_EXACT
    if departure_cycles != own_departure_cycles:
        send_cycles[0, -1] = MAX_EXACT
    return replace(table, receive_cycles=receive_cycles, send_cycles=send_cycles)
