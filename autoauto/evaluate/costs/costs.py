"""The costs of pipelines, from those of ranges of layers: `pipeline_table`, `shared_cycles`."""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.evaluate.costs.layer_costs import LayerwiseCosts
from autoauto.plan import replicas
from autoauto.profile.profiler import Progress
from autoauto.records.costs.cost import CostTable
from autoauto.space.knobs import Knobs


def pipeline_table(costs: LayerwiseCosts, knobs: Knobs, progress: Progress | None = None, start: int = 0) -> CostTable:
    """The estimated cost of every range of layers on a pipeline that begins with the device `start`.

    Raises:
        BadInput: the cluster has several kinds of devices, in any order (`autoauto/evaluate/pipelines/kinds.py`).
    """
    costs.setting.check_one_kind("this query")
    return costs.table_on(costs.setting.line(knobs, start), knobs, progress)


def shared_cycles(costs: LayerwiseCosts, knobs: Knobs, starts: Sequence[int]) -> int:
    """Cycles in which a machine's connection to the host moves a micro-batch of every pipeline.

    Args:
        costs: give the bytes of a micro-batch.
        knobs: the configuration.
        starts: the first device of every replica.
    """
    setting = costs.setting
    if setting.cluster.machine is None:
        return 0
    ends = costs.ends(setting.options(knobs))
    return replicas.shared_cycles(setting.devices(knobs), knobs.n_ipu, starts, *ends)
