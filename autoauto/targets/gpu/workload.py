"""The workload that the options of the target "gpu" describe.

`drafts_of` reads speculative decoding, `cached_share_of` the share of prompts in the prefix cache, and `traffic_of`
requests that arrive at times of their own. Nothing of drafts and caches was measured: `workload_notes` says what is
assumed, and `workload_errors` how far forecasts may be off.
"""

from __future__ import annotations

from math import log2
from pathlib import Path

from autoauto.records.costs.decoder import Speculation
from autoauto.records.costs.traffic.arrivals import POISSON, ArrivalProcess
from autoauto.records.costs.traffic.load import BLOCK_TOKENS, Lengths, Trace, TrafficLoad
from autoauto.records.errors import BadInput
from autoauto.records.units import digits
from autoauto.targets.target import OptionValues, flag_of

MAX_DRAFT_TOKENS = 64
MAX_DRAFT_COST = 10.0
_DRAFT_ERROR = 0.12
"""Added error of TPOT for a doubling of the tokens of a step: a third of the gain or loss that a draft can have."""
_CACHED_ERRORS = 0.1, 0.3
"""Added errors of TPOT and TTFT if all of a prompt were cached."""


def drafts_of(options: OptionValues) -> Speculation:
    """Options of speculative decoding; raises BadInput if a number is out of range, or numbers do not go together."""
    given = Speculation(
        float(options["accept_length"]),
        options["draft_tokens"],
        float(options["draft_cost"]),
        options["draft_model"],
    )
    if given.draft_tokens > MAX_DRAFT_TOKENS:
        raise BadInput(f"--draft-tokens must be at most {MAX_DRAFT_TOKENS}, got {given.draft_tokens:,}")
    if not given.draft_tokens and given != Speculation():
        raise BadInput("--accept-length, --draft-cost and --draft-model are of drafts; say how many --draft-tokens")
    if not 1 <= given.accept_length <= given.step_tokens:
        raise BadInput(
            f"--accept-length must be from 1 to {given.step_tokens}, the tokens that a step verifies with "
            f"--draft-tokens {given.draft_tokens}, got {given.accept_length:g}"
        )
    if given.draft_cost > MAX_DRAFT_COST:
        raise BadInput(
            f"--draft-cost must be a share of a step, at most {MAX_DRAFT_COST:g}, got {given.draft_cost:g}; "
            "0.1 is a tenth"
        )
    return given


def cached_share_of(options: OptionValues) -> float:
    """The share of a prompt that the prefix cache has; raises BadInput if it is 1 or more."""
    share = float(options["cached_share"])
    if share >= 1:
        raise BadInput(f"--cached-share must be from 0 to below 1, since the last token is computed, got {share:g}")
    return share


_HOW = ("arrival", "input_lengths", "output_lengths", "trace")
_RATES = ("rate", "for_rate", "for_trace")
"""Options that say how requests arrive, and how many a second."""
WINDOW_S = 300.0
"""In every so many seconds of a trace bounds must hold, where the fewest GPUs for it are searched."""
_MAX_RATE = 1e6


def traffic_of(options: OptionValues) -> TrafficLoad | None:
    """The requests that arrive at times of their own; None where no option says anything of them.

    Raises:
        BadInput: an option has no such value, or options do not go together, or the trace cannot be read.
    """
    path = options["trace"]
    rates = [name for name in _RATES if options[name] is not None and options[name] is not False]
    given = rates + [name for name in _HOW if options[name] is not None]
    if not given:
        return None
    if options["concurrency"] is not None:
        flag = flag_of(given[0])
        raise BadInput(
            f"--concurrency is of clients that ask again when they were answered, got {flag} too; leave one out"
        )
    if len(rates) > 1:
        names = " and ".join(map(flag_of, rates))
        raise BadInput(f"one option says how many requests arrive a second, got {names}; leave one out")
    if "for_trace" in rates and path is None:
        raise BadInput("--for-trace is of the requests of a trace, got none; say which: --trace FILE")
    rate = options["rate"] if "rate" in rates else options["for_rate"]
    if rate is not None and not 0 < rate <= _MAX_RATE:
        name = flag_of(*rates)
        raise BadInput(f"{name} must be requests a second, above 0 and at most {_MAX_RATE:,.0f}, got {rate:g}")
    if path is not None and (others := [flag_of(name) for name in _HOW[:3] if options[name] is not None]):
        names = ", ".join(others)
        raise BadInput(f"--trace says when requests come and how long they are, got {names} too; leave one out")
    trace = None
    if path is not None:
        from autoauto.records.files.traces import read_trace  # files of traces need modules that few commands do

        trace = read_trace(Path(str(path)))
    if trace is not None and trace.knows_cached and options["cached_share"]:
        raise BadInput("the trace says what prompts share (hash_ids), got --cached-share too; leave it out")
    return TrafficLoad(
        rate_per_s=None if rate is None else float(rate),
        process=POISSON if options["arrival"] is None else ArrivalProcess.of(str(options["arrival"])),
        input_lengths=_lengths(options["input_lengths"]),
        output_lengths=_lengths(options["output_lengths"]),
        trace=trace,
        window_s=WINDOW_S if trace is not None and rates and rates != ["rate"] else None,
    )


def _lengths(text: object) -> Lengths | None:
    return None if text is None else Lengths.of(str(text))


def traffic_notes(traffic: TrafficLoad | None) -> tuple[str, ...]:
    """The assumptions of requests that arrive at times of their own, a sentence each."""
    if traffic is None:
        return ()
    arrive = traffic.process.text
    if traffic.trace is not None:
        arrive = "arrive as in the trace"
        if traffic.rate_per_s is not None:
            arrive += ", faster or slower by one factor"
    notes = [f"requests {arrive}; replicas take them in turn; percentiles are simulated"]
    if traffic.known_rate_per_s is None:
        notes.append(
            "no rate is given: throughput is the highest rate of arrivals that keeps all bounds, within 1 %, times the "
            "tokens of an answer"
        )
    else:
        notes.append(
            "tokens/s, prices and energy are those of full load, by clients that ask again as soon as they are answered"
        )
    if traffic.trace is not None:
        notes += _trace_notes(traffic.trace)
    if traffic.window_s is not None:
        notes.append(
            f"bounds hold in every {traffic.window_s / 60:g} minutes of the trace; each percentile is that of those in "
            "which it is longest"
        )
    return tuple(notes)


def _trace_notes(trace: Trace) -> list[str]:
    n_input, n_output, share = trace.means
    of_mean = f"forecasts without simulation take all requests for alike, {n_input:,} + {n_output:,} tokens"
    notes = [
        f"the trace has {len(trace.requests.arrival_s):,} requests, {digits(trace.rate_per_s)} a second; {of_mean}"
    ]
    if trace.n_left_out:
        notes.append(f"{trace.n_left_out:,} rows of the trace without an answer are left out")
    if trace.knows_cached:
        notes.append(
            f"{share:.0%} of the tokens of prompts are in blocks of {BLOCK_TOKENS} that an earlier prompt had; "
            "simulated replicas have those of their own prompts, as many as their KV caches hold, those used last"
        )
    return notes


def workload_notes(speculation: Speculation, cached_share: float) -> tuple[str, ...]:
    """The assumptions of drafts and of the prefix cache, a sentence each; none where nothing is drafted or cached."""
    notes: list[str] = []
    if speculation.draft_tokens:
        notes.append(
            f"a step verifies {speculation.step_tokens} tokens of every sequence, of which "
            f"{speculation.accept_length:g} are accepted; to draft takes {speculation.draft_cost:.0%} of a step more "
            "(--draft-cost), and memory of a draft is not counted; nothing of it was measured, so intervals are wider"
        )
    if cached_share:
        notes.append(
            f"{cached_share:.0%} of every prompt is in the prefix cache, and every sequence in flight holds keys and "
            "values of its own; nothing of it was measured, so intervals are wider"
        )
    return tuple(notes)


def workload_errors(speculation: Speculation, cached_share: float) -> tuple[float, float]:
    """Standard deviations of logarithms that a workload adds to the errors of TPOT and of TTFT.

    >>> workload_errors(Speculation(), 0.0), workload_errors(Speculation(2.5, 3), 0.5)
    ((0.0, 0.0), (0.29, 0.15))
    """
    of_draft = _DRAFT_ERROR * log2(speculation.step_tokens)
    tpot, ttft = _CACHED_ERRORS
    return of_draft + tpot * cached_share, ttft * cached_share
