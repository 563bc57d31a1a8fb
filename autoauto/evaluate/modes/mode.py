"""The interface of all modes of running a model, `ModeFlow`, and of those that run pipelines, `StageFlow`.

A method that only some modes need has a default, so that no caller asks which mode it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

from autoauto.profile.profiler import Progress
from autoauto.records.costs.profile import CompiledRange
from autoauto.records.costs.rate_curve import RateCurves
from autoauto.records.errors import BadInput
from autoauto.records.plans.plan import BoundedPlan, Plan
from autoauto.records.plans.timeline import Run, Timeline
from autoauto.records.units import BoolArray
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Trial


class StepBounds(NamedTuple):
    """Bounds of what the estimate says of a configuration.

    Attributes:
        samples_per_s: it gives no more.
        excess: the fullest device lacks at least this share of what a device holds; below 0 it may fit.
    """

    samples_per_s: float
    excess: float


def no_stages() -> BadInput:
    """The error where the stages of phases are asked for."""
    return BadInput("a plan of stages is for pipelines, got phases; try --strategy pipeline")


class ModeFlow(ABC):
    """A mode of running a model, through all rooms: one configuration of it becomes a `Trial`.

    `forecasts_cells` is True if `forecasts` is quicker than single forecasts, and forecasts are what evaluations give.
    """

    forecasts_cells: ClassVar[bool] = False

    @abstractmethod
    def forecast(self, knobs: Knobs, *, with_timeline: bool = False) -> Trial:
        """The trial of a configuration if every stage cost what is estimated; nothing is measured.

        A timeline of training takes long to simulate for long steps; so there is none by default.
        """

    @abstractmethod
    def evaluate(self, knobs: Knobs) -> Trial:
        """Plan a configuration and measure it; one that does not fit or violates a constraint is a trial too."""

    def fits(self, knobs: Knobs) -> bool:
        """True if the forecast fits and meets all constraints; some modes know it sooner than the forecast."""
        return self.forecast(knobs).fits

    def forecasts(self, cell: Sequence[Knobs]) -> Sequence[Trial]:
        """The forecasts of configurations that differ in their batch size alone, without plans where it is quicker."""
        return list(map(self.forecast, cell))

    def best_plan(self, knobs: Knobs, progress: Progress | None = None) -> Plan:
        """The best plan by estimated costs, and those of replicas whose devices or links differ.

        Raises:
            BadInput: the mode has no stages.
            Infeasible: no plan respects the limits, or the cluster has too few devices.
        """
        raise no_stages()

    def gap(self, knobs: Knobs) -> float:
        """The largest share of its cost by which a plan of one pipeline may be better; 0 where the best is known.

        Raises as `best_plan`.
        """
        raise no_stages()

    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        """The stages of a plan, simulated in their order; in training the whole step, of the slowest replica.

        Raises BadInput if the mode has no stages.
        """
        raise no_stages()

    def upper_bound(self, knobs: Knobs) -> Trial | None:
        """A trial that is no worse than the forecast, and needs no layer; None where the forecast needs none either."""
        return None

    def step_bounds(self, knobs: Knobs) -> StepBounds | None:
        """Bounds of the forecast, in a moment; None where there are none."""
        return None

    def is_bounded_by(self, knobs: Knobs, worth: float) -> bool:
        """True if the forecast gives no more than `worth` samples/s, where that is known sooner than the forecast."""
        return False

    @property
    def simulates(self) -> bool:
        """True if evaluations simulate requests that arrive, while forecasts are upper bounds of them."""
        return False

    def exceeds(self, knobs: Knobs, worth: float) -> bool:
        """True if an evaluation may give `worth` samples/s or more, by one simulation; True where nothing tells."""
        return True

    @property
    def window_s(self) -> float | None:
        """About the length of the windows of a trace in each of which bounds must hold; None without."""
        return None

    def replicas_by_window(self, knobs: Knobs) -> Sequence[int]:
        """Of every window of a trace, served by itself, the fewest replicas of a configuration that keep all bounds.

        At most those of the configuration, also where these are too few; none without windows, or of two pools.
        """
        return ()

    def rate_curves(self, best: Trial) -> RateCurves | None:
        """Times of requests over the rate, by replicas; None where nothing is simulated, or too much would be."""
        return None

    def continue_from(self, trials: Sequence[Trial]) -> None:  # noqa: B027 - most modes have no scale
        """Compare what is measured from now on with these, of earlier searches of the study."""


class Planned(Protocol):
    """The plans that were made before."""

    def are_known_as_no_better(self, knobs: Knobs, cycles: float) -> bool:
        """True if plans of a configuration of training are known, and none has a step below `cycles`."""

    def first_like(self, knobs: Knobs, start: int) -> int:
        """The first device of a pipeline that has the same devices and links as the one that begins with `start`."""


class StageFlow(ABC):
    """A mode of running pipelines: plans, bounds, simulations and throughput of their stages."""

    def has_plan(self, knobs: Knobs, start: int) -> bool | None:
        """True if there is a plan of the pipeline that begins with the device `start`; None where only `best` tells."""
        return None

    @abstractmethod
    def best(self, knobs: Knobs, start: int, progress: Progress | None = None) -> BoundedPlan:
        """The cheapest plan of the pipeline that begins with the device `start`; raises Infeasible if there is none."""

    @abstractmethod
    def cut_at(self, knobs: Knobs, partition: Sequence[int], start: int = 0) -> Plan:
        """The plan of these cuts on such a pipeline; no limit is checked."""

    @abstractmethod
    def legal_cuts(self, knobs: Knobs) -> list[BoolArray]:
        """(n + 1,) where stages may be cut; all cuts of a plan are in one of these."""

    @abstractmethod
    def alike(self, knobs: Knobs, plans: Mapping[int, Plan]) -> Mapping[int, Plan]:
        """Plans of pipelines by their first device, as replicas run them side by side though their devices differ.

        Raises Infeasible if no plans suit all of them.
        """

    @abstractmethod
    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        """The stages of a plan, simulated in their order."""

    @abstractmethod
    def samples_per_s(self, knobs: Knobs, plan: Plan, step_cycles: float | None = None) -> float:
        """Throughput of all replicas by the costs of `plan`.

        Give the `step_cycles` of the plan if they are known: for some orders another search is needed.
        """

    @abstractmethod
    def simulated_samples_per_s(self, knobs: Knobs, timeline: Timeline, plan: Plan) -> float:
        """Throughput by the `timeline` of `plan`."""

    @abstractmethod
    def stage_bytes(self, knobs: Knobs, plan: Plan, compiled: Sequence[CompiledRange]) -> list[dict[str, int]]:
        """The memory of every stage of a plan, by its range compiled whole."""

    @abstractmethod
    def simulate(self, knobs: Knobs, measured: Plan) -> Run:
        """A run of stages that were compiled whole, simulated."""

    def step_cycles(self, knobs: Knobs, plan: Plan) -> float | None:
        """Cycles of a whole step, that of the slowest replica; None in modes without steps."""
        return None

    def step_bounds(self, knobs: Knobs) -> StepBounds | None:
        """Bounds of the forecast, known in a moment; None where there are none."""
        return None

    def is_bounded_by(self, knobs: Knobs, worth: float, planned: Planned) -> bool:
        """True if the forecast gives no more than `worth` samples/s, as is known at once, or from earlier plans."""
        return False
