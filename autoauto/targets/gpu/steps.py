"""The steps of a pipeline that generates text, from the times of its stages: pure functions, `rates_of`.

A replica has S stages and S micro-batches of b sequences in flight. Every sequence takes one step a word, and one
prompt every `output_tokens` steps, so the mean step of a stage is its decode step and b / output_tokens of a prompt:

    stage 0   |d p d d|d d p d|...        mean step = d + b / output_tokens * p + transfer
    stage 1     |d p d d|d d p d|...      cycle = the S mean steps of the slowest stage,
    processor |h      |h      |...        or one of every stage and the processor's, where that is longer

A word of every sequence comes once a cycle: TPOT. An engine whose prompts come first computes those of a whole wave
before it decodes; a sequence then waits for half of them between its words, and all of them before its first.

All quantities may be arrays over batch sizes; those of stages have a first axis of stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoauto.engines.engine import Engine
from autoauto.records.errors import BadInput
from autoauto.records.units import FloatArray


class Workload(NamedTuple):
    """Requests that are alike.

    Attributes:
        input_tokens: of a prompt.
        output_tokens: of an answer.
    """

    input_tokens: int
    output_tokens: int

    @property
    def max_length(self) -> int:
        """Tokens of a sequence when it ends."""
        return self.input_tokens + self.output_tokens

    @property
    def mean_length(self) -> int:
        """Tokens of a sequence in the middle of its answer: attention costs the mean over its steps there."""
        return self.input_tokens + self.output_tokens // 2


def workload(input_tokens: int, output_tokens: int) -> Workload:
    """Requests of so many tokens.

    Raises:
        BadInput: there is no prompt or no answer.
    """
    if input_tokens < 1 or output_tokens < 1:
        raise BadInput(f"input and output tokens must be 1 or more, got {input_tokens} and {output_tokens}")
    return Workload(input_tokens, output_tokens)


class StageSteps(NamedTuple):
    """Seconds of every stage of a replica, shape (stages, batch sizes).

    Attributes:
        decode_s: of a decode step of b sequences.
        prompt_s: that one prompt adds to the steps that compute it.
        send_s: of a transfer of b hidden vectors to the next stage; 0 behind the last.
    """

    decode_s: FloatArray
    prompt_s: FloatArray
    send_s: FloatArray


class Rates(NamedTuple):
    """What a cluster of like replicas gives, each an array over batch sizes.

    Attributes:
        period_s: between two micro-batches at the end of the pipeline.
        tpot_s: between two words of a sequence.
        ttft_s: from a request to its first word, in the mean over clients that send one after another.
        tokens_per_s: words of answers of the whole cluster.
        requests_per_s: of the whole cluster.
    """

    period_s: FloatArray
    tpot_s: FloatArray
    ttft_s: FloatArray
    tokens_per_s: FloatArray
    requests_per_s: FloatArray


def rates_of(
    stages: StageSteps,
    n_sequences: FloatArray,
    requests: Workload,
    engine: Engine,
    n_max_batched_tokens: int,
    n_replicas: int = 1,
) -> Rates:
    """The rates of replicas with b = `n_sequences` in every micro-batch."""
    b, n_stages = np.asarray(n_sequences, dtype=np.float64), len(stages.decode_s)
    prompts = b / requests.output_tokens
    cycle = cycle_s(stages, prompts, b, engine)
    tokens_per_s = n_replicas * n_stages * b / cycle
    between, waiting = _words_s(stages, prompts, b, requests, engine, n_max_batched_tokens)
    return Rates(
        period_s=cycle / n_stages,
        tpot_s=between,
        ttft_s=first_word_s(stages, b, requests, engine, n_max_batched_tokens) + waiting,
        tokens_per_s=tokens_per_s,
        requests_per_s=tokens_per_s / requests.output_tokens,
    )


def cycle_s(stages: StageSteps, n_prompts: FloatArray, n_sequences: FloatArray, engine: Engine) -> FloatArray:
    """From one step of a micro-batch to its next, with so many prompts a step in the mean.

    The processor prepares a micro-batch while others compute; alone in flight, it waits for the processor.
    """
    mean_steps = stages.decode_s + n_prompts * stages.prompt_s + stages.send_s
    host = engine.host.step_s + n_sequences * engine.host.sequence_s
    n_stages = len(mean_steps)
    slowest = np.maximum(mean_steps.max(axis=0), host if n_stages > 1 else 0.0)
    return np.asarray(np.maximum(n_stages * slowest, mean_steps.sum(axis=0) + host), dtype=np.float64)


def _words_s(
    stages: StageSteps,
    n_prompts: FloatArray,
    n_sequences: FloatArray,
    requests: Workload,
    engine: Engine,
    n_max_batched_tokens: int,
) -> tuple[FloatArray, FloatArray]:
    """Between two words of a sequence, and what a request waits where prompts are more than steps can hold.

    Steps that are full of prompts leave requests without a first word; those that decode get a word a step. By
    Little's law, the others' share of the time until an answer is complete is spent waiting.
    """
    if not engine.mixes:
        return cycle_s(stages, n_prompts / 2, n_sequences, engine), np.zeros_like(n_prompts)
    full = n_max_batched_tokens / requests.input_tokens
    between = cycle_s(stages, np.minimum(n_prompts, full), n_sequences, engine)
    whole = cycle_s(stages, n_prompts, n_sequences, engine)
    return between, requests.output_tokens * (whole - between)


def first_word_s(
    stages: StageSteps, n_sequences: FloatArray, requests: Workload, engine: Engine, n_max_batched_tokens: int
) -> FloatArray:
    """From a request to its first word: its prompt through all stages, behind those that arrive with it."""
    n_steps = -(-requests.input_tokens // n_max_batched_tokens)
    own = (n_steps * stages.decode_s * engine.mixes + stages.prompt_s + stages.send_s).sum(axis=0)
    n_before = engine.host.together * (len(stages.decode_s) * n_sequences - 1) / 2
    before = n_before * stages.prompt_s.max(axis=0)
    return np.asarray(engine.host.first_word_s + own + before, dtype=np.float64)


def summed(costs: FloatArray, sizes: Sequence[int]) -> FloatArray:
    """Costs of layers, shape (layers, ...), summed over the stages of a partition, of so many layers each.

    >>> summed(np.array([1.0, 2.0, 4.0]), (2, 1)).tolist()
    [3.0, 4.0]
    """
    assert sum(sizes) == len(costs)
    assert min(sizes) > 0
    starts = np.cumsum((0, *sizes[:-1]))
    return np.asarray(np.add.reduceat(costs, starts, axis=0), dtype=np.float64)
