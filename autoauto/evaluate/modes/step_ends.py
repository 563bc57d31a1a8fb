"""The costs of a step after its last backward pass, `StepEnds`, and the place of its states, `with_known_state`.

gradients are summed over the replicas          all_reduce_cycles
states are loaded from streaming memory         |
weights change                                  | update_cycles
states are stored                               |
the hosts prepare the next step                 |
"""

from __future__ import annotations

from dataclasses import replace

from autoauto.estimate.sums import prefix_sums
from autoauto.evaluate.costs.layer_costs import LayerwiseCosts
from autoauto.evaluate.setting import Setting
from autoauto.memo import Memo
from autoauto.plan.replicas import all_reduce_cycles, placements
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import OptimizerState, WeightUpdate, gradient_bytes
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Link
from autoauto.records.layers import LayerGraph, derivative
from autoauto.records.plans.plan import Plan
from autoauto.records.target import HasStepOverhead, StepOverhead, UpdatesWeights
from autoauto.records.units import IntArray, reference_cycles
from autoauto.space.knobs import Knobs


def with_known_state(knobs: Knobs, setting: Setting) -> tuple[Knobs, ...]:
    """The configuration with a known location of the optimizer's state; two, in order, where it depends on what fits.

    Raises BadInput if the state is to lie in streaming memory, and there is none.
    """
    location = knobs.mode.values["optimizer_state"]
    has_memory = setting.cluster.streaming_memory is not None
    if location is not OptimizerState.AUTO:
        if knobs.weight_update.streams and not has_memory:
            raise BadInput(
                f"optimizer_state {location} needs a streaming memory, {setting.cluster.name} has none; "
                "try --optimizer-state on-chip"
            )
        return (knobs,)
    on_chip = knobs.with_values(optimizer_state=OptimizerState.ON_CHIP)
    if not has_memory or not on_chip.weight_update.state_bytes(1, setting.precision):
        return (on_chip,)
    return on_chip, knobs.with_values(optimizer_state=OptimizerState.STREAMING_SHARDED)


def as_planned(knobs: Knobs, setting: Setting, plan: Plan) -> Knobs:
    """The configuration with the state where a plan has it."""
    first, *others = with_known_state(knobs, setting)
    states = first.weight_update.state_bytes(1, setting.precision)
    on_chip = any(state in stage.memory_bytes for stage in plan.stages for state in states)
    return others[0] if others and not on_chip else first


class StepEnds:
    """The ends of steps of training, by device, in cycles of the reference clock."""

    def __init__(self, costs: LayerwiseCosts) -> None:
        self.costs = costs
        # Running sums by layer: the cycles in which a device updates weights; the tensors of weights.
        self._passes: Memo[tuple[CompileOptions, WeightUpdate], IntArray] = Memo(128)
        self._tensors: IntArray | None = None

    def all_reduce_cycles(self, knobs: Knobs, plan: Plan) -> tuple[int, ...]:
        """Cycles in which every stage sums its gradients over the replicas.

        Replicas that share states sum tensor after tensor, others buckets of them.
        """
        cluster = self.costs.setting.devices(knobs)
        pipelines = [devices for each in plan.plans for devices in each.placement]
        firsts = sorted(cluster.index(devices[0]) for devices in pipelines)
        if len(firsts) < knobs.replicas:  # the plan of one pipeline
            firsts = list(placements(cluster, knobs.n_ipu, knobs.replicas)[0])
        # A ring has the like devices of all replicas.
        rings = [[first + device for first in firsts] for device in range(plan.n_devices)]
        n_bytes = _gradient_bytes(plan)
        overhead = self._overhead(knobs, plan)
        update = as_planned(knobs, self.costs.setting, plan).weight_update
        if update.n_shards > 1 and overhead.bucket_bytes:
            n_messages = self._n_tensors(plan)
        else:
            n_messages = [-(-n // (overhead.bucket_bytes or max(n, 1))) for n in n_bytes]  # one where none has buckets
        return all_reduce_cycles(cluster, rings, n_bytes, n_messages, overhead.round_cycles)

    def update_cycles(self, knobs: Knobs, plan: Plan) -> tuple[int, ...]:
        """Cycles in which every device updates its weights, with the transfers of states and what the hosts do."""
        knobs = as_planned(knobs, self.costs.setting, plan)
        host_cycles = self._overhead(knobs, plan).host_cycles
        parts = zip(self._passes_cycles(knobs, plan), self._streaming_cycles(knobs, plan), strict=True)
        return tuple(passes + streaming + host_cycles for passes, streaming in parts)

    def cycles_of_more_gradients(self, knobs: Knobs, plan: Plan) -> tuple[int, int]:
        """Compare the devices with most and with fewest gradients: cycles between their ends of a step, and bytes."""
        n_bytes = _gradient_bytes(plan)
        most, fewest = n_bytes.index(max(n_bytes)), n_bytes.index(min(n_bytes))
        all_reduce = self.all_reduce_cycles(knobs, plan)
        update = self.update_cycles(knobs, plan)
        cycles = all_reduce[most] + update[most] - all_reduce[fewest] - update[fewest]
        return cycles, n_bytes[most] - n_bytes[fewest]

    def _passes_cycles(self, knobs: Knobs, plan: Plan) -> tuple[int, ...]:
        """Cycles of the update alone; 0 where the target does not say."""
        setting = self.costs.setting
        target, cluster = setting.target, setting.cluster
        if not isinstance(target, UpdatesWeights):
            return (0,) * plan.n_devices
        options = replace(setting.options(knobs), batch_size=1)
        key = options, knobs.weight_update
        if key not in self._passes:
            by_layer = target.weight_update_cycles(setting.graph, setting.device(options), *key)
            self._passes[key] = prefix_sums(by_layer, "cycles of the weight update")
        firsts = [cluster.index(each.placement[0][0]) if each.placement else 0 for each in plan.plans]
        slowest: list[int] = []
        for device, cycles in enumerate(_by_device(plan, self._passes[key])):
            speed = min(cluster.speeds[first + device] for first in firsts)  # replicas end a step together
            slowest.append(reference_cycles(cycles, speed))
        return tuple(slowest)

    def _streaming_cycles(self, knobs: Knobs, plan: Plan) -> list[int]:
        """Cycles in which every device loads its states from streaming memory tensor by tensor, and stores them."""
        setting, update = self.costs.setting, knobs.weight_update
        memory, clock_hz = setting.cluster.streaming_memory, setting.cluster.clock_hz
        if not update.streams or memory is None:
            return [0] * plan.n_devices
        waits = memory.idle_cycles + self._overhead(knobs, plan).transfer_cycles
        link = Link(memory.bytes_per_s, 0)
        cycles: list[int] = []
        for n_bytes, n_tensors in zip(_gradient_bytes(plan), self._n_tensors(plan), strict=True):
            states = update.streamed_bytes(n_bytes, setting.precision)
            one_way = n_tensors * len(states) * waits + int(link.cycles(sum(states), clock_hz))
            cycles.append(2 * one_way)
        return cycles

    def _n_tensors(self, plan: Plan) -> list[int]:
        if self._tensors is None:
            self._tensors = prefix_sums(_new_weights(self.costs.setting.graph), "tensors")
        return _by_device(plan, self._tensors)

    def _overhead(self, knobs: Knobs, plan: Plan) -> StepOverhead:
        setting = self.costs.setting
        if not isinstance(setting.target, HasStepOverhead):
            return StepOverhead()
        update = as_planned(knobs, setting, plan).weight_update
        return setting.target.step_overhead(setting.cluster.clock_hz, update)


def _new_weights(graph: LayerGraph) -> list[int]:
    """The tensors of weights that every layer reads and no earlier one."""
    passes = derivative(graph)
    seen: set[int] = set()
    counts: list[int] = []
    for layer in graph.layers:
        new = {*passes.parameters(layer)} - seen
        seen |= new
        counts.append(len(new))
    return counts


def _gradient_bytes(plan: Plan) -> list[int]:
    n_bytes = [0] * plan.n_devices
    for stage in plan.stages:
        n_bytes[stage.device] += gradient_bytes(stage.memory_bytes)
    return n_bytes


def _by_device(plan: Plan, prefix: IntArray) -> list[int]:
    """The sum over the layers of every device, from running sums over all layers."""
    sums = [0] * plan.n_devices
    for stage in plan.stages:
        sums[stage.device] += int(prefix[stage.layers.stop] - prefix[stage.layers.start])
    return sums
