"""What pipelines have of `LayerwiseCosts`, and costs that begin with the whole model: `BeginsWhole`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from autoauto.evaluate.costs.layer_costs import LayerwiseCosts
from autoauto.plan import replicas
from autoauto.profile.profiler import Progress
from autoauto.records.costs.cost import CostTable
from autoauto.records.plans.plan import Plan
from autoauto.space.knobs import Knobs


class BeginsWhole(ABC):
    """Costs that begin with the whole model on one device; a class, as `HasBounds`."""

    @abstractmethod
    def whole_plan(self, knobs: Knobs) -> Plan | None:
        """One device that runs the whole model, where no layer is needed to know it; None where layers tell.

        Raises:
            Infeasible: it needs more memory than the device has.
        """

    @abstractmethod
    def bound_plan(self, knobs: Knobs) -> Plan | None:
        """A plan of one pipeline that is no slower than any, by the whole model alone; None where there is none.

        Raises:
            Infeasible: too few layers may be parted, or not even equal parts fit.
        """

    @abstractmethod
    def learn_speed(self, knobs: Knobs, estimated_per_s: float, measured_per_s: float) -> None:
        """Take note how much longer than estimated a configuration took."""


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
