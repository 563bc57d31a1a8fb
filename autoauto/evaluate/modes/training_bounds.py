"""What no step of training exceeds, without a plan: `TrainingBounds`.

A search of training has thousands of configurations, and a plan takes long. So some are bounded without one. Every plan
computes all layers, and its devices hold all weights; hence bounds of all plans (`StepBounds`):

    step     >=  micro-batches x work / devices      and with one stage a device also the time in which the pipeline
                                                     fills and flushes
    memory   >=  (weights and their state + what all stages stash) / devices       of the fullest device; with
                                                     recomputation without the stash
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from autoauto.estimate.sums import last_segment_prefix_cycles
from autoauto.evaluate.costs.layer_costs import LayerwiseCosts
from autoauto.evaluate.modes.mode import Planned, StepBounds
from autoauto.evaluate.modes.step_ends import with_known_state
from autoauto.evaluate.modes.training_steps import no_simulated_step_below
from autoauto.evaluate.modes.training_table import stage_tables
from autoauto.memo import Memo
from autoauto.plan.replicas import placements
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import TEMPORARY, WeightUpdate
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Period, Topology
from autoauto.records.units import samples_per_s
from autoauto.schedule.orders.registry import has_one_stage_each, spec_of
from autoauto.schedule.stash import in_flight_by_stage
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


class TrainingBounds:
    """Bounds of what the estimate says of training."""

    def __init__(self, costs: LayerwiseCosts) -> None:
        self.costs = costs
        # What no plan exceeds, in samples/s; what all layers need, for all orders and numbers of devices.
        self._limits: Memo[Knobs, float] = Memo(100_000)
        self._all_layers: Memo[tuple[CompileOptions, WeightUpdate, bool], AllLayers] = Memo(4096)

    def of_step(self, knobs: Knobs) -> StepBounds | None:
        """Bounds of the forecast, in a moment; None on devices of several kinds, or with several sessions."""
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

    def holds(self, knobs: Knobs, worth: float, planned: Planned) -> bool:
        """Whether the forecast gives no more than `worth` samples/s, told sooner than by its plan.

        It is certain, or follows from the plan of a configuration that may do all that this one may.
        """
        best, setting = self.of_step(knobs), self.costs.setting
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
                tables = [table for start in starts for table in stage_tables(self.costs, lean, None, start)]
                return all(no_simulated_step_below(table, lean, cycles) for table in tables)

            if self.costs.forecasts.of("no step below", key, bool, no_step_below):
                self._limits[same] = worth
                return True
        except Infeasible:  # for the reason that a plan would give
            pass
        return False


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
