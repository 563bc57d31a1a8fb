"""What the estimate says of configurations before any is measured: `Forecasts`.

A search of training has thousands of configurations, and a plan takes long. So some are bounded without one. Every plan
computes all layers, and its devices hold all weights; hence bounds of all plans (`StepBounds`):

    step     >=  micro-batches x work / devices      and with one stage a device also the time in which the pipeline
                                                     fills and flushes
    memory   >=  (weights and their state + what all stages stash) / devices       of the fullest device; with
                                                     recomputation without the stash
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from typing import NamedTuple

import numpy as np

from autoauto.evaluate.estimates import Estimates
from autoauto.evaluate.plans import Plans
from autoauto.evaluate.steps import no_simulated_step_below, plan_samples_per_s, plan_step_cycles, plan_timeline
from autoauto.evaluate.whole_model import WholeModelEstimates
from autoauto.plan.replicas import placements
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import TEMPORARY, WeightUpdate
from autoauto.records.errors import DoesNotFit, Infeasible
from autoauto.records.hardware import Period, Topology
from autoauto.records.plans.phased import PhasedPlan
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import Origin
from autoauto.records.units import samples_per_s
from autoauto.schedule.orders.registry import spec_of
from autoauto.schedule.stash import in_flight_by_stage
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes import Recompute
from autoauto.space.trial import Trial, latency_s, measured_trial, unfit_trial


class WholeModel(NamedTuple):
    """What all layers of a model need in training.

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


class StepBounds(NamedTuple):
    """Bounds of what the estimate says of a configuration.

    Attributes:
        samples_per_s: it gives no more.
        excess: the fullest device lacks at least this share of what a device holds; below 0 it may fit.
    """

    samples_per_s: float
    excess: float


@dataclass(frozen=True, slots=True)
class ForecastCache:
    """What was asked of forecasts before.

    Attributes:
        limits: by configurations of training, what no plan exceeds, in samples/s.
        whole_models: what all layers need in training, for all orders and numbers of devices.
    """

    limits: dict[Knobs, float] = field(default_factory=dict)
    whole_models: dict[tuple[CompileOptions, WeightUpdate, bool], WholeModel] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forecasts:
    """The trials of configurations if every stage cost what is estimated, and bounds of them that take less time.

    Attributes:
        plans: the plans by estimated costs.
        constraints: conditions on the results of a configuration.
        known: what was asked before.
    """

    plans: Plans
    constraints: tuple[Constraint, ...]
    known: ForecastCache

    @property
    def estimates(self) -> WholeModelEstimates:
        """The costs on which plans are based."""
        return self.plans.estimates

    def forecast(self, knobs: Knobs, *, with_timeline: bool = False) -> Trial:
        """The trial of a configuration; no stage is measured.

        A timeline of training takes long to simulate for long steps; so there is none by default.
        """
        timeline: Timeline | None = None
        step_cycles: float | None = None
        try:
            if knobs.is_phased:
                _, phases = self.plans.fastest_phases(knobs)
                speed = phases.samples_per_s(knobs.batch_size, self.estimates.cluster.clock_hz)
                return self._trial(knobs, phases, speed)
            plan = self.plans.best(knobs)
            if knobs.training and with_timeline:
                timeline = plan_timeline(self.estimates, knobs, plan)
                step_cycles = timeline.makespan_cycles
            elif knobs.training:
                step_cycles = plan_step_cycles(self.estimates, knobs, plan)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, self.estimates.device_bytes(knobs))
        speed = plan_samples_per_s(self.estimates, knobs, plan, step_cycles)
        return self._trial(knobs, plan, speed, step_cycles, timeline)

    def upper_bound(self, knobs: Knobs) -> Trial | None:
        """A trial that is no worse than the forecast, and needs no layer; None where the forecast needs none either."""
        try:
            self.plans.check_weights(knobs)
            parts = self.estimates.bound_plan(knobs)
            if parts is None:
                return None
            plan = self.plans.on_all_replicas(knobs, parts)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, self.estimates.device_bytes(knobs))
        return self._trial(knobs, plan, plan_samples_per_s(self.estimates, knobs, plan))

    def step_bounds(self, knobs: Knobs) -> StepBounds | None:
        """Bounds of the forecast of training by a pipeline, in a moment; None where there are none."""
        if not knobs.training or knobs.is_phased or self.estimates.cluster.kinds:
            return None
        whole = self._whole_model(knobs)
        m, p = knobs.mode.n_micro_batches, knobs.n_ipu
        step = m * (whole.work_cycles / p + _min_transfer_cycles(whole, knobs))
        if knobs.mode.stages_per_device == 1 and not spec_of(knobs.mode.order).splits_backward and m > 1:
            # A stage has all its work, and before it that of the stages before, once: the bound if all end together.
            step = max(step, whole.work_cycles / (1 - (1 - 1 / m) ** p))
        speed = samples_per_s(knobs.n_samples, max(step, 1.0), self.estimates.cluster.clock_hz)
        return StepBounds(speed, (_min_bytes(whole, knobs) - whole.limit_bytes) / whole.device_bytes)

    def is_bounded_by(self, knobs: Knobs, worth: float) -> bool:
        """Whether the forecast gives no more than `worth` samples/s; for training known sooner than its plan.

        It is certain, or follows from the plan of a configuration that may do all that this one may.
        """
        best = self.step_bounds(knobs)
        if best is None or best.samples_per_s <= worth:
            return best is not None
        estimates = self.estimates
        cycles = knobs.n_samples * estimates.cluster.clock_hz / worth
        same = estimates.with_equal_costs(knobs)
        # Stages that choose whether to recompute may do all that those of other configurations do.
        for able in {same, same.with_values(recompute=Recompute.AUTO)}:
            if self.known.limits.get(able, inf) <= worth or self.plans.are_known_as_no_better(able, cycles):
                return True
        firsts = {starts[0] for starts in placements(estimates.devices(knobs), knobs.n_ipu, knobs.replicas)}
        try:
            tables = [
                estimates.stage_table(knobs, None, start) for start in {estimates.first_like(knobs, n) for n in firsts}
            ]
            if all(no_simulated_step_below(table, knobs, cycles) for table in tables):
                self.known.limits[same] = worth
                return True
        except Infeasible:  # for the reason that a plan would give
            pass
        return False

    def _whole_model(self, knobs: Knobs) -> WholeModel:
        key = self.estimates.options(knobs), knobs.weight_update, knobs.mode.recompute is True
        if key not in self.known.whole_models:
            self.known.whole_models[key] = _whole_model(self.estimates, knobs)
        return self.known.whole_models[key]

    def _trial(
        self,
        knobs: Knobs,
        plan: Plan | PhasedPlan,
        speed: float,
        step_cycles: float | None = None,
        timeline: Timeline | None = None,
    ) -> Trial:
        """The trial of a plan by its estimated costs."""
        return measured_trial(
            knobs,
            plan,
            plan,
            samples_per_s=speed,
            estimated_samples_per_s=speed,
            latency_s=latency_s(knobs, plan, self.estimates.cluster.clock_hz, step_cycles),
            device_bytes=self.estimates.device_bytes(knobs),
            timeline=timeline,
            origin=Origin.ESTIMATED,
            constraints=self.constraints,
        )


def _whole_model(estimates: Estimates, knobs: Knobs) -> WholeModel:
    """What all layers need in training, whatever the stages."""
    _, table = estimates.ranges(knobs, estimates.correction(knobs))
    layers, devices = estimates.layer_costs(estimates.options(knobs)).layers, estimates.devices(knobs)
    held = table.memory.by_category(0, table.n_layers, 0)
    largest = max(device.memory_bytes for device in devices.devices)
    bytes_in_out = layers[0].input_bytes, layers[-1].output_bytes
    links = zip((devices.receive_links[0], devices.send_links[-1]), bytes_in_out, strict=True)
    cuts = np.array([layer.input_bytes for layer in layers])[table.cut_allowed[:-1]]
    inner = [link.cycles(cuts[1:], devices.clock_hz).min() for link in dict.fromkeys(devices.receive_links[1:])]
    is_line = estimates.cluster.topology is Topology.LINE
    return WholeModel(
        work_cycles=float(table.compute_prefix_cycles[-1]) / float(max(devices.speeds)),
        host_cycles=sum(int(link.cycles(np.array([n_bytes]), devices.clock_hz)[0]) for link, n_bytes in links),
        held_bytes=sum(n_bytes for name, n_bytes in held.items() if name != TEMPORARY),
        activation_bytes=int(table.memory.activation_prefix_bytes[-1]),
        limit_bytes=int(table.memory_limit_bytes[0]) / devices.devices[0].memory_bytes * largest,
        device_bytes=largest,
        cut_cycles=2 * int(min(inner, default=0)) if len(cuts) > 1 and is_line else 0,
        waits_for_transfers=estimates.period_of_devices is Period.BARRIER,
    )


def _min_transfer_cycles(whole: WholeModel, knobs: Knobs) -> float:
    """What some device transfers at least for every micro-batch while none computes; 0 where transfers overlap."""
    if not whole.waits_for_transfers:
        return 0.0
    n_each, p = knobs.mode.stages_per_device, knobs.n_ipu
    if n_each > 1:
        return (2 * n_each - 2) * whole.cut_cycles
    return whole.host_cycles + min(p - 1, 2) * whole.cut_cycles


def _min_bytes(whole: WholeModel, knobs: Knobs) -> float:
    """What the fullest device needs at least."""
    if knobs.mode.recompute:  # of its activations a stage may hold the segment between two checkpoints only
        return whole.held_bytes / knobs.n_ipu
    moments = in_flight_by_stage(*knobs.step)
    stashed, counts = float(whole.activation_bytes), tuple(float(each.mean(axis=0).min()) for each in moments)
    return _smallest_limit(float(whole.held_bytes), stashed, tuple(sorted(counts, reverse=True)))


@lru_cache(maxsize=4096)
def _smallest_limit(held: float, stashed: float, counts: tuple[float, ...]) -> float:
    """The smallest memory of devices that can hold all, however it is divided, `counts` times what each stashes.

    What is always held fills the devices first that stash most micro-batches.
    """
    low, high = held / len(counts), held + stashed * counts[0]
    for _ in range(20):
        limit, left, room = (low + high) / 2, held, 0.0
        for count in counts:
            here = min(limit, left)
            left -= here
            room += (limit - here) / count
        low, high = (low, limit) if room >= stashed else (limit, high)
    return low
