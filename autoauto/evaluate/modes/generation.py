"""Text that decoders generate, by pipelines of groups of GPUs: `TokenStages`, `GenerationFlow`.

The cuts with the shortest mean step of the slowest stage are the best; what they give is in
`autoauto/targets/gpu/steps.py`. Forecasts are multiplied by the factors of measured rows and have their intervals;
constraints see the end at which bounds must hold, `held_trial`:

    times by the tables  ->  x factor  ->  the trial
                         ->  x held    ->  what constraints see: longer latencies, fewer tokens a second
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from autoauto.evaluate.costs.costs import Costs
from autoauto.evaluate.costs.token_costs import KV_CACHE, TokenCosts, check_tokens, requests_of, session_of
from autoauto.evaluate.modes.inference import InferenceFlow
from autoauto.evaluate.modes.mode import BestPlans, WithoutBounds
from autoauto.evaluate.modes.token_forecasts import CellRates, TokenForecasts
from autoauto.evaluate.modes.token_rates import AT_BOUND, HIGH, LOW, MIDDLE, ReplicaRates, rates_at
from autoauto.profile.profiler import Progress
from autoauto.records.errors import DoesNotFit, Infeasible
from autoauto.records.hardware import Device
from autoauto.records.plans.plan import BoundedPlan, Plan
from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import Origin
from autoauto.records.units import BoolArray
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import NAMES_OF_GENERATION, REQUEST_LATENCY, RESULT_NAMES, Result, TokenResult
from autoauto.space.table import numbers
from autoauto.space.trial import Status, Trial, measured_trial, unfit_trial
from autoauto.targets.gpu.calibration import HELD
from autoauto.targets.gpu.steps import StageSteps, rates_of
from autoauto.targets.gpu.systems import CLOCK_HZ
from autoauto.targets.gpu.target import system_of

_OF_PLANS = {*RESULT_NAMES} - {"samples_per_s", "latency_s", *NAMES_OF_GENERATION}
"""The names of results that forecasts without plans do not have."""


class TokenStages:
    """How stages of a decoder run (`StagePlanning`).

    Attributes:
        costs: on all GPUs.
        parts: the same on those of every kind alone, where there are several.
    """

    def __init__(self, costs: Costs, parts: Sequence[TokenStages] = ()) -> None:
        assert isinstance(costs, TokenCosts)
        self.costs, self.parts = costs, parts
        self._stages = InferenceFlow(costs)

    def has_plan(self, knobs: Knobs, start: int) -> bool | None:
        """See `StagePlanning`."""
        return None

    def best(self, knobs: Knobs, start: int, progress: Progress | None = None) -> BoundedPlan:
        """See `StagePlanning`; the plan whose slowest stage has the shortest mean step."""
        return self._stages.best(knobs, start, progress)

    def check(self, knobs: Knobs) -> None:
        """See `StagePlanning`."""
        check_tokens(knobs)

    def cut_at(self, knobs: Knobs, partition: Sequence[int], start: int = 0) -> Plan:
        """See `StagePlanning`."""
        return self._stages.cut_at(knobs, partition, start)

    def legal_cuts(self, knobs: Knobs) -> list[BoolArray]:
        """See `StagePlanning`."""
        return self._stages.legal_cuts(knobs)

    def alike(self, knobs: Knobs, plans: Mapping[int, Plan]) -> Mapping[int, Plan]:
        """See `StagePlanning`; replicas share nothing."""
        return plans

    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        """See `StagePlanning`; mean steps of micro-batches."""
        return self._stages.timeline(knobs, plan)

    def samples_per_s(self, knobs: Knobs, plan: Plan, step_cycles: float | None = None) -> float:
        """See `StagePlanning`; words of answers."""
        return sum(each.tokens_per_s(MIDDLE).item() for each in self.replicas(knobs, plan))

    def replicas(self, knobs: Knobs, plan: Plan) -> list[ReplicaRates]:
        """What the replicas of every plan give."""
        plans = plan.plans
        counts = [len(each.placement) for each in plans] if plan.other_plans else [knobs.replicas]
        return [self._of_replicas(n, knobs, each) for n, each in zip(counts, plans, strict=True)]

    def _of_replicas(self, n_replicas: int, knobs: Knobs, plan: Plan) -> ReplicaRates:
        """Factors are those of the GPUs whose stage takes the longest."""
        session, requests, devices = session_of(knobs), requests_of(knobs), self._devices(knobs, plan)
        engine, times = self.costs.target.engine(session), self._times(knobs, plan, devices)
        n_sequences = np.array([knobs.batch_size], dtype=np.float64)
        rates = rates_of(times, n_sequences, requests, engine, session.max_batched_tokens)
        slowest = int(np.argmax(times.decode_s + n_sequences / requests.output_tokens * times.prompt_s))
        factors = [self.costs.target.factors(system_of(device), session) for device in devices]
        return ReplicaRates(n_replicas, rates, factors, np.array([slowest]))

    def _devices(self, knobs: Knobs, plan: Plan) -> list[Device]:
        """A GPU of the kind of every stage."""
        devices = self.costs.setting.hardware(knobs.session).devices
        kinds: dict[str, Device] = {device.name: device for device in devices}
        return [kinds.get(stage.device_kind, devices[0]) for stage in plan.stages]

    def _times(self, knobs: Knobs, plan: Plan, devices: Sequence[Device]) -> StageSteps:
        """The times of the stages of a plan, each on its GPU."""
        decode, prompt = [], []
        for stage, device in zip(plan.stages, devices, strict=True):
            costs = self.costs.at(device, knobs, (knobs.batch_size,))
            decode.append(costs.decode_s[slice(*stage.layers)].sum())
            prompt.append(costs.prompt_s[slice(*stage.layers)].sum())
        send = [stage.send_cycles / CLOCK_HZ for stage in plan.stages]
        return StageSteps(*(np.array(column, dtype=np.float64)[:, None] for column in (decode, prompt, send)))


def result_of(knobs: Knobs, rates: TokenResult) -> Result:
    """All numbers that follow from the rates of a configuration."""
    return Result(
        samples_per_s=rates.tokens_per_s,
        estimated_samples_per_s=rates.tokens_per_s,
        latency_s=rates.ttft_s + (requests_of(knobs).output_tokens - 1) * rates.tpot_s,
        of_mode=rates,
    )


def held_trial(trial: Trial, at_bound: Trial) -> Trial:
    """A trial with the constraints that hold at the end of its interval at which bounds must."""
    has_margin = at_bound.tokens.tpot_s != trial.tokens.tpot_s or at_bound.tokens.ttft_s != trial.tokens.ttft_s
    end = f", at the end of the interval that {100 * HELD:.0f} % of measured rows keep" if has_margin else ""
    reason = f"{at_bound.reason}{end}" if at_bound.reason else ""
    return replace(trial, status=at_bound.status, reason=reason, violation=at_bound.violation)


class GenerationFlow(WithoutBounds):
    """The `ModeFlow` of generation. Nothing is measured: what an engine would give is modelled."""

    def __init__(self, plans: BestPlans, stages: TokenStages) -> None:
        self._plans, self._stages = plans, stages
        self._forecasts = TokenForecasts(stages.costs, [TokenForecasts(part.costs) for part in stages.parts])

    def forecast(self, knobs: Knobs, *, with_timeline: bool = False) -> Trial:
        """See `ModeFlow`."""
        return self._trial(knobs, Origin.ESTIMATED)

    def evaluate(self, knobs: Knobs) -> Trial:
        """See `ModeFlow`; the same numbers as the forecast."""
        return self._trial(knobs, Origin.MODELLED)

    def forecasts(self, cell: Sequence[Knobs]) -> Sequence[Trial]:
        """See `ModeFlow`; a constraint on the stages of a plan needs the plan."""
        constraints = self._stages.costs.setting.constraints
        if any(_OF_PLANS.intersection(constraint.names) for constraint in constraints):
            return list(map(self.forecast, cell))
        forecasts, sizes = self._forecasts, tuple(knobs.batch_size for knobs in cell)
        try:
            ways = forecasts.ways(cell[0], sizes) if constraints else [forecasts.of(cell[0], sizes)]
        except DoesNotFit as failure:
            return [unfit_trial(knobs, failure, self._device_bytes(knobs)) for knobs in cell]
        return [
            max((self._at(rates, index, knobs) for rates in ways), key=_preference) for index, knobs in enumerate(cell)
        ]

    def _at(self, rates: CellRates, index: int, knobs: Knobs) -> Trial:
        """The forecast of one batch size of a cell."""
        try:
            if not rates.fits[index]:
                raise Infeasible("no cuts fit", round(rates.excess_bytes[index]))
            check_tokens(knobs)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, self._device_bytes(knobs))
        trial, constraints = _trial_of(knobs, rates.rates.of(index)), self._stages.costs.setting.constraints
        if not constraints:
            return trial
        at_bound = _numbers(_trial_of(knobs, rates.at_bound.of(index)))
        violation = max(constraint.violation(at_bound) for constraint in constraints)
        return replace(trial, violation=violation, status=Status.CONSTRAINED if violation > 0 else Status.OK)

    def _device_bytes(self, knobs: Knobs) -> int:
        return self._stages.costs.setting.device_bytes(knobs) // knobs.session.cores_per_device

    def _trial(self, knobs: Knobs, origin: Origin) -> Trial:
        try:
            trials = [self._trial_of_plan(knobs, plan, origin) for plan in self._plans.ways(knobs)]
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, self._device_bytes(knobs))
        return max(trials, key=_preference)

    def _trial_of_plan(self, knobs: Knobs, plan: Plan, origin: Origin) -> Trial:
        replicas = self._stages.replicas(knobs, plan)
        n_bytes = max(stage.memory_bytes.get(KV_CACHE, 0) for each in plan.plans for stage in each.stages)
        cache = np.array([n_bytes])
        rates, low, high, at_bound = (rates_at(replicas, cache, end).of(0) for end in (MIDDLE, LOW, HIGH, AT_BOUND))
        rates = replace(
            rates, tpot_low_s=low.tpot_s, tpot_high_s=high.tpot_s, ttft_low_s=low.ttft_s, ttft_high_s=high.ttft_s
        )
        setting = self._stages.costs.setting
        device = setting.hardware(knobs.session).devices[0]
        made = partial(measured_trial, knobs, plan, plan, device=device, origin=origin)
        return held_trial(
            made(result_of(knobs, rates)), made(result_of(knobs, at_bound), constraints=setting.constraints)
        )


def _preference(trial: Trial) -> tuple[bool, float, float]:
    """Larger for the better of several ways: what runs, what keeps bounds or is nearer to them, what gives more."""
    return trial.runs, -max(trial.violation, 0.0), trial.samples_per_s if trial.runs else -trial.excess


def _trial_of(knobs: Knobs, rates: TokenResult) -> Trial:
    """A trial without plans."""
    return Trial(knobs, Status.OK, result=result_of(knobs, rates), origin=Origin.ESTIMATED)


def _numbers(trial: Trial) -> dict[str, float]:
    """What constraints may name of a trial without plans."""
    return {**numbers(trial.knobs), **trial.result.values, REQUEST_LATENCY: trial.latency_s}
