"""What ranges of layers cost on a cluster, for any configuration: `LayerwiseCosts`; and what pipelines have of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from autoauto.evaluate.costs.forecasts import StoredForecasts
from autoauto.evaluate.setting import Setting
from autoauto.plan import replicas
from autoauto.profile.profiler import Progress
from autoauto.records.costs.correction import Correction, WholeRange
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import ModelProfile
from autoauto.records.hardware import Cluster
from autoauto.records.plans.plan import Plan
from autoauto.space.knobs import Knobs


class EndBytes(NamedTuple):
    """The bytes of a model's inputs, and of its outputs, for one micro-batch."""

    input_bytes: int
    output_bytes: int


class LayerwiseCosts(Protocol):
    """Estimated costs of a model, which measurements on real devices correct.

    Two classes give them: `LayerCosts`, from layers, and `WholeFirstCosts`, from the whole model and only then from
    layers, which is `BeginsWhole`, too. What a decoder costs that engines serve is in `evaluate/serving/costs.py`.
    """

    @property
    def setting(self) -> Setting:
        """What all configurations have in common."""

    @property
    def forecasts(self) -> StoredForecasts:
        """Where forecasts that were made before are stored."""

    def cost_key(self, knobs: Knobs) -> object:
        """What the costs of a configuration depend on, by which forecasts of it are stored; equal for equal costs."""

    def profile(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """Every kind of layer compiled once, for the cluster's first device, or the profile that the target has."""

    def layers(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """The profile that plans are made by: that of layers alone, or of layers in their model."""

    def ends(self, options: CompileOptions) -> EndBytes:
        """The bytes of the model's inputs and outputs."""

    def with_equal_costs(self, knobs: Knobs, progress: Progress | None = None) -> Knobs:
        """The configuration with the first session that was asked for with which all layers cost as much.

        At small batches memory proportions often make no difference: no kernel needs more than the least. On real
        devices it is the session of `knobs`.
        """

    def correction(self, knobs: Knobs, progress: Progress | None = None) -> Correction:
        """The correction of sums of layers, fitted to ranges that were compiled whole."""

    def ranges(
        self, knobs: Knobs, correction: Correction, progress: Progress | None = None, device: int = 0
    ) -> tuple[ModelProfile, CostTable]:
        """The corrected profile, and the costs of ranges, with the session of a device of the pipeline.

        They are those of the cluster's first device; numbers of devices share them.
        """

    def table_on(self, cluster: Cluster, knobs: Knobs, progress: Progress | None = None) -> CostTable:
        """The estimated cost of every range of layers on each device of a line."""

    def learn_ranges(self, options: CompileOptions, measured: Iterable[WholeRange]) -> None:
        """Store ranges that were compiled whole, or ran, as examples to which later corrections are fitted."""


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
