"""Arguments of a search, checked before anything is measured: `asked_space`, `chosen_method`, `Extent`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from time import monotonic
from typing import Any

from autoauto.evaluate.flow import Flow
from autoauto.records.errors import BadInput
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Method, Objective, Objectives, objective_tuple
from autoauto.space.requests.given import configuration_given
from autoauto.space.requests.request import KnobValues, SearchRequest, StudyConfig, Tries
from autoauto.space.space import SearchSpace
from autoauto.study.defaults import baseline_of, default_space, on_cluster
from autoauto.study.methods.registry import MethodChoice, method_for

QUICK_BATCH_SIZES = (1, 8)
"""Of a quick search: those at which the whole model is measured for forecasts anyway (`WholeModel`)."""


def checked_repeats(n_repeats: object) -> None:
    """Refuse a number of repeats that is neither None nor a whole number from 0."""
    if n_repeats is not None and (isinstance(n_repeats, bool) or not isinstance(n_repeats, int) or n_repeats < 0):
        raise BadInput(f"n_repeats must be a whole number from 0, got {n_repeats!r:.60}")


def check_objectives(flow: Flow, objectives: Objectives) -> None:
    """Refuse objectives that read a quantity that devices of the flow do not have, or that arrivals do not bound."""
    for objective in objective_tuple(objectives):
        objective.check(flow.cluster)
        if objective is Objective.DEVICES and not (flow.setting.constraints or flow.first_mode.simulates):
            raise BadInput(
                f"--objective {objective} needs what must hold, got no constraint; try --for-rate R, or for example "
                '--constraint "tokens_per_s >= 5000"'
            )
        if flow.first_mode.simulates and not (objective.is_throughput or objective is Objective.DEVICES):
            raise BadInput(
                f"a search with requests that arrive is for throughput, got --objective {objective}; leave it out, and "
                'bound latencies: --constraint "ttft_p99 <= 1s"'
            )


def check_measuring(flow: Flow, objectives: Objectives, request: SearchRequest | None) -> None:
    """Raise BadInput for searches whose configurations are not started on engines."""
    if len(objective_tuple(objectives)) > 1:
        raise BadInput("--measure looks for the best by one objective, got several; try one of them")
    if not flow.first_mode.forecasts_cells:
        raise BadInput("--measure starts engines that serve a decoder on GPUs, got another target; try --target gpu")
    if objective_tuple(objectives) == (Objective.DEVICES,):
        raise BadInput(f"--measure looks for the fastest, got --objective {Objective.DEVICES}; leave one of them out")
    if flow.first_mode.simulates:
        raise BadInput(
            "--measure is for clients that ask again at once, got arrivals; leave --rate and percentiles out"
        )
    if request is None:
        raise BadInput("engines load a model by its name or path, got an object; try `autoauto search MODEL --measure`")


def asked_space(space: object, constraints: tuple[Constraint, ...] = ()) -> SearchSpace | KnobValues:
    """The space that a caller gives, with further constraints over knobs; raises BadInput if it is no space."""
    if space is None:
        return KnobValues(constraints=constraints)
    if isinstance(space, Mapping):
        return replace(KnobValues.read(space), constraints=constraints)
    if not isinstance(space, SearchSpace):
        raise BadInput(
            f'a space is a SearchSpace or values by the names of knobs, got {space!r:.60}; try {{"n_ipu": [1, 2]}}'
        )
    return space.with_values(constraints=(*space.constraints, *constraints))


def space_of(
    flow: Flow,
    asked: SearchSpace | KnobValues,
    objectives: Objectives = Objective.THROUGHPUT,
    *,
    quick: bool = False,
) -> SearchSpace:
    """The space of a search on the flow's devices: all of what was asked for, or the default with its values.

    A `quick` one has the whole model only, as `_quick_values` says.

    Raises:
        BadInput: the model or the cluster does not allow a value, or no quick search is possible.
    """
    if quick and not flow.setting.begins_whole:
        raise BadInput("--quick measures the whole model on devices of this machine, got others; try --target host")
    if isinstance(asked, SearchSpace):
        if quick:
            raise BadInput("--quick chooses the space itself, got a whole SearchSpace; leave one of them out")
        return on_cluster(asked, flow)
    given = dict(asked.values) | ({"constraints": asked.constraints} if asked.constraints else {})
    if quick:
        given = _quick_values(flow, given)
    return default_space(flow, given, asked.global_batch, objectives)


def _quick_values(flow: Flow, given: Mapping[str, Any]) -> dict[str, Any]:
    """Given values, and others with which the whole model runs on all devices, at the sizes that forecasts measure."""
    values: dict[str, Any] = {"n_ipu": (1,)}
    if flow.graph.fixed_batch is None:
        values["batch_size"] = QUICK_BATCH_SIZES
    if not flow.cluster.kinds and given.keys().isdisjoint(("n_ipu", "replicas", *flow.traits.groups)):
        uses_all = Constraint(f"n_devices == {len(flow.cluster)}")
        values["constraints"] = (*given.get("constraints", ()), uses_all)
        given = {name: each for name, each in given.items() if name != "constraints"}
    return values | dict(given)


def n_repeats_of(flow: Flow, config: StudyConfig) -> int:
    """In how many turns the best is measured again at most: none in a quick search, by default those of the target."""
    if config.n_repeats is not None:
        return config.n_repeats
    return 0 if config.quick else flow.traits.n_repeats


def chosen_method(flow: Flow, config: StudyConfig, space: SearchSpace, first: tuple[Knobs, ...]) -> MethodChoice:
    """The method of a search with what it is given, by default that of the objectives and the flow's devices.

    Raises:
        BadInput: there is no such method for the objectives, or the noise or the budget is out of range.
    """
    noise, n_measurements = config.noise, config.n_measurements
    noise = flow.traits.noise if noise is None else noise
    if isinstance(n_measurements, bool) or not isinstance(n_measurements, int) or n_measurements < 1:
        raise BadInput(f"n_measurements must be a whole number from 1, got {n_measurements!r}")
    if isinstance(noise, bool) or not isinstance(noise, int | float) or not 0.0 <= noise < 1.0:
        raise BadInput(f"noise is a share, a number from 0 to below 1, got {noise!r}")
    method = method_for(config.objectives, config.method)
    most = flow.traits.most_measured if method is Method.GUIDED else None
    baseline = baseline_of(flow, config.objectives, space)
    if method is Method.GUIDED and flow.setting.begins_whole and baseline is not None and baseline in space:
        first = (*first, baseline)  # an answer within seconds, with which others are compared
    return MethodChoice(method, noise, n_measurements, baseline, first, most)


@dataclass(frozen=True, slots=True)
class Extent:
    """The first configurations of a search, and the moment at which it ends."""

    first: tuple[Knobs, ...] = ()  # the configurations to try first
    time_budget_s: float | None = None  # after which no further one is tried; None for as many as it takes
    started_s: float = 0.0  # the time of `monotonic` at the start

    @staticmethod
    def of(space: SearchSpace, tries: Tries, time_budget_s: float | None) -> Extent:
        """The extent of a search that starts now.

        Raises:
            BadInput: a configuration is not part of the space, or the budget is no number above 0.
        """
        given = [tries] if isinstance(tries, str | Knobs | Mapping) else tries
        if not isinstance(given, Sequence):
            raise BadInput(f"tries are configurations such as ['n_ipu=2,batch_size=8'], got {tries!r:.60}")
        first = (configuration_given(space, each) for each in given)
        if time_budget_s is not None:
            is_number = isinstance(time_budget_s, int | float) and not isinstance(time_budget_s, bool)
            if not (is_number and isfinite(time_budget_s) and time_budget_s > 0):
                raise BadInput(f"a time budget must be a number of seconds above 0, got {time_budget_s!r:.60}")
        return Extent(tuple(dict.fromkeys(first)), time_budget_s, monotonic())

    def is_over(self) -> bool:
        """True if no further configuration is to be tried."""
        return self.time_budget_s is not None and monotonic() - self.started_s >= self.time_budget_s
