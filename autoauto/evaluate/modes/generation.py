"""Text that decoders generate, by pipelines of groups of GPUs: `TokenStages`, `GenerationFlow`.

The cuts with the shortest mean step of the slowest stage are the best; what they give is in
`autoauto/targets/gpu/steps.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from autoauto.evaluate.costs.costs import Costs
from autoauto.evaluate.costs.token_costs import KV_CACHE, TokenCosts, requests_of, session_of
from autoauto.evaluate.memo import Memo
from autoauto.evaluate.modes.inference import InferenceFlow
from autoauto.evaluate.modes.mode import BestPlans, StepBounds
from autoauto.profile.profiler import Progress
from autoauto.records.errors import DoesNotFit
from autoauto.records.hardware import Device
from autoauto.records.plans.plan import BoundedPlan, Plan
from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import Origin
from autoauto.space.knobs import Knobs
from autoauto.space.trial import TokenRates, Trial, apply_constraints, measured_trial, unfit_trial
from autoauto.targets.gpu.steps import Rates, StageSteps, rates_of
from autoauto.targets.gpu.systems import CLOCK_HZ


class TokenStages:
    """How stages of a decoder run (`StagePlanning`)."""

    def __init__(self, costs: Costs) -> None:
        assert isinstance(costs, TokenCosts)
        self.costs = costs
        self._stages = InferenceFlow(costs)
        self._rates: Memo[tuple[Knobs, Plan], Rates] = Memo(256)

    def best(self, knobs: Knobs, start: int, progress: Progress | None = None) -> BoundedPlan:
        """See `StagePlanning`; the plan whose slowest stage has the shortest mean step."""
        return self._stages.best(knobs, start, progress)

    def cut_at(self, knobs: Knobs, partition: Sequence[int], start: int = 0) -> Plan:
        """See `StagePlanning`."""
        return self._stages.cut_at(knobs, partition, start)

    def alike(self, knobs: Knobs, plans: Mapping[int, Plan]) -> Mapping[int, Plan]:
        """See `StagePlanning`; replicas share nothing."""
        return plans

    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        """See `StagePlanning`; mean steps of micro-batches."""
        return self._stages.timeline(knobs, plan)

    def samples_per_s(self, knobs: Knobs, plan: Plan, step_cycles: float | None = None) -> float:
        """See `StagePlanning`; words of answers."""
        return self.rates(knobs, plan).tokens_per_s

    def rates(self, knobs: Knobs, plan: Plan) -> TokenRates:
        """What all replicas give together; times are those of the slowest."""
        plans = plan.plans
        counts = [len(each.placement) for each in plans] if plan.other_plans else [knobs.replicas]
        rates = [self._of_replica(knobs, each) for each in plans]
        return TokenRates(
            tokens_per_s=sum(n * float(each.tokens_per_s[0]) for n, each in zip(counts, rates, strict=True)),
            tpot_s=max(float(each.tpot_s[0]) for each in rates),
            ttft_s=max(float(each.ttft_s[0]) for each in rates),
            kv_cache_bytes=max(stage.memory_bytes.get(KV_CACHE, 0) for each in plans for stage in each.stages),
        )

    def _of_replica(self, knobs: Knobs, plan: Plan) -> Rates:
        session, requests = session_of(knobs), requests_of(knobs)
        engine = self.costs.target.engine(session)
        n_sequences = np.array([knobs.batch_size], dtype=np.float64)
        return rates_of(self._times(knobs, plan), n_sequences, requests, engine, session.max_batched_tokens)

    def _times(self, knobs: Knobs, plan: Plan) -> StageSteps:
        """The times of the stages of a plan, each on a GPU of its kind."""
        kinds: dict[str, Device] = {device.name: device for device in self.costs.setting.cluster.devices}
        default = self.costs.setting.cluster.devices[0]
        decode, prompt = [], []
        for stage in plan.stages:
            costs, column = self.costs.row(kinds.get(stage.device_kind, default), knobs)
            decode.append(costs.decode_s[slice(*stage.layers), column].sum())
            prompt.append(costs.prompt_s[slice(*stage.layers), column].sum())
        send = [stage.send_cycles / CLOCK_HZ for stage in plan.stages]
        return StageSteps(*(np.array(column, dtype=np.float64)[:, None] for column in (decode, prompt, send)))


class GenerationFlow:
    """The `ModeFlow` of generation. Nothing is measured: what an engine would give is modelled."""

    def __init__(self, plans: BestPlans, stages: TokenStages) -> None:
        self._plans, self._stages = plans, stages

    def forecast(self, knobs: Knobs, *, with_timeline: bool = False) -> Trial:
        """See `ModeFlow`."""
        return self._trial(knobs, Origin.ESTIMATED)

    def upper_bound(self, knobs: Knobs) -> Trial | None:
        """See `ModeFlow`; there is none."""
        return None

    def step_bounds(self, knobs: Knobs) -> StepBounds | None:
        """See `ModeFlow`; there are none."""
        return None

    def is_bounded_by(self, knobs: Knobs, worth: float) -> bool:
        """See `ModeFlow`; nothing is known before the forecast."""
        return False

    def evaluate(self, knobs: Knobs) -> Trial:
        """See `ModeFlow`; the same numbers as the forecast."""
        return self._trial(knobs, Origin.MODELLED)

    def _trial(self, knobs: Knobs, origin: Origin) -> Trial:
        setting = self._stages.costs.setting
        device_bytes = setting.device_bytes(knobs) // knobs.session.cores_per_device
        try:
            plan = self._plans.best(knobs)
            rates = self._stages.rates(knobs, plan)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, device_bytes)
        n_tokens = requests_of(knobs).output_tokens
        trial = measured_trial(
            knobs,
            plan,
            plan,
            samples_per_s=rates.tokens_per_s,
            estimated_samples_per_s=rates.tokens_per_s,
            latency_s=rates.ttft_s + (n_tokens - 1) * rates.tpot_s,
            device_bytes=device_bytes,
            origin=origin,
        )
        return apply_constraints(replace(trial, **rates._asdict()), setting.constraints)
