"""The costs of ranges of layers as stages of training, `stage_tables`, and the allowed cuts between them, `legal_cuts`.

`with_ends_of_steps` adds a part of the end of a step to every micro-batch. `default_orders` has the default orders.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoauto.estimate.sums import cut_allowed, cuts_around, last_segment_prefix_cycles, prefix_sums
from autoauto.evaluate.costs.layer_costs import LayerwiseCosts
from autoauto.evaluate.setting import Setting
from autoauto.plan.pipeline.stage_table import StageTable, arranged
from autoauto.profile.profiler import Progress
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import RangeMemory
from autoauto.records.costs.profile import GRADIENT
from autoauto.records.plans.plan import CutAt
from autoauto.records.schedule import Order
from autoauto.records.units import BoolArray, IntArray
from autoauto.schedule.orders.registry import devices_of, has_one_stage_each
from autoauto.schedule.stash import in_flight_by_stage, turns_at_once
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Recompute
from autoauto.space.modes.training import SCHEDULE


def stage_tables(
    costs: LayerwiseCosts, knobs: Knobs, progress: Progress | None = None, start: int = 0
) -> list[StageTable]:
    """The estimated cost of every range of layers as each stage of a pipeline that begins with the device `start`.

    They differ in where stages may be cut: a table for each of `legal_cuts` that has enough cuts, one at least. Raises
    BadInput as `LayerwiseCosts.pipeline_table`, and for several stages a device where devices transfer by themselves or
    are in no line.
    """
    own = knobs.with_values(recompute=knobs.mode.recomputes_all)
    table = costs.pipeline_table(own, progress, start)
    recomputing: CostTable | None = None
    spared: IntArray | None = None
    if knobs.mode.may_recompute and turns_at_once(*knobs.step):
        profile, _ = costs.ranges(own, costs.correction(own, progress), progress, devices_of(knobs.step)[-1])
        spared = last_segment_prefix_cycles(profile)
    if knobs.mode.recompute is Recompute.AUTO:
        recomputing = costs.pipeline_table(knobs.with_values(recompute=True), progress, start)
    if has_one_stage_each(knobs.step):
        return [StageTable.of(table, recomputing, spared)]
    devices, moments = devices_of(knobs.step), in_flight_by_stage(*knobs.step)
    choices = legal_cuts(costs, knobs)
    enough = [cuts for cuts in choices if cuts[1:-1].sum() >= len(devices) - 1] or choices[:1]
    # The most micro-batches that every stage ever has in flight: `moments` has them by device.
    of_devices = [iter(each.max(axis=0).tolist()) for each in moments]
    most_in_flight = [next(of_devices[device]) for device in devices]

    def rows(table: CostTable, cuts: BoolArray) -> CostTable:
        return arranged(replace(table, cut_allowed=cuts), devices, most_in_flight)

    return [
        StageTable(rows(table, cuts), devices, moments, recomputing and rows(recomputing, cuts), spared)
        for cuts in enough
    ]


def with_ends_of_steps(stages: StageTable, cycles_per_byte: float) -> StageTable:
    """The table where a backward pass takes longer by so many cycles for every byte of gradients.

    Best plans then balance micro-batches together with their part of what a step ends with, summing gradients and
    updating weights, which takes a device the longer, the more weights it has.
    """

    def rows(table: CostTable) -> CostTable:
        more = np.rint(prefix_sums(_gradient_bytes(table.memory), "bytes of gradients") * cycles_per_byte)
        columns = (table.compute_prefix_cycles, table.backward_prefix_cycles)
        compute, backward = (column + more.astype(np.int64) for column in columns)
        return replace(table, compute_prefix_cycles=compute, backward_prefix_cycles=backward)

    recomputing = stages.recomputing and stages.recomputing.changed(rows)
    return replace(stages, rows=stages.rows.changed(rows), recomputing=recomputing)


def _gradient_bytes(memory: RangeMemory) -> list[int]:
    """Bytes of the gradients of every layer, those of weights that several read in the first."""
    shared = memory.shared
    seen: set[int] = set()
    n_bytes = np.diff(memory.exclusive_prefix_bytes.get(GRADIENT, memory.activation_prefix_bytes * 0)).tolist()
    for layer, keys in enumerate(shared.keys):
        new = {key for key in keys if shared.categories[key] == GRADIENT} - seen
        n_bytes[layer] += sum(shared.n_bytes[key] for key in new)
        seen |= new
    return list(n_bytes)


def legal_cuts(costs: LayerwiseCosts, knobs: Knobs) -> list[BoolArray]:
    """(n + 1,) where stages may be cut; all cuts of a plan are in one of these, which are several where its ends meet.

    Layers of one weight share a stage, or where the first and the last stage share a device, one of these two.
    """
    setting, devices = costs.setting, devices_of(knobs.step)
    tied = costs.layers(setting.options(knobs)).tied
    ends_meet = len(devices) > 1 and devices[0] == devices[-1]
    choices = cuts_around(tied) if ends_meet else [cut_allowed(tied)]
    if setting.cut_at is CutAt.BLOCKS:
        starts = [0, *(block.layers.start for block in setting.graph.blocks), len(tied)]
        choices = [cuts & np.isin(np.arange(len(tied) + 1), starts) for cuts in choices]
    return choices


def default_orders(setting: Setting, n_ipu: int) -> tuple[Order, ...]:
    """The default of `SCHEDULE`; on several devices a ring where that has more places to cut a model than a line has.

    So it is where the first and the last layers read one weight, as embedding and head of GPT-2 do.
    """
    tied = [layer.tied for layer in setting.graph.layers]
    in_line, around = cut_allowed(tied).sum(), max(cuts.sum() for cuts in cuts_around(tied))
    return (Order.POPART_RING,) if n_ipu > 1 and around > in_line else (SCHEDULE.default,)
