"""Configurations of serving engines that were started and measured: `EngineMeasurements`, an `EngineRow` each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf, isfinite, nan
from statistics import fmean
from typing import Any, NamedTuple

from autoauto.load.tokens import TokenMeasurement
from autoauto.records.files.fields import stored_form
from autoauto.records.files.json import from_json, from_plain, to_json, to_plain
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Status

MEASUREMENTS_SCHEMA = 2
_TIMES = ("ttft_s", "tpot_s", "itl_s", "latency_s")
"""The percentiles of a measurement, which may be no numbers."""


class Expected(NamedTuple):
    """A number that was forecast."""

    middle: float
    low: float  # with `high` the interval of our error, in which 80 % of measured rows lie
    high: float


class EngineForecast(NamedTuple):
    """The forecast of a configuration before anything was measured."""

    tokens_per_s: Expected  # of answers of the whole cluster
    tpot_s: Expected  # between two tokens of an answer
    ttft_s: Expected  # from a request to the first token of its answer
    latency_s: float  # from a request to the last token of its answer


class ReplicaCommand(NamedTuple):
    """The command that starts a replica of an engine.

    Attributes:
        machine: where it is started, counted over the cluster.
        gpus: of the machine, in the order of the stages.
        files: by name, in the folder where it starts.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]
    machine: int
    gpus: tuple[int, ...]
    files: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class EngineRow:
    """A configuration that was started, and what came of it.

    Attributes:
        n_clients: requests in flight over all replicas.
        status: OK, or CONSTRAINED where a bound does not hold; OUT_OF_MEMORY, or UNSUPPORTED where it was not measured.
        reason: why it was not measured, by the engine's own log where it says so, or which bound does not hold.
        log: the last lines of the engine that failed.
        turns: what the loads measured, one after the other; () where it was not measured.
        refused: the option that the engine refuses; "" where that is not why it failed.
        started: when it was first started, in UTC, as ISO 8601 has it.
        duration_s: of all its starts and loads.
        trial: the number of its trial in the study; -1 where it has none.
    """

    knobs: Knobs
    commands: tuple[ReplicaCommand, ...]
    n_clients: int
    forecast: EngineForecast
    status: Status
    reason: str = ""
    log: tuple[str, ...] = ()
    turns: tuple[TokenMeasurement, ...] = ()
    refused: str = ""
    started: str = ""
    duration_s: float = 0.0
    trial: int = -1

    @property
    def is_measured(self) -> bool:
        """True if the engine answered a load."""
        return bool(self.turns)

    @property
    def tokens_per_s(self) -> float:
        """The mean over turns; NaN where it was not measured."""
        return _mean([turn.tokens_per_s for turn in self.turns])

    @property
    def tpot_s(self) -> float:
        """The mean over requests and turns; NaN where it was not measured."""
        return _mean([turn.tpot_s.mean for turn in self.turns])

    @property
    def ttft_s(self) -> float:
        """The mean over requests and turns; NaN where it was not measured."""
        return _mean([turn.ttft_s.mean for turn in self.turns])

    @property
    def latency_s(self) -> float:
        """The mean over requests and turns, of a request; NaN where it was not measured."""
        return _mean([turn.latency_s.mean for turn in self.turns])

    @property
    def time_ratio(self) -> float:
        """Measured over forecast time of a token: forecast / measured tokens/s; NaN where it was not measured."""
        return self.forecast.tokens_per_s.middle / self.tokens_per_s if self.turns else nan


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else nan


class FittedRatio(NamedTuple):
    """The expected ratio of measured to forecast times, for configurations of an engine that were not measured.

    Attributes:
        ratio: measured over forecast time that is expected of a configuration, the mean of candidates.
        low, high: the ends of the interval in which it lies with a probability of 80 %.
    """

    engine: str
    n_measured: int
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class EngineMeasurements:
    """All that was measured on engines for a study.

    Attributes:
        rows: in the order in which they were first started.
        answer: the row of the best; None while none is known to keep the bounds.
        ties: rows that may well be as good as the answer: they agree within noise.
        ratios: what measurements say of others, an engine each.
        where: how and where engines were started, for example "local" or "ssh:node1".
        stopped: why no further one was measured, as the end of a sentence.
        n_most: configurations that were to be measured at most.
        rules: that failures taught, a sentence each.
    """

    rows: tuple[EngineRow, ...] = ()
    answer: int | None = None
    ties: tuple[int, ...] = ()
    ratios: tuple[FittedRatio, ...] = ()
    where: str = ""
    stopped: str = ""
    noise: float = 0.0  # the share of a throughput that is noise
    n_most: int = 0
    rules: tuple[str, ...] = ()

    @property
    def best(self) -> EngineRow | None:
        """The row of the answer."""
        return None if self.answer is None else self.rows[self.answer]

    @property
    def n_measured(self) -> int:
        """Configurations that were measured."""
        return sum(row.is_measured for row in self.rows)

    @property
    def text(self) -> str:
        """As a study stores it: JSON."""
        rows = []
        for row in self.rows:
            plain = to_plain(replace(row, knobs=None, turns=()))  # type: ignore[arg-type]
            rows.append({**plain, "knobs": row.knobs.values, "turns": list(map(_plain_turn, row.turns))})
        return to_json({**to_plain(replace(self, rows=())), "rows": rows}, MEASUREMENTS_SCHEMA).decode()

    @staticmethod
    def read(text: str) -> EngineMeasurements:
        """Read what `text` wrote; a BadInput if another program or another version wrote it."""
        where = "the measurements of engines"
        plain = from_json(dict[str, Any], text, where, MEASUREMENTS_SCHEMA)
        rows = []
        for row in plain["rows"]:
            stored = from_plain(_STORED, row, where)
            values: dict[str, Any] = {each.name: getattr(stored, each.name) for each in fields(EngineRow)}
            values["knobs"] = Knobs(**values["knobs"])
            values["turns"] = tuple(_turn_of(turn, where) for turn in values["turns"])
            rows.append(EngineRow(**values))
        return replace(from_plain(EngineMeasurements, {**plain, "rows": []}, where), rows=tuple(rows))


_STORED = stored_form(EngineRow, knobs=dict[str, Any], n_clients=int, turns=list[dict[str, Any]], trial=int)
"""An `EngineRow` as JSON has it: knobs by their names, turns with null for what is no number."""


def _plain_turn(turn: TokenMeasurement) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(turn)
    for name in _TIMES:
        plain[name] = [_or_null(each) for each in plain[name]]
    plain["half_width"] = _or_null(turn.half_width)
    return plain


def _or_null(number: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return number if isfinite(number) else None


def _turn_of(plain: Mapping[str, Any], where: str) -> TokenMeasurement:
    read = dict(plain)
    for name in _TIMES:
        read[name] = [nan if each is None else each for each in plain[name]]
    if plain["half_width"] is None:
        read["half_width"] = inf
    return from_plain(TokenMeasurement, read, where)
