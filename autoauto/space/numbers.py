"""The numbers of a trial: `Result`, and what it has of its mode. Each is a field with what is said of it (`number`).

`NUMBERS` is the flat view, which databases, JSON, data frames and tables have; `RESULT_NAMES` are the names of results
that a constraint may contain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any, NamedTuple, Self

from autoauto.records.interval import RunEnds
from autoauto.records.target import Origin
from autoauto.records.units import digits, format_bytes, format_number


class TrialNumber(NamedTuple):
    """A number of a trial, which databases, JSON, data frames and tables have by its name.

    Attributes:
        title: its name in tables of one configuration; empty where these show it otherwise.
        text: its value there.
        origin: of its value; None for that of the trial.
        quantity: the field of a device that it adds up over devices; empty for other numbers.
    """

    name: str
    is_whole: bool = False
    title: str = ""
    text: Callable[[float], str] = str
    origin: Origin | None = None
    in_constraints: bool = False
    quantity: str = ""


def _text(form: str, n_digits: int = 4) -> Callable[[float], str]:
    return lambda value: form.format(digits(value, n_digits))


def number(default: Any = None, **facts: Any) -> Any:
    """A field that is a number of a trial; `facts` are those of `TrialNumber`."""
    return field(default=default, metadata=facts)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The numbers of a training step, simulated."""

    makespan_cycles: float | None = number()
    bubble_fraction: float | None = number(
        title="bubbles", text=lambda share: f"{100 * share:.1f} % of the step", origin=Origin.SIMULATED
    )


@dataclass(frozen=True, slots=True)
class TokenResult:
    """Throughput, latencies and memory of the generation of text.

    Attributes:
        tokens_per_s: tokens of answers of the whole cluster.
        tpot_s: between two tokens of an answer.
        ttft_s: from a request to the first token of its answer.
        kv_cache_bytes: of the GPU that has the most keys and values.
        tpot_low_s, tpot_high_s, ttft_low_s, ttft_high_s: the ends of intervals of our error, in which 8 of 10 measured
            rows lie; they say nothing of single requests.
        bounds_probability: how likely all bounds hold, by our error; None where there are none.
        prefill_busy_share: of the time in which prefill workers compute; None where replicas compute prompts.
        kv_transfer_s: in which the keys and values of a prompt move from a prefill worker to a replica; None as above.
    """

    tokens_per_s: float = number(
        0.0,
        title="tokens",
        text=lambda speed: f"{format_number(speed, 0)} a second of all answers",
        in_constraints=True,
    )
    tpot_s: float = number(0.0, title="time per output token", text=_text("{} s"), in_constraints=True)
    ttft_s: float = number(0.0, title="time to first token", text=_text("{} s"), in_constraints=True)
    tpot_low_s: float | None = number()
    tpot_high_s: float | None = number(title="TPOT error", text=_text("up to {} s"))
    ttft_low_s: float | None = number()
    ttft_high_s: float | None = number(title="TTFT error", text=_text("up to {} s"))
    bounds_probability: float | None = number(title="bounds hold", text="with a probability of {:.0%}".format)
    kv_cache_bytes: int = number(0, is_whole=True, title="KV cache", text=format_bytes, in_constraints=True)
    prefill_busy_share: float | None = number(title="prefill workers", text="compute {:.0%} of the time".format)
    kv_transfer_s: float | None = number(title="KV cache transfer", text=_text("{} s of a prompt", 3))

    @property
    def tokens_per_s_ends(self) -> tuple[float, float] | None:
        """The ends of the interval of our error of `tokens_per_s`; None where latencies have none.

        Sequences in flight get a token each between two of one, or with their only one: the longer, the fewer.
        """
        time_s, low_s, high_s = self.ttft_s, self.ttft_low_s, self.ttft_high_s
        if self.tpot_s:
            time_s, low_s, high_s = self.tpot_s, self.tpot_low_s, self.tpot_high_s
        if not low_s or not high_s:
            return None
        n_tokens = self.tokens_per_s * time_s
        return n_tokens / high_s, n_tokens / low_s


TIMES_OF_REQUESTS = {"ttft": "TTFT", "tpot": "TPOT", "latency": "request latency"}
"""The times of requests of which there are percentiles, and how they are shown."""


def _percentile(of: str) -> Any:
    return number(title=of, text=_text("{} s"), in_constraints=True)


@dataclass(frozen=True, slots=True)
class PercentileResult:
    """Percentiles of seconds over requests that arrive at times of their own, simulated.

    TTFT is from a request to its first token, TPOT the mean between two tokens of an answer, latency from a request to
    its last token.
    """

    ttft_p50_s: float | None = _percentile("TTFT, p50")
    ttft_p90_s: float | None = _percentile("TTFT, p90")
    ttft_p95_s: float | None = _percentile("TTFT, p95")
    ttft_p99_s: float | None = _percentile("TTFT, p99")
    tpot_p50_s: float | None = _percentile("TPOT, p50")
    tpot_p90_s: float | None = _percentile("TPOT, p90")
    tpot_p95_s: float | None = _percentile("TPOT, p95")
    tpot_p99_s: float | None = _percentile("TPOT, p99")
    latency_p50_s: float | None = _percentile("request latency, p50")
    latency_p90_s: float | None = _percentile("request latency, p90")
    latency_p95_s: float | None = _percentile("request latency, p95")
    latency_p99_s: float | None = _percentile("request latency, p99")


@dataclass(frozen=True, slots=True)
class ArrivalResult:
    """The load of replicas by requests that arrive at times of their own, simulated.

    Attributes:
        rate_per_s: requests that arrive a second.
        busy_share: of the time in which replicas compute.
        kv_share: of the KV caches that is held, in the mean over time.
        n_waiting: requests that wait to be admitted, in the mean over time.
        n_waiting_kv, n_waiting_tokens, n_waiting_sequences: of these those that steps do not take since there is no
            room in the KV cache, in the tokens of a step, or among the sequences of a replica.
        n_preempted: times that a sequence was taken back and computed again.
        queue_growth_per_s: requests by which the queue grows a second; 0 where replicas keep up.
    """

    rate_per_s: float | None = number(title="arrivals", text=_text("{} requests a second"))
    busy_share: float | None = number(title="busy", text="{:.0%} of the time".format)
    kv_share: float | None = number(title="KV cache held", text="{:.0%} in the mean".format)
    n_waiting: float | None = number(title="waiting", text=_text("{} requests in the mean", 3))
    n_waiting_kv: float | None = number()
    n_waiting_tokens: float | None = number()
    n_waiting_sequences: float | None = number()
    n_preempted: int | None = number(is_whole=True, title="preempted", text="{:,} times".format)
    queue_growth_per_s: float | None = number(title="queue", text=_text("grows by {} requests a second", 3))


@dataclass(frozen=True, slots=True)
class RunResult:
    """The confidence interval of the throughput of a run.

    Attributes:
        low_samples_per_s, high_samples_per_s: the ends of its interval, each missed by the true throughput with a
            probability of 0.1 %; the upper one is None where that is infinite.
        core_share: the part of its cores that the run had.
    """

    low_samples_per_s: float = number(0.0)
    high_samples_per_s: float | None = number()
    core_share: float = number(1.0, title="cores", text="had {:.0%} of their time".format)

    @staticmethod
    def of(ends: RunEnds) -> RunResult:
        """The numbers of an interval."""
        return RunResult(ends.low_per_s, None if ends.high_per_s == inf else ends.high_per_s, ends.core_share)

    @property
    def ends(self) -> RunEnds:
        """The interval of these numbers."""
        high = inf if self.high_samples_per_s is None else self.high_samples_per_s
        return RunEnds(self.low_samples_per_s, high, self.core_share)


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """Quantities of devices, added up over all that a configuration uses. A new quantity is one field here.

    Attributes:
        usd_per_hour: the price, by what the user says of each device; None where nobody says it.
        power_limit_w: the most power that they draw; None where it is not known.
    """

    usd_per_hour: float | None = number(
        title="price", text=_text("${} an hour"), in_constraints=True, quantity="price_per_hour"
    )
    power_limit_w: float | None = number(
        title="power limit", text=_text("{} W"), in_constraints=True, quantity="power_limit_w"
    )

    @staticmethod
    def of(total: Callable[[str], float | None]) -> DeviceTotals:
        """Add up all quantities: `total` gives the sum of a field of `Device`, or None where it is not known."""
        sums = {each.name: total(each.metadata["quantity"]) for each in fields(DeviceTotals)}
        return DeviceTotals(**sums)

    def times(self, n: int) -> DeviceTotals:
        """The totals of n times as many devices."""
        totals = []
        for each in fields(self):
            of_one = getattr(self, each.name)
            totals.append(None if of_one is None else n * of_one)
        return DeviceTotals(*totals)


NO_TOTALS = DeviceTotals()


@dataclass(frozen=True, slots=True)
class Result:
    """The numbers of a configuration; all 0 where it does not fit.

    Attributes:
        estimated_samples_per_s: throughput by the estimate; 0 when there is none.
        latency_s: from a micro-batch's entry to its result; for training of a whole step, for phases of all
            micro-batches, for text from a request to the last token of its answer.
        compute_cycles, transfer_cycles: the two parts of the measured period.
        of_mode: what its mode alone gives; None where that is nothing.
        output_error: by how much outputs differ from those in fp32, relative to the largest (`relative_error`), the
            largest of all outputs; None where nothing else was computed in.
        devices: what its devices cost and draw, all together.
        percentiles, load: what requests get that arrive at times of their own; None where none do.
        run: how sure the measured throughput is; None where that is not known.
    """

    samples_per_s: float = number(0.0, in_constraints=True)
    estimated_samples_per_s: float = number(0.0)
    latency_s: float = number(0.0, in_constraints=True)
    compute_cycles: int = number(0, is_whole=True, in_constraints=True)
    transfer_cycles: int = number(0, is_whole=True, in_constraints=True)
    of_mode: StepResult | TokenResult | None = None
    output_error: float | None = number(
        title="output error", text="{:.1e} of the largest value".format, in_constraints=True
    )
    devices: DeviceTotals = NO_TOTALS
    percentiles: PercentileResult | None = None
    load: ArrivalResult | None = None
    run: RunResult | None = None

    @property
    def ends(self) -> RunEnds | None:
        """The interval of the measured throughput; None without one."""
        return None if self.run is None else self.run.ends

    @property
    def derived(self) -> dict[str, float]:
        """Numbers computed from other numbers, by name; one is missing where a number that it needs is unknown.

        Of D dollars an hour and R samples a second, 1e6 samples cost 1e6 D / (3600 R). Of text a sample is a token of
        an answer, so these pay for the prompts, too. A device draws its power limit at most, so P watts are at most
        P / R joules a sample, of the devices alone.
        """
        values = {REQUEST_LATENCY: self.latency_s}
        usd_per_hour, power_limit_w = self.devices.usd_per_hour, self.devices.power_limit_w
        if usd_per_hour is not None and self.samples_per_s:
            values[USD_PER_MILLION] = 1e6 * usd_per_hour / (3600 * self.samples_per_s)
        if power_limit_w is not None and self.samples_per_s:
            values[MAX_JOULES] = power_limit_w / self.samples_per_s
        return values

    @property
    def _parts(self) -> tuple[Any, ...]:
        """The objects with its numbers: itself, and what not every result has, or None."""
        return (self, self.of_mode, self.devices, self.percentiles, self.load, self.run)

    @property
    def values(self) -> dict[str, Any]:
        """The numbers that it has, by name; None where one is not known."""
        known: dict[str, Any] = {}
        for part in self._parts:
            if part is not None:
                known |= {name: getattr(part, name) for name in _NAMES[type(part)]}
        return known

    def value(self, name: str) -> Any:
        """One of `values`; None where it has none of this name."""
        owner = _OWNERS[name]
        for part in self._parts:
            if isinstance(part, owner):
                return getattr(part, name)
        return None

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """The result with other numbers, by their names."""
        own: dict[str, Any] = {}
        by_kind: dict[Any, dict[str, Any]] = {}
        for name, value in values.items():
            kind = _OWNERS[name]
            if kind is Result:
                own[name] = value
            elif value is not None:
                by_kind.setdefault(kind, {})[name] = value
        for kind, of_part in by_kind.items():
            part = _PARTS.get(kind, "of_mode")
            before = getattr(self, part)
            if not isinstance(before, kind):
                before = kind()
            own[part] = replace(before, **of_part)
        if self is NO_RESULT:  # as `replace`, in half the time: so are the trials of a study read
            return type(self)(**own)
        return replace(self, **own)


NO_RESULT = Result()


_KINDS = (Result, StepResult, DeviceTotals, TokenResult, PercentileResult, ArrivalResult, RunResult)
_PARTS = {DeviceTotals: "devices", PercentileResult: "percentiles", ArrivalResult: "load", RunResult: "run"}
"""The field of `Result` that has the numbers of each class; numbers of modes are in `of_mode`."""


def _numbers_of(kind: type[Any]) -> tuple[TrialNumber, ...]:
    parts = {"of_mode", *_PARTS.values()} if kind is Result else ()
    return tuple(TrialNumber(each.name, **each.metadata) for each in fields(kind) if each.name not in parts)


_NAMES = {kind: tuple(each.name for each in _numbers_of(kind)) for kind in _KINDS}
_OWNERS: dict[str, Any] = {name: kind for kind, names in _NAMES.items() for name in names}
_OF_ALL = _numbers_of(Result)
OF_RESULTS = (
    _OF_ALL[:5]
    + _numbers_of(StepResult)  # beside the cycles of all modes, which are the last of the five
    + _OF_ALL[5:]
    + _numbers_of(DeviceTotals)
    + _numbers_of(TokenResult)
    + _numbers_of(PercentileResult)
    + _numbers_of(ArrivalResult)
    + _numbers_of(RunResult)
)
"""The numbers of `Result`, and those of modes."""
NUMBERS = (*OF_RESULTS, TrialNumber("excess_bytes", is_whole=True))
"""All numbers of a trial that are stored and shown. A new one is a field above."""

OF_PLANS = ("cost_cycles", "peak_memory_bytes")
"""Numbers of a measured plan that a constraint may contain."""
REQUEST_LATENCY = "request_latency_s"
"""From a request to the last token of its answer."""
USD_PER_MILLION = "usd_per_million"
"""US dollars of a million samples, of text of a million tokens of answers."""
MAX_JOULES = "max_joules"
"""Joules of a sample, of text of a token of an answer, at most: devices draw their power limits."""
DERIVED = (REQUEST_LATENCY, USD_PER_MILLION, MAX_JOULES)
"""The names of `Result.derived`."""
QUANTITIES = {number.name: number.quantity for number in _numbers_of(DeviceTotals)}
"""The quantity of a device that a number needs, by the name of the number."""
QUANTITIES |= {USD_PER_MILLION: "price_per_hour", MAX_JOULES: "power_limit_w"}
RESULT_NAMES = (*(number.name for number in NUMBERS if number.in_constraints), *OF_PLANS, *DERIVED)
"""The names of results that a constraint may contain."""

PERCENTILES = frozenset(_NAMES[PercentileResult])
"""The names of results that only requests have that arrive at times of their own."""
_OF_TOKENS = frozenset(number.name for number in _numbers_of(TokenResult) if number.in_constraints)
NAMES_OF_GENERATION = PERCENTILES | _OF_TOKENS | {REQUEST_LATENCY}
"""The names of results that only text that is generated has."""
