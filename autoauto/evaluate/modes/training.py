"""Steps of training by pipelines: `TrainingFlow`. Throughput is that of whole steps of all replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from autoauto.estimate.memory import stage_with_optimizer_state
from autoauto.estimate.sums import last_segment_prefix_cycles
from autoauto.evaluate.costs.layer_costs import LayerwiseCosts
from autoauto.evaluate.modes.mode import Planned, StageFlow, StepBounds
from autoauto.evaluate.modes.step_ends import StepEnds, with_known_state
from autoauto.evaluate.modes.training_steps import (
    PLANNING_EFFORT,
    best_by_simulated_step,
    no_simulated_step_below,
    pipeline_step_cycles,
)
from autoauto.evaluate.modes.training_table import legal_cuts, stage_tables
from autoauto.memo import Memo
from autoauto.plan.pipeline.infeasible import feasible
from autoauto.plan.pipeline.stage_costs import StageCosts
from autoauto.plan.replicas import placements
from autoauto.profile.profiler import Progress
from autoauto.records.costs.memory import StageBytes, compiled_stage, device_memory
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import TEMPORARY, CompiledRange, WeightUpdate
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Period, Topology
from autoauto.records.plans.plan import BoundedPlan, Plan, Stage
from autoauto.records.plans.timeline import Run, Timeline
from autoauto.records.units import BoolArray, samples_per_s
from autoauto.schedule.orders.registry import has_one_stage_each, spec_of
from autoauto.schedule.stash import in_flight_by_stage
from autoauto.schedule.times import timeline_of, with_step_end
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Recompute


class AllLayers(NamedTuple):
    """The needs of all layers of a model in training, whatever the stages.

    Attributes:
        work_cycles: to compute them for one micro-batch on the fastest device.
        host_cycles: to receive its inputs from the host, and to send its outputs.
        held_bytes: what is always in use.
        activation_bytes: what is stashed of a micro-batch, without recomputation.
        limit_bytes, device_bytes: what stages may fill of the largest device, and what it has.
        cut_cycles: to send the fewest activations that any cut parts, and their gradients back; 0 where devices are in
            no line.
        waits_for_transfers: whether no device computes while others transfer.
    """

    work_cycles: float
    host_cycles: int
    held_bytes: int
    activation_bytes: int
    limit_bytes: float
    device_bytes: float
    cut_cycles: int
    waits_for_transfers: bool


def all_layers(costs: LayerwiseCosts, knobs: Knobs) -> AllLayers:
    """Sum up the needs of all layers in training, whatever the stages."""
    setting = costs.setting
    profile, table = costs.ranges(knobs, costs.correction(knobs))
    work_cycles = int(table.compute_prefix_cycles[-1])
    if table.memory.recompute:  # which the last stage may leave out
        work_cycles -= int(last_segment_prefix_cycles(profile)[-1])
    layers, devices = costs.layers(setting.options(knobs)).layers, setting.devices(knobs)
    held = table.memory.by_category(0, table.n_layers, 0)
    largest = max(device.memory_bytes for device in devices.devices)
    bytes_in_out = layers[0].input_bytes, layers[-1].output_bytes
    links = zip((devices.receive_links[0], devices.send_links[-1]), bytes_in_out, strict=True)
    cuts = np.array([layer.input_bytes for layer in layers])[table.cut_allowed[:-1]]
    inner_links = dict.fromkeys(devices.receive_links[1:] if setting.cluster.topology is Topology.LINE else ())
    inner = [int(link.cycles(cuts[1:], devices.clock_hz).min()) for link in inner_links if len(cuts) > 1]
    return AllLayers(
        work_cycles=work_cycles / float(max(devices.speeds)),
        host_cycles=sum(int(link.cycles(np.array([n_bytes]), devices.clock_hz)[0]) for link, n_bytes in links),
        held_bytes=sum(n_bytes for name, n_bytes in held.items() if name != TEMPORARY),
        activation_bytes=int(table.memory.activation_prefix_bytes[-1]),
        limit_bytes=int(table.memory_limit_bytes[0]) / devices.devices[0].memory_bytes * largest,
        device_bytes=largest,
        cut_cycles=2 * min(inner, default=0),
        waits_for_transfers=setting.period_of_devices is Period.BARRIER,
    )


def _min_transfer_cycles(layers: AllLayers, knobs: Knobs) -> float:
    """Lower bound of the transfer cycles of a micro-batch while no device computes; 0 where transfers overlap."""
    if not layers.waits_for_transfers:
        return 0.0
    n_each, p = knobs.mode.stages_per_device, knobs.n_ipu
    if not has_one_stage_each(knobs.step):
        return (2 * n_each - 2) * layers.cut_cycles
    return layers.host_cycles + min(p - 1, 2) * layers.cut_cycles


def _min_bytes(layers: AllLayers, knobs: Knobs) -> float:
    """Lower bound of the bytes of the fullest device."""
    if knobs.mode.may_recompute:  # of its activations a stage may hold the segment between two checkpoints only
        return layers.held_bytes / knobs.n_ipu
    moments = in_flight_by_stage(*knobs.step)
    counts = sorted((float(each.mean(axis=0).min()) for each in moments), reverse=True)
    return _smallest_limit(float(layers.held_bytes), float(layers.activation_bytes), tuple(counts))


@lru_cache(maxsize=4096)
def _smallest_limit(held: float, stashed: float, counts: tuple[float, ...]) -> float:
    """Lower bound of the memory per device in bytes, by bisection.

    Weights (`held` bytes in all) may be split freely. A device that stashes a share x of `stashed` bytes a micro-batch
    needs `counts[i]` times x for it. Weights go first to the devices with the largest counts, in descending order.
    """
    low, high = held / len(counts), held + stashed * counts[0]
    for _ in range(20):
        limit, left, room = (low + high) / 2, held, 0.0
        for count in counts:
            here = min(limit, left)  # weights on this device; the rest of it is for the stash
            left -= here
            room += (limit - here) / count
        if room >= stashed:
            high = limit
        else:
            low = limit
    return low  # the end that is certainly no more than what is needed


class TrainingFlow(StageFlow):
    """The `StageFlow` of training."""

    def __init__(self, costs: LayerwiseCosts) -> None:
        self.costs = costs
        self._ends = StepEnds(costs)
        # What no plan exceeds, in samples/s; what all layers need, for all orders and numbers of devices.
        self._limits: Memo[Knobs, float] = Memo(100_000)
        self._all_layers: Memo[tuple[CompileOptions, WeightUpdate, bool], AllLayers] = Memo(4096)

    @override
    def best(self, knobs: Knobs, start: int, progress: Progress | None = None) -> BoundedPlan:
        *others, last = with_known_state(knobs, self.costs.setting)
        for each in others:  # states are on the chip where any plan fits
            try:
                return self._best(each, start, progress)
            except Infeasible:
                continue
        return self._best(last, start, progress)

    def _best(self, knobs: Knobs, start: int, progress: Progress | None) -> BoundedPlan:
        tables = stage_tables(self.costs, knobs, progress, start)
        plans = feasible(partial(best_by_simulated_step, stages, knobs) for stages in tables)
        best = min(plans, key=lambda bounded: bounded.cost_cycles)
        # A plan has the cuts of one of the tables, so the smallest bound holds for all plans.
        bound_cycles = min(bounded.bound_cycles for bounded in plans)
        return replace(best, bound_cycles=min(best.cost_cycles, bound_cycles))

    @override
    def cut_at(self, knobs: Knobs, partition: Sequence[int], start: int = 0) -> Plan:
        for each in with_known_state(knobs, self.costs.setting):
            plan = self._cut_at(each, partition, start)
            if plan.excess_bytes <= 0:
                break  # states stay on the chip where they fit
        return plan

    def _cut_at(self, knobs: Knobs, partition: Sequence[int], start: int) -> Plan:
        tables = stage_tables(self.costs, knobs, None, start)
        stages = next((each for each in tables if each.allows(partition)), tables[0])
        plan = stages.evaluate(partition, [stages.recompute] * stages.n_stages)  # refuses a wrong partition
        if stages.recomputing is None:
            return plan
        costs = StageCosts.of(stages)
        choice = costs.resolve(costs.cuts(partition))
        return plan if choice is None else stages.evaluate(partition, choice.recomputes)

    @override
    def legal_cuts(self, knobs: Knobs) -> list[BoolArray]:
        return legal_cuts(self.costs, knobs)

    @override
    def alike(self, knobs: Knobs, plans: Mapping[int, Plan]) -> Mapping[int, Plan]:
        """All with the cuts of that plan whose step is then the shortest.

        Replicas sum the gradients of like stages, so they have the same cuts though their devices or links differ.
        """
        if len(plans) == 1:
            return plans
        ways: list[tuple[float, Mapping[int, Plan]]] = []
        for partition in dict.fromkeys(plan.partition for plan in plans.values()):
            way = {first: self.cut_at(knobs, partition, first) for first in plans}
            step_cycles = max(pipeline_step_cycles(knobs, plan) for plan in way.values())
            if all(plan.excess_bytes <= 0 for plan in way.values()):
                ways.append((step_cycles, way))
        if not ways:
            raise Infeasible("no cuts fit the devices of all replicas, which differ; try fewer replicas", 0)
        return min(ways, key=lambda pair: pair[0])[1]

    @override
    def step_cycles(self, knobs: Knobs, plan: Plan) -> float:
        """Orders are made with `PLANNING_EFFORT`."""
        if plan.period is not Period.BARRIER:
            return self._timeline(knobs, plan, PLANNING_EFFORT).makespan_cycles
        flushed = max(pipeline_step_cycles(knobs, each) for each in plan.plans)
        return flushed + max(self._ends.all_reduce_cycles(knobs, plan)) + max(self._ends.update_cycles(knobs, plan))

    @override
    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        return self._timeline(knobs, plan)

    def _timeline(self, knobs: Knobs, plan: Plan, effort: float = 1.0) -> Timeline:
        pipelines = (timeline_of(knobs.step, each, effort) for each in plan.plans)
        slowest = max(pipelines, key=lambda timeline: timeline.makespan_cycles)
        ends = self._ends.all_reduce_cycles(knobs, plan), self._ends.update_cycles(knobs, plan)
        return with_step_end(slowest, *ends, barrier=plan.period is Period.BARRIER)

    @override
    def samples_per_s(self, knobs: Knobs, plan: Plan, step_cycles: float | None = None) -> float:
        step_cycles = self.step_cycles(knobs, plan) if step_cycles is None else step_cycles
        cycles = max(step_cycles, knobs.mode.n_micro_batches * plan.host_bound_cycles)
        return samples_per_s(knobs.n_samples, cycles, self.costs.setting.cluster.clock_hz)

    @override
    def simulated_samples_per_s(self, knobs: Knobs, timeline: Timeline, plan: Plan) -> float:
        return self.samples_per_s(knobs, plan, timeline.makespan_cycles)

    @override
    def stage_bytes(self, knobs: Knobs, plan: Plan, compiled: Sequence[CompiledRange]) -> list[dict[str, int]]:
        """With the stash, and the optimizer's state on the chip where all of it fits."""
        for each in with_known_state(knobs, self.costs.setting):
            memory = self._stage_bytes(each, plan, compiled)
            if max(_bytes_by_device(plan, memory)) <= self.costs.setting.device_bytes(knobs):
                break
        return memory

    def _stage_bytes(self, knobs: Knobs, plan: Plan, compiled: Sequence[CompiledRange]) -> list[dict[str, int]]:
        memory: list[dict[str, int]] = [{} for _ in compiled]
        for device, in_flight in enumerate(in_flight_by_stage(*knobs.step)):
            own = [index for index, stage in enumerate(plan.stages) if stage.device == device]
            parts = [self._trained_bytes(knobs, plan.stages[index], compiled[index]) for index in own]
            for index, n_bytes in zip(own, device_memory(parts, in_flight), strict=True):
                memory[index] = n_bytes
        return memory

    def _trained_bytes(self, knobs: Knobs, stage: Stage, compiled: CompiledRange) -> StageBytes[int]:
        """The memory of a stage compiled whole, with the optimizer's state, its update, and a stash entry."""
        setting = self.costs.setting
        layers = self.costs.profile(setting.options(knobs, stage.device)).layers
        alone = compiled_stage(compiled, layers[stage.layers.start].input_bytes, recompute=stage.recomputes)
        return stage_with_optimizer_state(alone, stage.layers, layers, knobs.weight_update, setting.precision)

    @override
    def simulate(self, knobs: Knobs, measured: Plan) -> Run:
        return Run(measured, (self._timeline(knobs, measured),) * knobs.replicas)

    @override
    def step_bounds(self, knobs: Knobs) -> StepBounds | None:
        setting = self.costs.setting
        if setting.cluster.kinds or knobs.session.differs_by_device:
            return None
        knobs = with_known_state(knobs, setting)[-1]  # which needs least memory
        key = setting.options(knobs), knobs.weight_update, knobs.mode.recomputes_all
        make = partial(all_layers, self.costs, knobs)
        layers = self._all_layers.of(key, lambda: self.costs.forecasts.of("all layers", key, AllLayers, make))
        m, p = knobs.mode.n_micro_batches, knobs.n_ipu
        # However layers are divided, the fullest of p devices has a p-th of the work of every micro-batch or more.
        step = m * (layers.work_cycles / p + _min_transfer_cycles(layers, knobs))
        if has_one_stage_each(knobs.step) and not spec_of(knobs.mode.order).splits_backward and m > 1:
            # A stage has all its work, and before it that of the stages before, once: the bound if all end together.
            step = max(step, layers.work_cycles / (1 - (1 - 1 / m) ** p))
        speed = samples_per_s(knobs.n_samples, max(step, 1.0), setting.cluster.clock_hz)
        return StepBounds(speed, (_min_bytes(layers, knobs) - layers.limit_bytes) / layers.device_bytes)

    @override
    def is_bounded_by(self, knobs: Knobs, worth: float, planned: Planned) -> bool:
        """It is certain, or follows from the plan of a configuration that may do all that this one may."""
        best, setting = self.step_bounds(knobs), self.costs.setting
        if setting.cluster.kinds:
            return False
        if best is not None and best.samples_per_s <= worth:
            return True
        cycles = knobs.n_samples * setting.cluster.clock_hz / worth
        same = self.costs.with_equal_costs(knobs)
        # Stages that choose whether to recompute may do all that those of other configurations do.
        for able in {same, same.with_values(recompute=Recompute.AUTO)}:
            limit = self._limits.get(able)
            if limit is not None and limit <= worth:
                return True
            if planned.are_known_as_no_better(able, cycles):
                return True
        firsts = {starts[0] for starts in placements(setting.devices(knobs), knobs.n_ipu, knobs.replicas)}
        lean = with_known_state(knobs, setting)[-1]
        try:
            starts = sorted({planned.first_like(knobs, n) for n in firsts})
            key = self.costs.cost_key(lean), starts, cycles

            def no_step_below() -> bool:
                for start in starts:
                    for table in stage_tables(self.costs, lean, None, start):
                        if not no_simulated_step_below(table, lean, cycles):
                            return False
                return True

            if self.costs.forecasts.of("no step below", key, bool, no_step_below):
                self._limits[same] = worth
                return True
        except Infeasible:  # for the reason that a plan would give
            pass
        return False


def _bytes_by_device(plan: Plan, memory: Sequence[Mapping[str, int]]) -> list[int]:
    sums = [0] * plan.n_devices
    for stage, n_bytes in zip(plan.stages, memory, strict=True):
        sums[stage.device] += sum(n_bytes.values())
    return sums
