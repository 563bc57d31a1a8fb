"""What ranges of layers cost as stages of training: `stage_table`."""

from __future__ import annotations

from autoauto.evaluate.costs.costs import Costs, pipeline_table
from autoauto.plan.pipeline.stage_table import StageTable, arranged
from autoauto.profile.profiler import Progress
from autoauto.schedule.orders.registry import devices_of
from autoauto.schedule.stash import in_flight_by_stage
from autoauto.space.knobs import Knobs
from autoauto.space.modes import Recompute


def stage_table(costs: Costs, knobs: Knobs, progress: Progress | None = None, start: int = 0) -> StageTable:
    """The estimated cost of every range of layers as each stage of a pipeline that begins with the device `start`.

    Raises:
        BadInput: as `pipeline_table`; or several stages a device, where devices transfer by themselves or are in no
            line.
    """
    own = knobs.with_values(recompute=knobs.mode.recompute is True)
    table, recomputing = pipeline_table(costs, own, progress, start), None
    if knobs.mode.recompute is Recompute.AUTO:
        recomputing = pipeline_table(costs, knobs.with_values(recompute=True), progress, start)
    if knobs.mode.stages_per_device == 1:
        return StageTable.of(table, recomputing)
    devices, moments = devices_of(knobs.step), in_flight_by_stage(*knobs.step)
    taken = [0] * knobs.n_ipu
    most = []
    for device in devices:
        most.append(int(moments[device][:, taken[device]].max()))
        taken[device] += 1
    arranged_recomputing = None if recomputing is None else arranged(recomputing, devices, most)
    return StageTable(arranged(table, devices, most), devices, moments, arranged_recomputing)
