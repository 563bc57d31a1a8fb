"""What pipelines of an engine give, from the times of their stages: `rates_of`.

A replica has S stages and S micro-batches of b sequences in flight. Every sequence takes one step a token, and one
prompt every `n_steps` steps, so the mean step of a stage is its decode step and b / n_steps of a prompt:

    stage 0   |d p d d h|d d p d h|...        mean step = d + b / n_steps * p + transfer
    stage 1     |d p d d h|d d p d h|...      h: what the host CPU adds to a step, hidden by no other stage
                                              cycle = S * (mean step of the slowest stage + h)

A token of every sequence comes once a cycle: TPOT; where a step verifies a draft, several tokens come. An engine whose
prompts come first computes those of a whole wave before it decodes; of prompts that arrive together a sequence waits
for half between its tokens.

The first token of a request comes after its own prompt and what is before it, in the mean over all requests:

    first wave       all clients at once: those that fit a step are computed in it, the others in later ones
    alike            those that end in one step come again in one: behind a step in progress, and with their own
    lengths vary     each comes alone, into a queue that is busy a share r of the time: r / (1 - r) / 2 prompts wait

All quantities may be arrays over batch sizes; those of stages have a first axis of stages.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from autoauto.engines.engine import Engine
from autoauto.engines.load_drivers import Arrivals
from autoauto.records.costs.decoder import Workload
from autoauto.records.units import FloatArray
from autoauto.space.numbers import TokenResult
from autoauto.targets.gpu.calibration import Factor

DEFAULT_ARRIVALS = Arrivals()
_BUSIEST = 0.95
"""The largest share of the time for which a queue of prompts is taken as steady."""


class StageSteps(NamedTuple):
    """Seconds of every stage, shape (stages, batch sizes).

    Attributes:
        decode_s: of a decode step of b sequences.
        prompt_s: that one prompt adds to the steps that compute it.
        send_s: of a transfer of b hidden vectors to the next stage; 0 behind the last.
    """

    decode_s: FloatArray
    prompt_s: FloatArray
    send_s: FloatArray


class Rates(NamedTuple):
    """The rates of one pipeline, arrays over batch sizes.

    Attributes:
        period_s: between two micro-batches at the end of the pipeline.
        tpot_s: between two tokens of a sequence.
        ttft_s: from a request to its first token, the mean of all requests of clients that ask again and again.
        tokens_per_s: tokens of answers.
    """

    period_s: FloatArray
    tpot_s: FloatArray
    ttft_s: FloatArray
    tokens_per_s: FloatArray
    requests_per_s: FloatArray

    def times(self, n: float | FloatArray) -> Rates:
        """The rates of so many that step together: replicas, or ranks of the attention as full as the fullest."""
        return self._replace(tokens_per_s=n * self.tokens_per_s, requests_per_s=n * self.requests_per_s)


def rates_of(
    stages: StageSteps,
    n_sequences: FloatArray,
    requests: Workload,
    engine: Engine,
    n_max_batched_tokens: int,
    arrivals: Arrivals = DEFAULT_ARRIVALS,
) -> Rates:
    """The rates of a pipeline with b = `n_sequences` in every micro-batch."""
    b, n_stages = np.asarray(n_sequences, dtype=np.float64), len(stages.decode_s)
    prompts = b / requests.n_steps
    cycle = _cycle_s(stages, prompts, b, engine)
    tokens_per_s = n_stages * b / cycle * (requests.output_tokens / requests.n_steps)
    if requests.output_tokens == 1:  # answered by their prompts; by Little's law a request takes a cycle
        first = cycle + engine.host.first_token_s
        return Rates(cycle / n_stages, np.zeros_like(cycle), first, tokens_per_s, tokens_per_s)
    waiting = np.zeros_like(prompts)
    if engine.mixes:
        # A step has room for so many prompts. Of more, requests wait before their first token, not between two: those
        # that decode get a token a step, and by Little's law the others wait for their share of an answer's time.
        full = n_max_batched_tokens / requests.computed_tokens
        between = _cycle_s(stages, np.minimum(prompts, full), b, engine)
        waiting = requests.n_steps * (cycle - between)
    else:
        share_together = arrivals.share_together(engine.host.together)
        between = _cycle_s(stages, prompts * (1 - share_together / 2), b, engine)
    first = _first_token_s(stages, b, cycle, requests, engine, n_max_batched_tokens, arrivals)
    return Rates(
        period_s=cycle / n_stages,
        tpot_s=between / requests.speculation.accept_length,
        ttft_s=first + waiting,
        tokens_per_s=tokens_per_s,
        requests_per_s=tokens_per_s / requests.output_tokens,
    )


def _cycle_s(stages: StageSteps, n_prompts: FloatArray, n_sequences: FloatArray, engine: Engine) -> FloatArray:
    """From one step of a micro-batch to its next, with so many prompts a step in the mean.

    What the host does for a micro-batch is hidden by no other stage [perf-overview]: the stages of a pipeline wait
    for it one after the other.
    """
    mean_steps = stages.decode_s + n_prompts * stages.prompt_s + stages.send_s
    host = engine.host.of_step(n_sequences, len(mean_steps))
    return np.asarray(len(mean_steps) * (mean_steps.max(axis=0) + host), dtype=np.float64)


def _first_token_s(
    stages: StageSteps,
    n_sequences: FloatArray,
    cycle_s: FloatArray,
    requests: Workload,
    engine: Engine,
    n_max_batched_tokens: int,
    arrivals: Arrivals,
) -> FloatArray:
    n_steps = -(-requests.computed_tokens // n_max_batched_tokens)
    decode = stages.decode_s * engine.mixes  # where prompts have steps of their own, these decode nothing
    own = (n_steps * decode + stages.prompt_s + stages.send_s).sum(axis=0)
    n_clients, prompt = len(stages.decode_s) * n_sequences, stages.prompt_s.max(axis=0)

    per_step = max(1, n_max_batched_tokens // requests.computed_tokens)
    n_before, n_steps_before = _first_wave(n_clients, per_step)
    first_wave = n_before * prompt + n_steps_before * decode.max(axis=0)

    # Prompts of others that are computed before its own.
    queued = np.minimum(engine.host.n_behind, n_clients - 1)
    if not arrivals.are_alike:
        busy = np.minimum(_BUSIEST, n_clients / requests.n_steps * prompt / cycle_s)
        queued = np.minimum(busy / (1 - busy), n_clients - 1) / 2
    waited = arrivals.wait_steps * (stages.decode_s.sum(axis=0) + engine.host.step_s)
    share = arrivals.share_together(engine.host.together)
    total = own + queued * prompt + share * first_wave + waited + arrivals.warm_up_s / arrivals.n_waves
    return np.asarray(engine.host.first_token_s + total, dtype=np.float64)


def _first_wave(n_clients: FloatArray, per_step: int) -> tuple[FloatArray, FloatArray]:
    """Prompts of others, and steps, before the first token of one of so many requests at once, in the mean.

    Of 5 requests, 2 a step, those of the three steps wait until 2, 4 and 5 prompts are computed:

    >>> _first_wave(np.array([5.0]), 2)
    (array([2.4]), array([0.8]))
    """
    n_full = n_clients // per_step
    rest = n_clients - n_full * per_step
    steps = per_step * n_full * (n_full + 1) / 2
    return (per_step * steps + rest * n_clients) / n_clients - 1, (steps + rest * (n_full + 1)) / n_clients - 1


End = Callable[[Factor], float]
"""A number of a factor: its middle, or one of its ends."""
MIDDLE: End = attrgetter("factor")
LOW: End = attrgetter("low")
HIGH: End = attrgetter("high")
AT_BOUND: End = attrgetter("held")


def end_at(share: float) -> End:
    """The end below which another row lies with a probability."""
    return lambda factor: factor.at(share)


class RatesAt(NamedTuple):
    """What all replicas give together at one end of the interval: numbers of a `TokenResult` as arrays.

    The last two are None where replicas compute prompts themselves.
    """

    tokens_per_s: FloatArray
    tpot_s: FloatArray
    ttft_s: FloatArray
    kv_cache_bytes: FloatArray
    prefill_busy_share: FloatArray | None = None
    kv_transfer_s: FloatArray | None = None

    def of(self, index: int) -> TokenResult:
        """At one batch size."""
        busy, transfer = self.prefill_busy_share, self.kv_transfer_s
        return TokenResult(
            tokens_per_s=self.tokens_per_s[index].item(),
            tpot_s=self.tpot_s[index].item(),
            ttft_s=self.ttft_s[index].item(),
            kv_cache_bytes=int(self.kv_cache_bytes[index]),
            prefill_busy_share=None if busy is None else busy[index].item(),
            kv_transfer_s=None if transfer is None else transfer[index].item(),
        )
