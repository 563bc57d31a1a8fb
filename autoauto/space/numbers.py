"""The numbers of a trial: `Result`, and what it has of its mode. Each is a field with what is said of it (`number`).

`NUMBERS` is the flat view, which databases, JSON, data frames and tables have; `RESULT_NAMES` are the names of results
that a constraint may contain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Self

from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import Origin
from autoauto.records.units import format_bytes


class TrialNumber(NamedTuple):
    """A number of a trial, which databases, JSON, data frames and tables have by its name.

    Attributes:
        name: of the field.
        is_whole: whether it has no fraction.
        title: its name in tables of one configuration; empty where these show it otherwise.
        text: its value there.
        origin: of its value; None for that of the trial.
        in_constraints: whether a constraint may contain it.
    """

    name: str
    is_whole: bool = False
    title: str = ""
    text: Callable[[float], str] = str
    origin: Origin | None = None
    in_constraints: bool = False


def number(default: Any = None, **facts: Any) -> Any:
    """A field that is a number of a trial; `facts` are those of `TrialNumber`."""
    return field(default=default, metadata=facts)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step of training gives, simulated.

    Attributes:
        makespan_cycles: of the step.
        bubble_fraction: of the step.
    """

    makespan_cycles: float | None = number()
    bubble_fraction: float | None = number(
        title="bubbles", text=lambda share: f"{100 * share:.1f} % of the step", origin=Origin.SIMULATED
    )

    @staticmethod
    def of(timeline: Timeline) -> StepResult:
        """What the timeline of a step says."""
        return StepResult(makespan_cycles=timeline.makespan_cycles, bubble_fraction=timeline.bubble_fraction)


@dataclass(frozen=True, slots=True)
class TokenResult:
    """What the generation of text gives.

    Attributes:
        tokens_per_s: tokens of answers of the whole cluster.
        tpot_s: between two tokens of an answer.
        ttft_s: from a request to the first token of its answer.
        kv_cache_bytes: of the GPU that has the most keys and values.
        tpot_low_s, tpot_high_s, ttft_low_s, ttft_high_s: the ends of intervals of our error, in which 8 of 10 measured
            rows lie; they say nothing of single requests.
        bounds_probability: how likely all bounds hold, by our error; None where there are none.
    """

    tokens_per_s: float = number(
        0.0, title="tokens", text="{:,.0f} a second of all answers".format, in_constraints=True
    )
    tpot_s: float = number(0.0, title="time per output token", text="{:.4g} s".format, in_constraints=True)
    ttft_s: float = number(0.0, title="time to first token", text="{:.4g} s".format, in_constraints=True)
    tpot_low_s: float | None = number()
    tpot_high_s: float | None = number(title="TPOT error", text="up to {:.4g} s".format)
    ttft_low_s: float | None = number()
    ttft_high_s: float | None = number(title="TTFT error", text="up to {:.4g} s".format)
    bounds_probability: float | None = number(title="bounds hold", text="with a probability of {:.0%}".format)
    kv_cache_bytes: int = number(0, is_whole=True, title="KV cache", text=format_bytes, in_constraints=True)


@dataclass(frozen=True, slots=True)
class Result:
    """What a configuration gives; all 0 where it does not fit.

    Attributes:
        samples_per_s: measured throughput.
        estimated_samples_per_s: throughput by the estimate; 0 when there is none.
        latency_s: from a micro-batch's entry to its result; for training of a whole step, for phases of all
            micro-batches, for text from a request to the last token of its answer.
        compute_cycles, transfer_cycles: the two parts of the measured period.
        of_mode: what its mode alone gives; None where that is nothing.
        output_error: by how much outputs differ from those in fp32, relative to the largest (`relative_error`), the
            largest of all outputs; None where nothing else was computed in.
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

    @property
    def values(self) -> dict[str, Any]:
        """The numbers that it has, by name; None where one is not known."""
        own = {name: getattr(self, name) for name in _NAMES[Result]}
        return own if self.of_mode is None else own | {n: getattr(self.of_mode, n) for n in _NAMES[type(self.of_mode)]}

    def value(self, name: str) -> Any:
        """One of `values`; None where its mode has none of this name."""
        owner = _OWNERS[name]
        of_mode = self.of_mode if isinstance(self.of_mode, owner) else None
        return getattr(self if owner is Result else of_mode, name, None)

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """The result with other numbers, by their names."""
        own = {name: value for name, value in values.items() if _OWNERS[name] is Result}
        of_mode = {name: value for name, value in values.items() if name not in own and value is not None}
        if of_mode:
            kind = _OWNERS[next(iter(of_mode))]
            before = self.of_mode if isinstance(self.of_mode, kind) else kind()
            own["of_mode"] = replace(before, **of_mode)
        return type(self)(**own) if self is NO_RESULT else replace(self, **own)


NO_RESULT = Result()


def _numbers_of(kind: type[Result | StepResult | TokenResult]) -> tuple[TrialNumber, ...]:
    """The numbers that are fields of a class."""
    return tuple(TrialNumber(each.name, **each.metadata) for each in fields(kind) if each.name != "of_mode")


_NAMES = {kind: tuple(each.name for each in _numbers_of(kind)) for kind in (Result, StepResult, TokenResult)}
_OWNERS: dict[str, Any] = {name: kind for kind, names in _NAMES.items() for name in names}
*_FIRST, _LAST = _numbers_of(Result)
OF_RESULTS = (*_FIRST, *_numbers_of(StepResult), _LAST, *_numbers_of(TokenResult))
"""The numbers of `Result`, and those of modes."""
NUMBERS = (*OF_RESULTS, TrialNumber("excess_bytes", is_whole=True))
"""All numbers of a trial that are stored and shown. A new one is a field above."""

OF_PLANS = ("cost_cycles", "peak_memory_bytes")
"""Numbers of a measured plan that a constraint may contain."""
REQUEST_LATENCY = "request_latency_s"
"""From a request to the last token of its answer."""
RESULT_NAMES = (*(number.name for number in NUMBERS if number.in_constraints), *OF_PLANS, REQUEST_LATENCY)
"""The names of results that a constraint may contain."""

NAMES_OF_GENERATION = frozenset(
    (*(number.name for number in _numbers_of(TokenResult) if number.in_constraints), REQUEST_LATENCY)
)
"""The names of results that only text that is generated has."""
