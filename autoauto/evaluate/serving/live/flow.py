"""A decoder that servers of this machine serve, measured: `LiveFlow`.

forecast   loads of 1 client and of all on a reference: CPU time of a step = fixed + n x each
evaluate   servers beside the reference, loads in turn (`References`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from typing_extensions import override

from autoauto.evaluate.modes.mode import ModeFlow
from autoauto.evaluate.serving.costs import requests_of
from autoauto.evaluate.serving.live.references import References
from autoauto.evaluate.serving.live.server_group import shared_out
from autoauto.evaluate.setting import Setting, trial_on
from autoauto.profile.profiler import Progress
from autoauto.records.errors import DoesNotFit, Infeasible, OutOfMemory, Unsupported
from autoauto.records.hardware import Period
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import Origin, RunsServers
from autoauto.records.units import format_bytes
from autoauto.schedule.times import timeline_of
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result, TokenResult
from autoauto.space.trial import Status, Trial, unfit_trial


class LiveFlow(ModeFlow):
    """The `ModeFlow` of generation on servers of this machine.

    The same number of clients sends requests to all configurations, whatever their slots.
    """

    def __init__(self, setting: Setting, target: RunsServers) -> None:
        self.setting, self._target = setting, target
        self._references = References(target, self._needed_bytes, self._machine_bytes)

    def __reduce__(self) -> tuple[type[LiveFlow], tuple[Setting, RunsServers]]:
        """Another process starts servers of its own."""
        return LiveFlow, (self.setting, self._target)

    @override
    def forecast(self, knobs: Knobs, *, with_timeline: bool = False) -> Trial:
        """It has no timeline. The first of a scale puts loads on the reference."""
        try:
            self._check(knobs)
            fit = self._references.of(knobs).fit
        except DoesNotFit as failure:
            return self._unfit(knobs, failure)
        n_in_flight = self._references.n_in_flight(knobs)
        rate, output_tokens = fit.tokens_per_s(n_in_flight), requests_of(knobs).output_tokens
        tpot_s = knobs.replicas * n_in_flight / rate
        n_waves = ceil(self._target.n_clients / (knobs.replicas * n_in_flight))
        ttft_s = tpot_s * (1 + output_tokens * (n_waves - 1) / 2)  # a request waits for half of the waves in the mean
        latency_s = ttft_s + (output_tokens - 1) * tpot_s
        return self._trial(knobs, TokenResult(rate, tpot_s, ttft_s), latency_s, Origin.ESTIMATED)

    @override
    def continue_from(self, trials: Sequence[Trial]) -> None:
        """A known trial is the reference, so that rates have its scale; faults are known."""
        for trial in sorted(trials, key=lambda trial: trial.tokens.tokens_per_s):
            if trial.runs:
                self._references.continue_from(trial)
            elif trial.status is Status.OUT_OF_MEMORY:
                self._references.faults.add(trial.knobs, OutOfMemory(trial.reason, trial.excess_bytes))

    @override
    def best_plan(self, knobs: Knobs, progress: Progress | None = None) -> Plan:
        """All layers in one stage; raises Infeasible if it does not run, by the forecast."""
        trial = self.forecast(knobs)
        if not isinstance(trial.measured, Plan):
            raise Infeasible(trial.reason, trial.excess_bytes)
        return trial.measured

    @override
    def gap(self, knobs: Knobs) -> float:
        """There is one plan."""
        return 0.0

    @override
    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        return timeline_of(knobs.step, plan)

    @override
    def evaluate(self, knobs: Knobs) -> Trial:
        """The servers of a configuration are compared with the reference, and ended."""
        plan = None
        try:
            self._check(knobs)
            self._references.of(knobs)
            plan = self._plan(knobs, 0)
            rate, best = self._references.measured(knobs)
        except OutOfMemory as failure:
            return self._unfit(knobs, failure, plan)
        except DoesNotFit as failure:
            return self._unfit(knobs, failure)
        tokens = TokenResult(rate, best.tpot_s, best.ttft_s)
        return self._trial(knobs, tokens, best.latency_s, Origin.MEASURED)

    def _check(self, knobs: Knobs) -> None:
        """Refuse what cannot run, or will fail as others did."""
        requests, longest = requests_of(knobs), self._target.decoder.checkpoint.max_length
        n_clients, n_own = self._target.n_clients, shared_out(self._target.n_clients, knobs.replicas, 0)
        if knobs.n_ipu > 1:
            raise Unsupported("a server is no pipeline of several devices, got several; try --n-ipu 1 and --replicas")
        if knobs.replicas > n_clients:
            raise Unsupported(f"every server needs a client, got {knobs.replicas} for {n_clients}; try more --clients")
        if n_own <= knobs.batch_size < n_clients:  # as fast here, and slower where requests are shared out unevenly
            raise Unsupported(
                f"each of {knobs.replicas} servers has {n_own} of {n_clients} clients, and may have all of them, got "
                f"{knobs.batch_size} slots; try --batch-size {n_clients}, or fewer slots than {n_own}"
            )
        if longest is not None and requests.max_length >= longest:
            raise Unsupported(
                f"a prompt with its answer must be shorter than the {longest:,} tokens of the model's context, got "
                f"{requests.max_length:,}; try fewer --input-tokens or --output-tokens"
            )
        excess_bytes = self._needed_bytes(knobs) - self._machine_bytes
        if excess_bytes > 0:
            raise Infeasible(f"the server needs {format_bytes(excess_bytes)} more than this machine has", excess_bytes)
        self._references.faults.check(knobs)

    def _memory(self, knobs: Knobs) -> dict[str, int]:
        return self._target.memory_bytes(knobs.session, knobs.batch_size, requests_of(knobs))

    def _needed_bytes(self, knobs: Knobs) -> int:
        return knobs.replicas * sum(self._memory(knobs).values())

    @property
    def _machine_bytes(self) -> int:
        return int(sum(device.memory_bytes for device in self.setting.cluster.devices))

    def _plan(self, knobs: Knobs, step_s: float) -> Plan:
        """All layers in one stage, whose period is a step that gives a token of every slot."""
        layers = LayerRange(0, len(self.setting.graph.layers))
        cycles = round(step_s * self.setting.cluster.clock_hz)
        limit_bytes = self._machine_bytes // knobs.replicas
        return Plan((Stage(layers, 0, cycles, 0, 0, 0, self._memory(knobs), limit_bytes),), Period.SERIAL)

    def _trial(self, knobs: Knobs, tokens: TokenResult, latency_s: float, origin: Origin) -> Trial:
        plan = self._plan(knobs, knobs.replicas * knobs.batch_size / tokens.tokens_per_s)
        cache_bytes = self._memory(knobs)["KV cache"]
        estimated_per_s = tokens.tokens_per_s
        if origin is not Origin.ESTIMATED:
            fit = self._references.of(knobs).fit
            estimated_per_s = fit.tokens_per_s(self._references.n_in_flight(knobs))
        result = Result(
            samples_per_s=tokens.tokens_per_s,
            estimated_samples_per_s=estimated_per_s,
            latency_s=latency_s,
            of_mode=replace(tokens, kv_cache_bytes=cache_bytes),
        )
        return trial_on(self.setting, knobs, plan, plan, result, origin)

    def _unfit(self, knobs: Knobs, failure: DoesNotFit, plan: Plan | None = None) -> Trial:
        return unfit_trial(knobs, failure, self._machine_bytes // knobs.replicas, plan)
