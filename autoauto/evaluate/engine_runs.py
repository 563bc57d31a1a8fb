"""Configurations on real engines: `EngineRuns` starts them, puts a load on, and reads what that measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path

from autoauto.engines.engine import Engine
from autoauto.engines.registry import engine_named
from autoauto.evaluate.export import deployment
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.serving.costs import requests_of
from autoauto.exporters.serving.launches import ServedProcess, processes
from autoauto.exporters.serving.replicas import gpu_session
from autoauto.launch.faults import EngineFault, FaultKind
from autoauto.launch.launcher import PORT_WORD, EngineLauncher, ReplicaStart, RunningEngines
from autoauto.load.measure import measure_tokens
from autoauto.load.tokens import TokenLoad, TokenMeasurement
from autoauto.records.errors import BadInput, MeasurementsFailed
from autoauto.records.target import Origin
from autoauto.space.engine_measurements import EngineForecast, Expected, ReplicaCommand
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result, TokenResult
from autoauto.space.trial import Status, Trial, apply_constraints
from autoauto.targets.gpu.target import GpuTarget

WAVES, MOST_WAVES = 4, 10
"""Requests of every client that are counted, at least and at most; forecasts are of ten."""
DEATH_S = 5.0
"""Until an engine has ended whose requests fail, if that is why."""
_PORT_OPTION = "--port"
_N_STARTS = 3
"""So often an engine is started whose port another program has taken meanwhile."""


@dataclass(frozen=True, slots=True)
class EngineRun:
    """A configuration as it is started.

    Attributes:
        modelled: its trial, with the plan.
        model: its name for the engine.
        starts: of its replicas.
        n_clients: requests in flight over all replicas.
    """

    modelled: Trial
    engine: Engine
    model: str
    starts: tuple[ReplicaStart, ...]
    n_clients: int

    @property
    def commands(self) -> tuple[ReplicaCommand, ...]:
        """Commands of the replicas, in the form in which they are stored."""
        return tuple(
            ReplicaCommand(each.command.words, each.command.environment, each.machine, each.gpus, each.command.files)
            for each in self.starts
        )

    @property
    def options(self) -> frozenset[str]:
        """The options that the engine is given."""
        return frozenset(word for each in self.starts for word in each.command.words if word.startswith("--"))

    @property
    def forecast(self) -> EngineForecast:
        """The forecast of the configuration."""
        tokens = self.modelled.tokens
        tpot = _expected(tokens.tpot_s, tokens.tpot_low_s, tokens.tpot_high_s)
        ttft = _expected(tokens.ttft_s, tokens.ttft_low_s, tokens.ttft_high_s)
        slowest = tpot if tokens.tpot_s else ttft
        # Throughput falls as the time between tokens grows: its low end is that of the longest time.
        rate = tokens.tokens_per_s
        low = rate * slowest.middle / slowest.high if slowest.high else rate
        high = rate * slowest.middle / slowest.low if slowest.low else rate
        return EngineForecast(Expected(rate, low, high), tpot, ttft, self.modelled.latency_s)


def _expected(middle: float, low: float | None, high: float | None) -> Expected:
    return Expected(middle, middle if low is None else low, middle if high is None else high)


class EngineRuns:
    """Starts and measures configurations of a flow.

    Args:
        flow: of a decoder that engines serve.
        model: as it was named: on Hugging Face, or a path.
        launcher: starts engines.
        limit_s: until an engine must answer.
        half_width: relative, of the 95 % confidence interval of the throughput at which a load may stop.
    """

    def __init__(self, flow: Flow, model: str, launcher: EngineLauncher, limit_s: float, half_width: float) -> None:
        self._flow, self._model, self._launcher = flow, model, launcher
        self._limit_s, self._half_width = limit_s, half_width
        self.where = launcher.where
        assert isinstance(flow.target, GpuTarget)
        self._target = flow.target

    def run_of(self, knobs: Knobs) -> EngineRun:
        """The commands that start a configuration, and its forecast. Raises BadInput if it cannot be started here."""
        modelled = self._flow.evaluate(knobs)
        if not modelled.runs:
            raise BadInput(modelled.reason)
        made = deployment(self._flow, self._model, modelled)
        engine = engine_named(gpu_session(made).engine)
        every = processes(made, engine)
        self._check(every)
        starts = tuple(_start(each, engine) for each in every)
        n_clients = knobs.batch_size * knobs.n_ipu * knobs.replicas
        return EngineRun(modelled, engine, every[0].launch.model, starts, n_clients)

    def _check(self, every: Sequence[ServedProcess]) -> None:
        if any(each.launch.pool for each in every):
            raise BadInput("two pools and their front are started by hand, got some; try `autoauto export`")
        if not all(each.is_whole for each in every):
            raise BadInput("a replica on several machines is started by hand, got one; try `autoauto export`")
        n_machines, n = self._launcher.n_machines, 1 + max(each.part.machine for each in every)
        if n_machines is not None and n > n_machines:
            raise BadInput(f"{self.where} starts engines on {n_machines} of {n} machines; try --launch ssh:HOST1,HOST2")

    def measure(self, run: EngineRun, seed: int) -> TokenMeasurement:
        """Start a configuration, measure it, and end it; a `seed` of prompts that a server that goes on has not had.

        Raises EngineFault if it does not come up, dies, or answers wrongly.
        """
        for number in range(_N_STARTS):
            try:
                with self._launcher.start(run.starts, run.engine.launcher.ready_path, self._limit_s) as engines:
                    return self._measured(run, engines, seed)
            except EngineFault as fault:
                if fault.kind is not FaultKind.PORT or number == _N_STARTS - 1:
                    raise
        raise AssertionError  # the last start returns or raises

    def _measured(self, run: EngineRun, engines: RunningEngines, seed: int) -> TokenMeasurement:
        requests = requests_of(run.modelled.knobs)
        n_cached = round(self._target.cached_share * requests.input_tokens)
        load = TokenLoad(
            n_clients=run.n_clients,
            input_tokens=requests.input_tokens,
            output_tokens=requests.output_tokens,
            vocabulary_size=self._target.decoder.vocabulary_size,
            n_requests=WAVES * run.n_clients,
            seed=seed,
            half_width=self._half_width,
            max_requests=MOST_WAVES * run.n_clients,
            shared_prefix_tokens=min(n_cached, requests.input_tokens - 1),
        )
        try:
            measured = measure_tokens(engines.urls, load, run.model)
        except (BadInput, MeasurementsFailed) as error:
            raise engines.fault(DEATH_S) or EngineFault(FaultKind.WRONG, str(error), engines.log()) from None
        if measured.n_failed:
            reason = f"{measured.n_failed} of {measured.n_failed + measured.n_requests} requests failed"
            note = next((note for note in measured.notes if "failed" in note), "")
            raise engines.fault(DEATH_S) or EngineFault(FaultKind.WRONG, f"{reason}: {note}", engines.log())
        if measured.n_tokens != measured.n_requests * requests.output_tokens:
            mean = measured.n_tokens / measured.n_requests
            reason = f"answers have {mean:g} tokens in the mean, asked were {requests.output_tokens}"
            raise EngineFault(FaultKind.WRONG, reason, engines.log())
        if requests.output_tokens > 1 and isnan(measured.tpot_s.mean):
            raise EngineFault(FaultKind.WRONG, "answers come in one event each, so have no TPOT", engines.log())
        return measured

    def trial(self, run: EngineRun, tokens_per_s: float, tpot_s: float, ttft_s: float, latency_s: float) -> Trial:
        """The measured trial of a configuration, by means over its loads; its stages and memory are those modelled."""
        modelled = run.modelled
        tokens = TokenResult(tokens_per_s, tpot_s, ttft_s, kv_cache_bytes=modelled.tokens.kv_cache_bytes)
        result = replace(
            Result(tokens_per_s, modelled.samples_per_s, latency_s, of_mode=tokens),
            compute_cycles=modelled.result.compute_cycles,
            transfer_cycles=modelled.result.transfer_cycles,
            devices=modelled.result.devices,
        )
        plain = Trial(
            modelled.knobs,
            status=Status.OK,
            estimate=modelled.estimate,
            measured=modelled.measured,
            result=result,
            origin=Origin.MEASURED,
        )
        return apply_constraints(plain, self._flow.setting.constraints)


def _start(process: ServedProcess, engine: Engine) -> ReplicaStart:
    command = process.command(engine)
    words = list(command.words)
    words[words.index(_PORT_OPTION) + 1] = PORT_WORD  # chosen where the engine is started
    folder = process.launch.model if Path(process.launch.model).is_absolute() else ""
    own = command._replace(words=tuple(words))
    return ReplicaStart(own, process.part.machine, process.part.gpus, engine.launcher.image, folder)
