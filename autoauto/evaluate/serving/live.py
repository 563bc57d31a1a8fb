"""A decoder that a server of this machine serves, measured: `LiveFlow`.

    forecast   a server of all slots, loads of 1 client and of all: CPU time of a step = fixed + n x each
    evaluate   servers side by side, loads in turn:

        reference   ▇▇      ▇▇      ▇▇        as many threads, a slot for every client
        candidate       ▇▇      ▇▇      ▇▇    until the two least CPU times a token of each agree

Other programs make wall times longer without bound, and CPU times by up to 40 % for seconds. So a configuration is
compared with the reference by the least CPU time a token of each, and by how many cores it uses only where other
programs leave all loads alike shares. References of unlike threads are compared by wall time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import NamedTuple
from weakref import finalize

from autoauto.evaluate.serving.costs import requests_of
from autoauto.evaluate.setting import Setting
from autoauto.load.measure import measure_tokens
from autoauto.load.tokens import TokenLoad, TokenMeasurement
from autoauto.records.costs.decoder import Workload
from autoauto.records.costs.options import Session
from autoauto.records.errors import BadInput, DoesNotFit, Infeasible, MeasurementsFailed, OutOfMemory, Unsupported
from autoauto.records.hardware import Period
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.target import LiveServer, Origin, RunsServers
from autoauto.records.units import format_bytes
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result, TokenResult
from autoauto.space.trial import Trial, measured_trial, unfit_trial

MIN_TURNS, MAX_TURNS = 3, 8
AGREEMENT = 0.01
"""The loads of a server end when its two least CPU times a token differ by no more than this share."""
TURNS_S = 30.0
"""After so long no further turn begins, if there were two."""
SHARE_SPREAD = 0.05
"""A machine is quiet where the loads of a server get shares of its cores that differ by no more."""
HOPELESS = 0.5
"""Threads with which one client gets less than this share of what it gets with others are not tried further."""
N_SINGLE = 3
"""Loads of one client to which forecasts are fitted."""
_EXTRA = {"cache_prompt": False}
"""Every prompt is computed whole, though the server keeps prompts."""


class LoadReading(NamedTuple):
    """What one load gave.

    Attributes:
        cpu_s: of the server, for a token of an answer.
        cores: that the server had in the mean.
        measured: what the clients saw.
    """

    cpu_s: float
    cores: float
    measured: TokenMeasurement

    @property
    def tokens_per_s(self) -> float:
        """Of answers, from the first request to the last answer."""
        return self.measured.n_tokens / self.measured.wall_s


@dataclass(slots=True)
class Readings:
    """The loads of one server.

    Attributes:
        readings: in their order.
    """

    readings: list[LoadReading] = field(default_factory=list)

    def add(self, reading: LoadReading) -> None:
        """One more."""
        self.readings.append(reading)

    @property
    def cpu_s(self) -> float:
        """The least CPU time a token."""
        return min(reading.cpu_s for reading in self.readings)

    @property
    def cores(self) -> float:
        """The most cores that it had."""
        return max(reading.cores for reading in self.readings)

    @property
    def best(self) -> LoadReading:
        """The least disturbed load."""
        return max(self.readings, key=lambda reading: reading.tokens_per_s)

    @property
    def is_enough(self) -> bool:
        """Whether the two least CPU times a token agree."""
        times = sorted(reading.cpu_s for reading in self.readings)
        return len(times) >= MIN_TURNS and times[1] <= times[0] * (1.0 + AGREEMENT)

    @property
    def is_undisturbed(self) -> bool:
        """Whether other programs left the server alike shares of the cores in all loads."""
        shares = [reading.cores for reading in self.readings]
        return len(shares) >= MIN_TURNS and min(shares) >= max(shares) * (1.0 - SHARE_SPREAD)


class StepFit(NamedTuple):
    """The CPU time of a step that gives a token of every sequence, its share of their prompts included.

    Attributes:
        fixed_s: of every step.
        each_s: of every sequence.
        cores: that the server has.
    """

    fixed_s: float
    each_s: float
    cores: float

    @staticmethod
    def of(single_s: float, all_s: float, n_sequences: int, cores: float) -> StepFit:
        """The fit to the CPU time a token of one sequence and of `n_sequences`.

        >>> StepFit.of(single_s=9.0, all_s=2.0, n_sequences=8, cores=1.0)
        StepFit(fixed_s=8.0, each_s=1.0, cores=1.0)
        """
        if n_sequences == 1:
            return StepFit(0.0, all_s, cores)
        fixed_s = max((single_s - all_s) / (1.0 - 1.0 / n_sequences), 0.0)
        return StepFit(fixed_s, max(single_s - fixed_s, 0.05 * all_s), cores)

    def tokens_per_s(self, n_sequences: int) -> float:
        """Of steps of so many sequences."""
        return self.cores * n_sequences / (self.fixed_s + n_sequences * self.each_s)


@dataclass(slots=True)
class _Reference:
    """A server that stays up.

    Attributes:
        server: see `LiveServer`.
        session, n_slots: of it.
        readings: of its loads.
        tokens_per_s: as first measured, so that all that is compared with it has one scale.
        single_tokens_per_s: of one client.
        fit: of its steps.
    """

    server: LiveServer
    session: Session
    n_slots: int
    readings: Readings
    tokens_per_s: float
    single_tokens_per_s: float
    fit: StepFit


class LiveFlow:
    """The `ModeFlow` of generation on servers of this machine.

    The same number of clients sends requests to all servers, whatever their slots. There is a reference for every
    `Session.common`, so for every number of threads. The references run until the flow is no longer used.

    Args:
        setting: of the search.
        target: starts servers.
    """

    def __init__(self, setting: Setting, target: RunsServers) -> None:
        self.setting, self._target = setting, target
        self._references: dict[tuple[Session, Workload], _Reference | DoesNotFit] = {}
        self._known: dict[tuple[Session, Workload], Trial] = {}
        self._open, self._n_loads = ExitStack(), 0
        finalize(self, self._open.close)

    def __reduce__(self) -> tuple[type[LiveFlow], tuple[Setting, RunsServers]]:
        """Another process starts servers of its own."""
        return LiveFlow, (self.setting, self._target)

    def forecast(self, knobs: Knobs, *, with_timeline: bool = False) -> Trial:
        """Implements `ModeFlow`; it has no timeline. The first of a number of threads puts loads on the reference."""
        try:
            self._check(knobs)
            fit = self._reference(knobs).fit
        except DoesNotFit as failure:
            return self._unfit(knobs, failure)
        rate = fit.tokens_per_s(min(knobs.batch_size, self._target.n_clients))
        tpot_s = self._target.n_clients / rate
        return self._trial(knobs, TokenResult(rate, tpot_s, tpot_s), tpot_s, Origin.ESTIMATED)

    def continue_from(self, trials: Sequence[Trial]) -> None:
        """Implements `Continues`: a server of a known trial is the reference, so that rates have the scale of that."""
        for trial in sorted(trials, key=lambda trial: trial.tokens.tokens_per_s):
            if trial.runs:
                self._known[trial.knobs.session.common, requests_of(trial.knobs)] = trial

    def fits(self, knobs: Knobs) -> bool:
        """Implements `ModeFlow`; the forecast tells."""
        return self.forecast(knobs).fits

    def evaluate(self, knobs: Knobs) -> Trial:
        """Implements `ModeFlow`; the server of a configuration is compared with the reference, and ended."""
        plan = None
        try:
            self._check(knobs)
            plan = self._plan(knobs, 0)
            rate, best = self._measured(knobs)
        except OutOfMemory as failure:
            return self._unfit(knobs, failure, plan)
        except DoesNotFit as failure:
            return self._unfit(knobs, failure)
        tokens = TokenResult(rate, best.tpot_s.mean, best.ttft_s.mean)
        return self._trial(knobs, tokens, best.latency_s.mean, Origin.MEASURED)

    def _check(self, knobs: Knobs) -> None:
        """Refuse what cannot run.

        Raises:
            Unsupported: there are several servers, or a request is longer than the model's sequences.
            Infeasible: the memory of the machine does not suffice.
        """
        requests, longest = requests_of(knobs), self._target.decoder.checkpoint.max_length
        if knobs.n_ipu * knobs.replicas > 1:
            raise Unsupported("one server takes the cores of this machine, got several; try --n-ipu 1 --replicas 1")
        if longest is not None and requests.max_length >= longest:
            raise Unsupported(
                f"a prompt with its answer must be shorter than the {longest:,} tokens of the model's context, got "
                f"{requests.max_length:,}; try fewer --input-tokens or --output-tokens"
            )
        excess_bytes = sum(self._memory(knobs).values()) - self._limit_bytes
        if excess_bytes > 0:
            raise Infeasible(f"the server needs {format_bytes(excess_bytes)} more than this machine has", excess_bytes)

    def _memory(self, knobs: Knobs) -> dict[str, int]:
        return self._target.memory_bytes(knobs.session, knobs.batch_size, requests_of(knobs))

    @property
    def _limit_bytes(self) -> int:
        return int(sum(device.memory_bytes for device in self.setting.cluster.devices))

    def _reference(self, knobs: Knobs) -> _Reference:
        """The server with which configurations of the same threads and requests are compared.

        Raises:
            OutOfMemory, Unsupported: none comes up, or its requests fail.
        """
        key = knobs.session.common, requests_of(knobs)
        if key not in self._references:
            try:
                self._references[key] = self._new_reference(*key)
            except DoesNotFit as failure:
                self._references[key] = failure
        reference = self._references[key]
        if isinstance(reference, DoesNotFit):
            raise reference
        return reference

    def _check_hopeful(self, session: Session, single: Readings) -> None:
        """Refuse threads that wait for each other, as on a busy machine: their loads would take minutes.

        Raises:
            Infeasible: one client gets much less than from other threads.
        """
        known = [each.single_tokens_per_s for each in self._references.values() if isinstance(each, _Reference)]
        most, own = max(known, default=0.0), single.best.tokens_per_s
        if own < HOPELESS * most:
            raise Infeasible(
                f"threads wait for each other on this machine: a server on {session.cores_per_device} cores gives one "
                f"client {own:.3g} tokens/s, with other threads {most:.3g}; try it on an idle machine",
                0,
            )

    def _new_reference(self, session: Session, requests: Workload) -> _Reference:
        """Start a server with a slot for every client, or with fewer where memory lacks, and measure it.

        Where a search continues it is the server of the best trial that is known.
        """
        n_slots, n_clients = self._target.n_clients, self._target.n_clients
        known = self._known.get((session, requests))
        if known is not None:
            session, n_slots = known.knobs.session, known.knobs.batch_size
        while True:
            try:
                server = self._open.enter_context(self._target.serve(session, n_slots, requests))
                break
            except OutOfMemory:
                if n_slots == 1:
                    raise
                n_slots //= 2
        single, readings = Readings(), Readings()
        single.add(self._load(server, requests, 1))
        self._check_hopeful(session, single)
        self._warm_up(server, requests)
        for _ in range(N_SINGLE):
            single.add(self._load(server, requests, 1))
        start_s = perf_counter()
        while _goes_on([readings], start_s):
            readings.add(self._load(server, requests, n_clients))
        n_sequences = min(n_slots, n_clients)
        fit = StepFit.of(single.cpu_s, readings.cpu_s, n_sequences, readings.cores)
        rate = readings.best.tokens_per_s if known is None else known.tokens.tokens_per_s
        fit = fit._replace(cores=fit.cores * rate / fit.tokens_per_s(n_sequences))  # so that it gives the rate
        return _Reference(server, session, n_slots, readings, rate, single.best.tokens_per_s, fit)

    def _measured(self, knobs: Knobs) -> tuple[float, TokenMeasurement]:
        """Tokens/s of a configuration, and what clients saw of its least disturbed load.

        Raises:
            OutOfMemory, Unsupported: it does not come up, or its requests fail.
        """
        requests, reference = requests_of(knobs), self._reference(knobs)
        if (knobs.session, knobs.batch_size) == (reference.session, reference.n_slots):
            return reference.tokens_per_s, reference.readings.best.measured
        with self._target.serve(knobs.session, knobs.batch_size, requests) as server:
            self._warm_up(server, requests)
            other, own, start_s = Readings(), Readings(), perf_counter()
            while _goes_on([other, own], start_s):
                other.add(self._load(reference.server, requests, self._target.n_clients))
                own.add(self._load(server, requests, self._target.n_clients))
        return reference.tokens_per_s * times_faster(own, other), own.best.measured

    def _warm_up(self, server: LiveServer, requests: Workload) -> None:
        """Requests of all clients with answers of two tokens: memory is touched, threads are there."""
        self._load(server, Workload(requests.input_tokens, 2), self._target.n_clients)

    def _load(self, server: LiveServer, requests: Workload, n_clients: int) -> LoadReading:
        """A request of every client.

        Raises:
            OutOfMemory, Unsupported: the server has ended, or refuses requests.
        """
        self._n_loads += 1  # other prompts than before: the server keeps those
        load = TokenLoad(
            n_clients=n_clients,
            input_tokens=requests.input_tokens,
            output_tokens=requests.output_tokens,
            vocabulary_size=self._target.decoder.vocabulary_size,
            n_requests=n_clients,
            n_warmup=0,
            seed=self._n_loads,
            extra=_EXTRA,
        )
        try:
            start_cpu_s, start_s = server.cpu_s, perf_counter()
            measured = measure_tokens(server.address, load)
            cpu_s, wall_s = server.cpu_s - start_cpu_s, perf_counter() - start_s
        except (MeasurementsFailed, BadInput, OSError) as error:
            raise (Unsupported(f"the server fails: {error}") if server.is_alive else server.failure()) from None
        if measured.n_failed:
            reason = next(iter(measured.notes), "without a reason")
            raise Unsupported(f"the server fails: {reason}") if server.is_alive else server.failure()
        return LoadReading(cpu_s / measured.n_tokens, cpu_s / wall_s, measured)

    def _plan(self, knobs: Knobs, step_s: float) -> Plan:
        """All layers in one stage, whose period is a step that gives a token of every slot."""
        layers = LayerRange(0, len(self.setting.graph.layers))
        cycles = round(step_s * self.setting.cluster.clock_hz)
        return Plan((Stage(layers, 0, cycles, 0, 0, 0, self._memory(knobs), self._limit_bytes),), Period.SERIAL)

    def _trial(self, knobs: Knobs, tokens: TokenResult, latency_s: float, origin: Origin) -> Trial:
        plan = self._plan(knobs, knobs.batch_size / tokens.tokens_per_s)
        cache_bytes = self._memory(knobs)["KV cache"]
        result = Result(
            samples_per_s=tokens.tokens_per_s,
            estimated_samples_per_s=self._estimated(knobs, tokens, origin),
            latency_s=latency_s,
            of_mode=replace(tokens, kv_cache_bytes=cache_bytes),
        )
        device, constraints = self.setting.device_of(knobs), self.setting.constraints
        return measured_trial(knobs, plan, plan, result, device=device, origin=origin, constraints=constraints)

    def _estimated(self, knobs: Knobs, tokens: TokenResult, origin: Origin) -> float:
        if origin is Origin.ESTIMATED:
            return tokens.tokens_per_s
        return self._reference(knobs).fit.tokens_per_s(min(knobs.batch_size, self._target.n_clients))

    def _unfit(self, knobs: Knobs, failure: DoesNotFit, plan: Plan | None = None) -> Trial:
        return unfit_trial(knobs, failure, self._limit_bytes, plan)


def _goes_on(servers: Sequence[Readings], start_s: float) -> bool:
    """Whether another turn begins."""
    n_turns = len(servers[0].readings)
    if n_turns < 2:
        return True
    is_over = n_turns >= MAX_TURNS or perf_counter() - start_s > TURNS_S
    return not is_over and not all(each.is_enough for each in servers)


def times_faster(own: Readings, other: Readings) -> float:
    """Tokens/s of a server as a multiple of those of another with as many threads, whose loads took turns with its.

    The work of a token is the ratio of the least CPU times. How well a server uses its threads shows only on a quiet
    machine.
    """
    work = other.cpu_s / own.cpu_s
    return work * own.cores / other.cores if own.is_undisturbed and other.is_undisturbed else work
