"""The best configurations of a modelled search, started on real engines and measured: `measure_engines`.

    search ──▶ forecasts ──▶ EngineLoop ── knobs ──▶ EngineRuns ── engine, load ──▶ measured, or why not
                                 ▲                                                     │
                                 └────────────── ratios, rules of failures ◀───────────┤
                                                          study: a row, and a trial ◀──┘

What was measured is stored at once; a later search of the study begins with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from math import isnan
from secrets import randbelow
from time import monotonic

from optuna import Study

from autoauto.evaluate.engine_runs import EngineRun, EngineRuns
from autoauto.evaluate.flow import Flow
from autoauto.launch.faults import EngineFault, FaultKind
from autoauto.launch.launcher import launcher_of
from autoauto.processes.interruption import interrupted_when
from autoauto.records.errors import BadInput, MeasurementsFailed
from autoauto.records.target import Origin
from autoauto.records.units import format_number
from autoauto.space.engine_measurements import EngineMeasurements, EngineRow
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objectives, objective_tuple
from autoauto.space.requests.request import MeasureConfig
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import ENGINE_MEASUREMENTS
from autoauto.space.trial import Status, Trial
from autoauto.study.analysis.best import measurements_of
from autoauto.study.methods.engines.engine_loop import EngineLoop, engine_of, takes_as_much
from autoauto.study.methods.engines.measure_next import MIN_GAIN
from autoauto.study.store.database import set_attribute
from autoauto.study.store.trials import add_trial, ranges_of, stored_trials, to_optuna

NOISE = 0.01
"""Share of a throughput that is noise, where the search does not say it; loads go on until they are as exact."""
MAX_TURNS, N_REPEATS = 3, 2
"""Loads of a configuration, and configurations that are started again after the last new one."""
MIN_FAILED = 3
"""So many may fail, and as many as may be measured."""


@dataclass(frozen=True, slots=True)
class Measuring:
    """A task to measure configurations on engines, and its search.

    Attributes:
        noise: of the search; 0 where it says none.
        model: as it was named.
        say: is given a line about what happens.
        is_stopped: whether the search is to end at once; None where only a signal says so.
    """

    flow: Flow
    study: Study
    space: SearchSpace
    objectives: Objectives
    noise: float
    config: MeasureConfig
    model: str
    is_over: Callable[[], bool]
    say: Callable[[str], None]
    is_stopped: Callable[[], bool] | None


def measure_engines(of: Measuring) -> EngineMeasurements:
    """Measure the best configurations, until enough are or nothing else is likely better.

    Raises:
        BadInput: engines cannot be started so.
        MeasurementsFailed: no engine came up; the message has the last reason.
        KeyboardInterrupt: the search was interrupted; what was measured before is stored.
    """
    session = _Session(of)
    session.run()
    measured = session.measurements
    if not measured.n_measured:
        reason = measured.rows[-1].reason if measured.rows else measured.stopped
        raise MeasurementsFailed(
            f"no configuration could be measured: {reason}; without --measure the answer is modelled"
        )
    return measured


def measure_also(of: Measuring, wanted: Sequence[Knobs]) -> None:
    """Measure configurations of the space that somebody wants to know of, where they were not; raises as above.

    The answer may then be one of them.
    """
    _Session(of, keeps_all=True).run_given(wanted)


class _Session:
    """One search's measurements."""

    def __init__(self, of: Measuring, *, keeps_all: bool = False) -> None:
        self._of, self._noise = of, of.noise or NOISE
        launcher = launcher_of(of.config.launch)
        self._runs = EngineRuns(of.flow, of.model, launcher, of.config.limit_s, 2 * self._noise)
        before = measurements_of(of.study) or EngineMeasurements()
        rows = []
        for row in before.rows:
            if keeps_all or row.is_measured or row.refused or row.status is Status.OUT_OF_MEMORY:
                rows.append(row)  # others, such as an engine that was not installed, are tried again
        self._rows = {row.knobs: row for row in rows}
        (self._objective,) = objective_tuple(of.objectives)
        forecasts = list(chain.from_iterable(map(of.flow.forecasts, of.space.cells)))
        constraints = of.flow.setting.constraints
        self._loop = EngineLoop(forecasts, self._objective, constraints, self._noise, list(self._rows))
        if not self._loop.trials:
            raise BadInput("--measure needs a configuration that fits by the forecast, got none; try more GPUs")
        self._n_failed = 0
        self._rules = list(before.rules) if keeps_all else []
        self._refused: set[tuple[str, str]] = set()
        self.measurements = replace(
            before, where=self._runs.where, noise=self._noise, n_most=of.config.n_most, rows=tuple(rows)
        )
        for row in rows:
            if self._loop.has(row.knobs):
                self._loop.add(row)
            self._note_rule(row)

    def run(self) -> None:
        while not (stopped := self._why_over()):
            knobs = self._loop.candidate()
            if knobs is None or knobs in self._measured:
                stopped = f"nothing else is likely better by {MIN_GAIN:.0%}"
                break
            self._measure(knobs)
        for _ in range(N_REPEATS):
            again = self._loop.finalist()
            if again is None or len(self._rows[again].turns) >= MAX_TURNS or self._of.is_over():
                break
            self._measure(again)
        self._store(stopped)

    def run_given(self, wanted: Sequence[Knobs]) -> None:
        """Measure given configurations; why measuring ended stays as it was."""
        stopped = self.measurements.stopped
        for knobs in wanted:
            if self._loop.has(knobs) and knobs not in self._rows and not self._of.is_over():
                self._measure(knobs)
        self._store(stopped)

    def _why_over(self) -> str:
        n_most = self._of.config.n_most
        if len(self._measured) >= n_most:
            return f"{n_most} were measured, as many as asked for"
        if self._n_failed >= max(n_most, MIN_FAILED):
            return f"{self._n_failed} could not be measured"
        return "the time budget ended" if self._of.is_over() else ""

    @property
    def _measured(self) -> set[Knobs]:
        return {knobs for knobs, row in self._rows.items() if row.is_measured and self._loop.has(knobs)}

    def _measure(self, knobs: Knobs) -> None:
        try:
            run = self._runs.run_of(knobs)
        except BadInput as reason:
            self._rules.append(str(reason))
            self._loop.rule_out(lambda other: other == knobs)
            return
        if any(engine == run.engine.name and option in run.options for engine, option in self._refused):
            self._loop.rule_out(lambda other: other == knobs)
            return
        before = self._rows.get(knobs)
        now = datetime.now(UTC).isoformat()
        row = before or EngineRow(knobs, run.commands, run.n_clients, run.forecast, Status.UNSUPPORTED, started=now)
        n = len(row.turns)
        if n:
            self._of.say(f"measuring {_shown(knobs)} again")
        else:
            self._of.say(f"measuring {_shown(knobs)}, forecast {format_number(run.modelled.samples_per_s)} tokens/s")
        began_s = monotonic()
        fault: EngineFault | None = None
        try:
            with interrupted_when(self._of.is_stopped):
                turn = self._runs.measure(run, seed=randbelow(2**31))
            row = replace(row, turns=(*row.turns, turn))
        except EngineFault as raised:
            fault = raised
        except KeyboardInterrupt:
            self._store("the search was stopped")
            raise
        row = replace(row, duration_s=row.duration_s + monotonic() - began_s)
        if fault is None:
            row = self._with_trial(row, run)
            self._rows[knobs] = row
            self._loop.add(row, n)
            violated = f"; {row.reason}" if row.reason else ""
            self._of.say(f"measured {format_number(row.turns[-1].tokens_per_s)} tokens/s{violated}")
        elif row.is_measured:  # it ran before
            self._rows[knobs] = row
            self._n_failed += 1
        else:
            self._fail(row, run, fault)
        self._store("")

    def _with_trial(self, row: EngineRow, run: EngineRun) -> EngineRow:
        """A row with its status by the means of its turns, and a trial beside the modelled one."""
        tpot_s = 0.0 if isnan(row.tpot_s) else row.tpot_s
        trial = self._runs.trial(run, row.tokens_per_s, tpot_s, row.ttft_s, row.latency_s)
        row = replace(row, status=trial.status, reason=trial.reason)
        return replace(row, trial=self._add(trial, run.modelled, row))

    def _fail(self, row: EngineRow, run: EngineRun, fault: EngineFault) -> None:
        status = Status.OUT_OF_MEMORY if fault.kind is FaultKind.MEMORY else Status.UNSUPPORTED
        row = replace(row, status=status, reason=fault.reason, log=fault.log, refused=fault.option)
        trial = Trial(row.knobs, status, fault.reason, run.modelled.estimate)
        row = replace(row, trial=self._add(trial, run.modelled, row))
        self._rows[row.knobs] = row
        self._n_failed += 1
        self._of.say(f"not measured: {fault.reason}")
        if fault.kind is FaultKind.MISSING:
            engine = engine_of(row.knobs)
            self._loop.rule_out(lambda other: engine_of(other) == engine)
            self._rules.append(f"{engine} cannot be started: {fault.reason}")
        self._note_rule(row)

    def _note_rule(self, row: EngineRow) -> None:
        if row.is_measured:
            return
        self._loop.rule_out(lambda other: other == row.knobs)
        engine = engine_of(row.knobs)
        if row.status is Status.OUT_OF_MEMORY:
            n = self._loop.rule_out(lambda other: takes_as_much(other, row.knobs))
            self._rules.append(
                f"{_shown(row.knobs)} ran out of memory: {n} with the same groups, stages and formats and as many "
                "sequences or more are not tried"
            )
        elif row.refused:
            self._refused.add((engine, row.refused))
            self._rules.append(f"{engine} refuses {row.refused}: configurations that need it are not tried")

    def _add(self, trial: Trial, modelled: Trial, row: EngineRow) -> int:
        """Store a measured trial behind the modelled one, which the search may not have tried; returns its number."""
        of, ranges = self._of, ranges_of(self._of.space, trial.knobs)
        if trial.knobs not in stored_trials(of.study).finished:
            add_trial(of.study, to_optuna(modelled, ranges, of.objectives))
        ended = datetime.now(UTC)
        timed = replace(trial, started=datetime.fromisoformat(row.started), ended=ended)
        return add_trial(of.study, to_optuna(timed, ranges, of.objectives, Origin.MEASURED))

    def _store(self, stopped: str) -> None:
        rows = tuple(self._rows.values())
        numbers = {row.knobs: number for number, row in enumerate(rows)}
        answer = self._loop.answer()
        self.measurements = replace(
            self.measurements,
            rows=rows,
            answer=None if answer is None else numbers[answer],
            ties=tuple(numbers[knobs] for knobs in self._loop.ties()),
            ratios=self._loop.ratios(),
            stopped=stopped,
            rules=tuple(dict.fromkeys(self._rules)),
        )
        set_attribute(self._of.study, ENGINE_MEASUREMENTS, self.measurements.text)


def _shown(knobs: Knobs) -> str:
    values = knobs.values
    return (
        f"{engine_of(knobs)}, {knobs.replicas} x {knobs.n_ipu} stages of {values['tensor_parallel']} GPUs, "
        f"batch {knobs.batch_size}"
    )
