"""The plans of pipelines by estimated costs, on all devices: `Plans`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from autoauto.evaluate.costs.layer_costs import LayerwiseCosts
from autoauto.evaluate.modes.inference import best_by_period
from autoauto.evaluate.modes.mode import StageFlow, no_stages
from autoauto.evaluate.modes.step_ends import StepEnds, with_known_state
from autoauto.evaluate.modes.training_steps import best_by_simulated_step
from autoauto.evaluate.modes.training_table import stage_tables, with_ends_of_steps
from autoauto.evaluate.pipelines.kinds import KindTables, across_kinds, best_on_kinds, whole_on_kinds
from autoauto.memo import Memo
from autoauto.plan.pipeline.infeasible import feasible
from autoauto.plan.replicas import placements
from autoauto.profile.profiler import Progress
from autoauto.records.costs.correction import Correction
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.layers import Block, LayerGraph
from autoauto.records.plans.plan import BoundedPlan, Plan, replicated
from autoauto.records.units import IntArray, Precision, format_bytes
from autoauto.schedule.orders.registry import devices_of
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Mode

Partition = tuple[int, ...]


def block_cuts(graph: LayerGraph) -> list[int]:
    """The cuts between embedding, encoder layers and head: where blocks begin, and where the last one ends."""
    if not graph.blocks:
        return []
    last = graph.blocks[-1]
    stop = last.layers.stop - last.n_behind
    starts = [block.layers.start for block in graph.blocks]
    starts[0] += graph.blocks[0].n_before
    return [*starts, stop]


def even_partitions(table: CostTable, blocks: Sequence[Block], n_stages: int) -> Iterator[Partition]:
    """Cuts into stages that compute about equally long, anywhere and at blocks, or have about as many blocks each.

    Blocks that are left over are spread, or those of the last stages, as in [optimum-graphcore]. Every partition is the
    boundaries from 0 to the number of layers; none where there are too few legal cuts.
    """
    anywhere = np.flatnonzero(table.cut_allowed)[1:-1]
    compute = table.compute_prefix_cycles
    shares = compute[-1] * np.arange(1, n_stages) / n_stages
    for cuts in (anywhere, _at_blocks(table, blocks)):
        inner = _nearest(cuts, compute, shares)
        if len(inner) == n_stages - 1:
            yield (0, *inner.tolist(), table.n_layers)
    yield from partitions_by_count(table, blocks, n_stages)


def partitions_by_count(table: CostTable, blocks: Sequence[Block], n_stages: int) -> Iterator[Partition]:
    """Yield the partitions of `even_partitions` whose stages have about as many blocks each."""
    at_blocks = _at_blocks(table, blocks)
    stages, n_blocks = np.arange(1, n_stages), len(at_blocks) + 1
    n_each, n_more = divmod(n_blocks, n_stages)
    if n_each:
        spread = stages * n_blocks // n_stages - 1
        at_the_end = stages * n_each + np.maximum(0, stages - (n_stages - n_more)) - 1
        for chosen in (spread, at_the_end):
            yield (0, *at_blocks[chosen].tolist(), table.n_layers)


def _at_blocks(table: CostTable, blocks: Sequence[Block]) -> IntArray:
    """The starts of all blocks but the first, where a cut is legal."""
    starts = np.array([block.layers.start for block in blocks[1:]], dtype=np.int64)
    return starts[table.cut_allowed[starts]]


def _nearest(cuts: IntArray, compute: IntArray, shares: IntArray) -> IntArray:
    """The cuts before which the compute is nearest to the shares, each once."""
    if not len(cuts):
        return cuts
    return np.unique(cuts[abs(compute[cuts] - shares[:, None]).argmin(axis=1)])


WORTH_BALANCING = 0.01  # share of a step by which ends of devices differ from which on cuts that balance them are tried
PARTS_OF_ENDS = (1 / 3, 2 / 3, 1)  # that they balance: the slowest device of a step need not be that of its end
_MAX_CONFIGURATIONS = 512  # whose plans are in memory: those of one pipeline, for all numbers of replicas
Devices = int | tuple[int, ...]
"""Devices of a pipeline: the first of neighbours in a line, or how many of every kind it may have."""
_Planned = dict[Devices, tuple[tuple[Correction, ...], BoundedPlan | Infeasible]]
"""By the devices of a pipeline: the corrections that it was planned with, and the plan, or why there is none."""
_PlanParts = tuple[Plan, int | float, int | float | None]
"""The fields of a `BoundedPlan`, whose whole cycles stay whole numbers when they are stored."""


class Plans:
    """The best plans by estimated costs: of one pipeline, and of all replicas."""

    def __init__(
        self, kinds: Sequence[LayerwiseCosts], costs: LayerwiseCosts, modes: Mapping[type[Mode], StageFlow]
    ) -> None:
        """Take the costs of every kind of devices alone, those of all devices, and how stages run in each mode."""
        self.costs, self.kinds = costs, kinds
        self._modes, self._kind_tables, self._ends = modes, KindTables(kinds), StepEnds(costs)
        self._pipelines: Memo[Knobs, _Planned] = Memo(_MAX_CONFIGURATIONS)
        self._have_plans: Memo[tuple[Knobs, int], bool | None] = Memo(_MAX_CONFIGURATIONS)
        # By devices and cores of a pipeline: for the first device of one, the first with the same devices and links.
        self._alike: dict[tuple[int, int], dict[int, int]] = {}

    def mode(self, knobs: Knobs) -> StageFlow:
        """The `StageFlow` by which the stages of a configuration run. Raises BadInput if it has no stages."""
        mode = self._modes.get(type(knobs.mode))
        if mode is None:
            raise no_stages()
        return mode

    def best(self, knobs: Knobs, progress: Progress | None = None) -> Plan:
        """The best plan, and those of replicas whose devices or links differ.

        Raises Infeasible if no plan respects the limits, or the cluster has too few devices.
        """

        def best_on(devices: Devices) -> Plan:
            # That of a whole model on one device where no layer is needed to know it.
            if isinstance(devices, tuple):
                whole = whole_on_kinds(self.kinds, knobs, devices)
            else:
                whole = self.costs.whole_plan(knobs)
            return whole or self.of_pipeline(knobs, devices, progress).plan

        self.check_weights(knobs)
        return self._fastest(knobs, self._on_devices(knobs, best_on))

    def can_be_placed(self, knobs: Knobs) -> bool | None:
        """True if there is a plan for all replicas by a cost model, on a line; None where only the best plan tells.

        Raises DoesNotFit if there is none whatever the plan.
        """
        setting = self.costs.setting
        if setting.cluster.kinds or setting.traits.runs_plans:
            return None
        setting.check_devices(knobs)
        ways = placements(setting.devices(knobs), knobs.n_ipu, knobs.replicas)
        can_be = False
        for starts in ways:
            firsts = {self.first_like(knobs, start) for start in starts}  # like pipelines are asked once
            known = [self._has_plan(knobs, first) for first in firsts]
            if None in known:
                return None
            can_be = can_be or all(known)
        return can_be

    def _has_plan(self, knobs: Knobs, start: int) -> bool | None:
        """True if there is a plan of the pipeline from this device, as `StageFlow`; asked once."""
        same = self.costs.with_equal_costs(_of_one_pipeline(knobs))

        def has_plan() -> bool | None:
            key = self.costs.cost_key(same), start
            make = partial(self.mode(knobs).has_plan, knobs, start)
            return self.costs.forecasts.of("has plan", key, bool | None, make)

        return self._have_plans.of((same, start), has_plan)

    def _fastest(self, knobs: Knobs, plans: Sequence[Plan]) -> Plan:
        return max(plans, key=partial(self.mode(knobs).samples_per_s, knobs)) if len(plans) > 1 else plans[0]

    def of_pipeline(
        self, knobs: Knobs, devices: Devices | None = None, progress: Progress | None = None
    ) -> BoundedPlan:
        """The cheapest plan of one pipeline, nearly always an exact one; made once.

        By default its devices are the first of a line, or any of every kind.

        Raises:
            BadInput: the devices are of several kinds, and the plan is for training.
            Infeasible: no plan respects the limits.
        """
        if devices is None:
            devices = tuple(kind.n_devices for kind in self.costs.setting.devices(knobs).kinds) or 0
        same = self.costs.with_equal_costs(_of_one_pipeline(knobs), progress)
        corrections: tuple[Correction, ...] = ()
        if self.costs.setting.traits.runs_plans:  # by a cost model they are always the same
            corrections = tuple(kind.correction(knobs, progress) for kind in self.kinds)
        by_devices = self._pipelines.of(same, dict)
        known = by_devices.get(devices)
        if known is None or known[0] != corrections:  # what was measured since may have changed the estimates
            known = by_devices[devices] = corrections, self._stored_plan(knobs, same, devices, progress)
        plan = known[1]
        if isinstance(plan, Infeasible):
            raise plan.with_traceback(None)
        return plan

    def _stored_plan(
        self, knobs: Knobs, same: Knobs, devices: Devices, progress: Progress | None
    ) -> BoundedPlan | Infeasible:
        """The cheapest plan, or why there is none; made once for all commands, where forecasts are stored."""

        def make() -> _PlanParts:
            if isinstance(devices, tuple):
                alone = _of_one_pipeline(knobs)
                best = best_on_kinds(self.costs.setting, self._kind_tables, alone, devices, progress)
            else:
                best = self.mode(knobs).best(knobs, devices, progress)
            return best.plan, best.bound_cycles, best.step_cycles

        try:
            key = self.costs.cost_key(same), devices
            return BoundedPlan(*self.costs.forecasts.of("plan", key, _PlanParts, make))
        except Infeasible as failure:
            return failure

    def are_known_as_no_better(self, knobs: Knobs, cycles: float) -> bool:
        """True if plans of a configuration of training are known, and none has a step below `cycles`."""
        by_devices = self._pipelines.get(_of_one_pipeline(knobs)) or {}
        for _, plan in by_devices.values():
            if not isinstance(plan, Infeasible) and (plan.step_cycles is None or plan.step_cycles < cycles):
                return False
        return bool(by_devices)

    def cut_at(self, knobs: Knobs, partition: Sequence[int]) -> Plan:
        """The plan that cuts at `partition`, the boundaries from 0 to the number of layers, for all replicas.

        Raises:
            BadInput: stages cannot begin there, the devices have no given order, or one stage may have several devices.
            Infeasible: there are too few devices.
        """
        if knobs.mode.stage_replicas:
            raise BadInput("a partition is for stages of one device each, got stage replicas; leave one of them out")
        mode = self.mode(knobs)
        plan = mode.cut_at(knobs, partition)
        # A partition need respect one of the sets of cuts; the error names the fewest that are wrong.
        choices = ([cut for cut in partition if not cuts[cut]] for cuts in mode.legal_cuts(knobs))
        if wrong := min(choices, key=len):
            raise BadInput(
                f"no stage may begin at layer {', '.join(map(str, wrong))}, where layers of one weight would be parted "
                "or no block begins; try `plan` for the best cuts"
            )
        return self.on_all_replicas(knobs, plan)

    def even(self, knobs: Knobs) -> Iterator[Plan]:
        """Plans of training as people write them: the best cut at blocks, and even cuts, whether they fit or not.

        And those that balance ends of steps, too.
        """
        cuts, per_byte = block_cuts(self.costs.setting.graph), self._end_cycles_per_byte(knobs)
        for known in with_known_state(knobs, self.costs.setting):
            for plain in stage_tables(self.costs, known):
                tables = [plain.cut_at(cuts)] if cuts else []
                if per_byte:
                    tables += [with_ends_of_steps(plain, part * per_byte) for part in PARTS_OF_ENDS]
                for stages in tables:
                    with suppress(Infeasible):
                        yield self.cut_at(knobs, best_by_simulated_step(stages, known).plan.partition)
        yield from self._at(knobs, even_partitions)

    def by_count(self, knobs: Knobs) -> Iterator[Plan]:
        """Yield the plans of `even` that have about as many blocks a stage."""
        return self._at(knobs, partitions_by_count)

    def _at(
        self, knobs: Knobs, cut: Callable[[CostTable, Sequence[Block], int], Iterable[Partition]]
    ) -> Iterator[Plan]:
        table = self.costs.pipeline_table(knobs.with_values(recompute=knobs.mode.recomputes_all))
        blocks, n_stages = self.costs.setting.graph.blocks, len(devices_of(knobs.step))
        partitions: dict[Sequence[int], None] = {}  # each once
        for cuts in self.mode(knobs).legal_cuts(knobs):
            partitions |= dict.fromkeys(cut(replace(table, cut_allowed=cuts), blocks, n_stages))
        for partition in partitions:
            yield self.cut_at(knobs, partition)

    def _end_cycles_per_byte(self, knobs: Knobs) -> float:
        """What a byte of gradients more takes a device at the end of a step, a micro-batch; 0 where it hardly matters.

        That is known by the devices with most and with fewest of them in the plan with the shortest step without it.
        """
        try:
            plan = self.best(knobs)
        except Infeasible:
            return 0.0
        cycles, n_bytes = self._ends.cycles_of_more_gradients(knobs, plan)
        step_s = knobs.n_samples / self.mode(knobs).samples_per_s(knobs, plan)
        if cycles < WORTH_BALANCING * step_s * self.costs.setting.cluster.clock_hz:
            return 0.0
        return cycles / (n_bytes * knobs.mode.values["n_micro_batches"]) if n_bytes else 0.0

    def plan_to_measure(self, knobs: Knobs) -> Plan:
        """The plan to measure: the best, or on real devices one that may fit although it is predicted not to.

        If no predicted plan fits, the memory limits are raised until the lower end of the prediction interval fills the
        memory, since the estimate may be too high; not where the user has set `planning_proportion`, nor where devices
        are of several kinds. Raises Infeasible if no plan respects the limits.
        """
        setting = self.costs.setting
        self.check_weights(knobs)
        try:
            return self.best(knobs)
        except Infeasible as failure:
            may_fit = setting.traits.runs_plans and failure.excess_bytes and not setting.cluster.kinds
            if not may_fit or setting.planning_proportion is not None:
                raise
            interval = self.costs.correction(knobs).memory_interval
            table = self.costs.pipeline_table(knobs)
            limits = (table.memory_limit_bytes * (interval.high / interval.low)).astype(table.memory_limit_bytes.dtype)
            return self.by_period(replace(table, memory_limit_bytes=limits), knobs)

    def by_period(self, table: CostTable, knobs: Knobs) -> Plan:
        """The plan of inference with the shortest period by the costs of a table, for all replicas.

        Raises:
            BadInput: devices that may run one stage in turn differ.
            Infeasible: no plan respects the limits, or there are too few devices.
        """
        return self.on_all_replicas(knobs, best_by_period(table, knobs).plan)

    def on_all_replicas(self, knobs: Knobs, plan: Plan) -> Plan:
        """Put one plan of a pipeline on the devices of all replicas. Raises Infeasible if there are too few devices."""
        return self._fastest(knobs, self._on_devices(knobs, lambda _: plan))

    def first_like(self, knobs: Knobs, start: int) -> int:
        """The first device of a pipeline that has the same devices and links as the one that begins with `start`."""
        alike = self._alike.setdefault((knobs.n_ipu, knobs.session.group_size), {0: 0})
        if start not in alike:
            part = partial(self.costs.setting.devices(knobs).part, n_ipu=knobs.n_ipu)
            pipeline = part(start)
            alike[start] = next((first for first in set(alike.values()) if part(first) == pipeline), start)
        return alike[start]

    def check_weights(self, knobs: Knobs) -> None:
        """Raise Infeasible if a pipeline cannot even hold the weights; on real devices only: profiles take long."""
        setting = self.costs.setting
        if not setting.traits.runs_plans:
            return
        devices = setting.devices(knobs).devices
        n_bytes = sum(sorted(int(device.memory_bytes) for device in devices)[-knobs.n_ipu :])
        # In the shortest format that a file of floats may have.
        weight_bytes = setting.graph.n_weight_bytes(Precision.FP16)
        if (excess := weight_bytes - n_bytes) > 0:
            raise Infeasible(
                f"the weights of {setting.graph.name} alone need {format_bytes(weight_bytes)} or more, and the "
                f"{format_bytes(n_bytes)} of {knobs.n_ipu} devices must hold them; try more devices or more memory",
                excess,
            )

    def _on_devices(self, knobs: Knobs, plan_on: Callable[[Devices], Plan]) -> list[Plan]:
        """The plans of all replicas, one for every way to put them on the devices; equal pipelines are planned once.

        Raises Infeasible if there are too few devices, or a plan does not fit.
        """
        setting = self.costs.setting
        setting.check_devices(knobs)
        cluster = setting.devices(knobs)
        attempts: Iterable[Callable[[], Plan]]
        if setting.cluster.kinds:
            attempts = across_kinds(cluster, knobs, plan_on, only_equal=setting.traits.runs_plans)
        else:
            starts_of_ways = placements(cluster, knobs.n_ipu, knobs.replicas)
            attempts = [partial(self._in_line, knobs, starts, plan_on) for starts in starts_of_ways]
        return feasible(attempts)

    def _in_line(self, knobs: Knobs, starts: Sequence[int], plan_from: Callable[[int], Plan]) -> Plan:
        machine_device = self.costs.setting.devices(knobs).machine_device
        firsts = {start: self.first_like(knobs, start) for start in starts}
        plans = self.mode(knobs).alike(knobs, {first: plan_from(first) for first in dict.fromkeys(firsts.values())})
        pipelines = []
        for start in starts:
            plan = plans[firsts[start]]
            devices = tuple(map(machine_device, range(start, start + plan.n_devices)))
            pipelines.append((plan, devices))
        return replicated(pipelines, self.costs.shared_cycles(knobs, starts))


def _of_one_pipeline(knobs: Knobs) -> Knobs:
    """The configuration of one pipeline alone; where replicas divide the optimizer's state, their number matters."""
    return knobs if knobs.weight_update.n_shards > 1 else replace(knobs, replicas=1)
