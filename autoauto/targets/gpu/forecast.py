"""One configuration of replicas of a decoder: what it gives and what it holds, `forecast`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autoauto.engines.engine import Engine
from autoauto.engines.registry import engine_named
from autoauto.records.costs.decoder import Decoder
from autoauto.records.errors import Unsupported
from autoauto.targets.gpu.costs import DecoderCosts, layer_costs
from autoauto.targets.gpu.memory import MemoryRule, memory_rule
from autoauto.targets.gpu.steps import Rates, Workload, rates_of, summed
from autoauto.targets.gpu.systems import system_named
from autoauto.targets.gpu.tables import Serving


class Held(NamedTuple):
    """Bytes of the fullest GPU of one stage.

    Attributes:
        weight_bytes: matrices, norms, embedding and head.
        kv_bytes: of all sequences in flight when they end.
        fixed_bytes: activations, workspace, libraries.
        excess_bytes: how many are missing; below 0 what is left.
    """

    weight_bytes: float
    kv_bytes: float
    fixed_bytes: float
    excess_bytes: float

    @property
    def total_bytes(self) -> float:
        """All that the GPU holds."""
        return self.weight_bytes + self.kv_bytes + self.fixed_bytes


@dataclass(frozen=True, slots=True)
class ServingReplicas:
    """Like pipelines of groups of GPUs.

    Attributes:
        decoder: what they serve.
        serving: the system, engine, formats and groups.
        requests: that they answer.
        sizes: layers of every stage, embedding, norm and head counted.
        n_replicas: how many there are.
        n_max_batched_tokens: of a step.
    """

    decoder: Decoder
    serving: Serving
    requests: Workload
    sizes: tuple[int, ...]
    n_replicas: int = 1
    n_max_batched_tokens: int = 8192

    @property
    def engine(self) -> Engine:
        """The serving engine."""
        return engine_named(self.serving.engine)

    @property
    def n_gpus(self) -> int:
        """Of all replicas."""
        return self.n_replicas * len(self.sizes) * self.serving.tensor_parallel

    def costs(self, n_sequences: int) -> DecoderCosts:
        """Of every layer at a batch size; raises as `layer_costs`."""
        system, batch = system_named(self.serving.system), np.array([n_sequences])
        return layer_costs(
            self.decoder, self.serving, system, self.engine, self.requests, batch, self.n_max_batched_tokens
        )

    @property
    def rule(self) -> MemoryRule:
        """What a GPU may hold."""
        system = system_named(self.serving.system)
        n_stages = len(self.sizes)
        return memory_rule(self.decoder, self.serving, system, self.engine, n_stages, self.n_max_batched_tokens)


@dataclass(frozen=True, slots=True)
class GenerationForecast:
    """What a configuration gives.

    Attributes:
        rates: each an array of one number.
        held: of every stage.
        sources: what the times rest on, as shares.
    """

    rates: Rates
    held: tuple[Held, ...]
    sources: Mapping[str, float]

    @property
    def excess_bytes(self) -> float:
        """How many bytes are missing on the fullest GPU; below 0 what is left."""
        return max(held.excess_bytes for held in self.held)


def forecast(replicas: ServingReplicas, n_sequences: int) -> GenerationForecast:
    """What replicas give with b = `n_sequences` in every micro-batch, and as many micro-batches as stages.

    Raises:
        MissingExtra: the package of measured times is not installed.
        Unsupported: the group cannot split the model, does not fit a node, or there are no times.
    """
    costs, engine = replicas.costs(n_sequences), replicas.engine
    links = system_named(replicas.serving.system).links_between(len(replicas.sizes), replicas.serving.tensor_parallel)
    rates = rates_of(
        costs.stages(replicas.sizes, links),
        np.array([n_sequences], dtype=np.float64),
        replicas.requests,
        engine,
        replicas.n_max_batched_tokens,
        replicas.n_replicas,
    )
    return GenerationForecast(rates, held_by(replicas, costs, n_sequences), costs.sources)


def held_by(replicas: ServingReplicas, costs: DecoderCosts, n_sequences: int) -> tuple[Held, ...]:
    """The bytes of every stage with all sequences in flight."""
    rule, sizes = replicas.rule, replicas.sizes
    n_cached = n_sequences * len(sizes) * replicas.requests.max_length
    weights, caches = summed(costs.weight_bytes, sizes), summed(costs.kv_bytes, sizes) * n_cached
    return tuple(
        Held(weight, cache, rule.fixed_bytes, rule.excess_bytes(weight, cache))
        for weight, cache in zip(weights.tolist(), caches.tolist(), strict=True)
    )


def max_sequences(replicas: ServingReplicas, costs: DecoderCosts) -> int:
    """The most sequences of a micro-batch whose KV cache fits every stage; 0 where weights do not."""
    rule, sizes = replicas.rule, replicas.sizes
    weights, of_token = summed(costs.weight_bytes, sizes).tolist(), summed(costs.kv_bytes, sizes).tolist()
    n_bytes = [n * replicas.requests.max_length * len(sizes) for n in of_token]
    fitting = (rule.max_kv_bytes(weight) // n for weight, n in zip(weights, n_bytes, strict=True) if n)
    return int(min(fitting, default=0))


def closed_loop(replicas: ServingReplicas, n_clients: int) -> Rates:
    """What replicas of one micro-batch a stage give clients that wait for an answer before they ask again.

    The engine answers as many at a time as its KV cache holds; the others wait.

    Raises:
        Unsupported: not one sequence fits, or as `forecast`.
    """
    n_stages = len(replicas.sizes)
    asked = max(1, n_clients // (n_stages * replicas.n_replicas))
    held = max_sequences(replicas, replicas.costs(asked))
    if held < 1:
        raise Unsupported(f"one sequence must fit beside the weights of {replicas.decoder.name}, none does")
    rates = forecast(replicas, min(asked, held)).rates
    answered_s = rates.ttft_s + (replicas.requests.output_tokens - 1) * rates.tpot_s
    return rates._replace(ttft_s=rates.ttft_s + max(0.0, asked / held - 1) * answered_s)
