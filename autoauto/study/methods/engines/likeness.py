"""Which configurations of engines are alike, `coordinates`, and how TPOT goes with a configuration, `rough_log_tpot`.

Errors of forecasts are alike where configurations are. How far two are from each other is told in powers of 2 of what
they count, each in units in which the correlation of errors falls to 1/e.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.costs.decoder import Workload
from autoauto.records.units import FloatArray


class Likeness(NamedTuple):
    """A configuration of one replica, as far as errors of forecasts depend on it.

    Attributes:
        n_sequences: in flight.
        tensor_parallel: GPUs of a group.
        n_stages: groups that form a pipeline.
        expert_parallel: among how many GPUs experts are dealt.
        attention_parallel: groups whose attention has sequences of its own.
    """

    n_sequences: float
    tensor_parallel: float = 1.0
    n_stages: float = 1.0
    expert_parallel: float = 1.0
    attention_parallel: float = 1.0


LENGTHS = Likeness(5.5, 3.5, 3.5, 6.0, 4.0)
"""Powers of 2 after which the correlation of errors falls to 1/e."""
DOUBT = 2.5
"""How many times more than a forecast a rough one is off between configurations."""


def coordinates(configurations: Sequence[Likeness]) -> FloatArray:
    """The coordinates of configurations, (configurations, axes), for `correlations`."""
    scaled: FloatArray = np.log2(np.array(configurations, dtype=float)) / np.array(LENGTHS)
    return scaled


class Rough(NamedTuple):
    """How TPOT goes with a configuration; exponents are of powers of 2.

    Attributes:
        n_free: sequences of one token that take as long as the rest of a step, on one GPU.
        n_free_growth: by the GPUs that share them.
        prompt_share: what a token of a prompt adds to a sequence's time for each token of its answer.
        context_share: what 1,000 tokens of context add.
        gpus, experts, attention: by which a step grows.
    """

    n_free: float
    n_free_growth: float
    prompt_share: float
    context_share: float
    gpus: float
    experts: float
    attention: float


ROUGH = Rough(46.0, 0.28, 0.26, 0.04, -0.064, 0.08, 0.127)
"""By the likelihood of measured rows of models without forecasts, of which `zlib.crc32(id)` is even."""


def rough_log_tpot(configurations: Sequence[Likeness], requests: Workload, rough: Rough = ROUGH) -> FloatArray:
    """The logarithm of TPOT up to a constant, for models that have no forecast.

    A step takes a constant time, and for every sequence a time that grows with its context and with the prompts that
    are computed between the tokens of answers.
    """
    of = Likeness(*np.log2(np.array(configurations, dtype=float)).T)
    log2_gpus = of.tensor_parallel + of.n_stages
    per_sequence = 1 + rough.prompt_share * requests.computed_tokens / requests.n_steps
    per_sequence += rough.context_share * requests.mean_length / 1000
    n_free = rough.n_free * 2 ** (rough.n_free_growth * log2_gpus)
    constant = rough.gpus * log2_gpus + rough.experts * of.expert_parallel + rough.attention * of.attention_parallel
    log_tpot: FloatArray = constant + np.log1p(2**of.n_sequences * per_sequence / n_free)
    return log_tpot
