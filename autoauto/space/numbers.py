"""The numbers of a trial, `NUMBERS`, and the names of results that a constraint may contain, `RESULT_NAMES`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from autoauto.records.target import Origin
from autoauto.records.units import format_bytes


class TrialNumber(NamedTuple):
    """A number of a trial: a field of `Trial`, which databases, JSON, data frames and tables have by its name.

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


NUMBERS = (
    TrialNumber("samples_per_s", in_constraints=True),
    TrialNumber("estimated_samples_per_s"),
    TrialNumber("latency_s", in_constraints=True),
    TrialNumber("compute_cycles", is_whole=True, in_constraints=True),
    TrialNumber("transfer_cycles", is_whole=True, in_constraints=True),
    TrialNumber("makespan_cycles"),
    TrialNumber(
        "bubble_fraction", False, "bubbles", lambda share: f"{100 * share:.1f} % of the step", Origin.SIMULATED
    ),
    TrialNumber("output_error", False, "output error", "{:.1e} of the largest value".format, in_constraints=True),
    TrialNumber("tokens_per_s", False, "tokens", "{:,.0f} a second of all answers".format, in_constraints=True),
    TrialNumber("tpot_s", False, "time per output token", "{:.4g} s".format, in_constraints=True),
    TrialNumber("ttft_s", False, "time to first token", "{:.4g} s".format, in_constraints=True),
    TrialNumber("tpot_low_s"),
    TrialNumber("tpot_high_s", False, "TPOT of 9 in 10", "at most {:.4g} s".format),
    TrialNumber("ttft_low_s"),
    TrialNumber("ttft_high_s", False, "TTFT of 9 in 10", "at most {:.4g} s".format),
    TrialNumber("kv_cache_bytes", True, "KV cache", format_bytes, in_constraints=True),
    TrialNumber("excess_bytes", is_whole=True),
)
"""All numbers of a trial that are stored and shown. A new one is a field of `Trial`, and its line here."""

OF_PLANS = ("cost_cycles", "peak_memory_bytes")
"""Numbers of a measured plan that a constraint may contain."""
REQUEST_LATENCY = "request_latency_s"
"""From a request to the last word of its answer."""
RESULT_NAMES = (*(number.name for number in NUMBERS if number.in_constraints), *OF_PLANS, REQUEST_LATENCY)
"""The names of results that a constraint may contain."""


class TokenRates(NamedTuple):
    """What replicas of a decoder give: numbers of a `Trial`."""

    tokens_per_s: float
    tpot_s: float
    ttft_s: float
    kv_cache_bytes: int


NAMES_OF_GENERATION = frozenset({*TokenRates._fields, REQUEST_LATENCY})
"""The names of results that only text that is generated has."""
