"""Replicas whose cuts are given, as measured rows have them: `FixedReplicas`."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from autoauto.engines.engine import Engine
from autoauto.engines.load_drivers import Arrivals
from autoauto.engines.registry import engine_named
from autoauto.evaluate.serving.costs import PositionCosts, StagePosition, blocks_of_kinds, position_costs
from autoauto.evaluate.serving.pipelines import NO_LINK, pipeline_rates
from autoauto.evaluate.serving.rates import DEFAULT_ARRIVALS, Rates
from autoauto.records.costs.decoder import Decoder, Workload
from autoauto.records.costs.profile import WEIGHTS
from autoauto.records.errors import Unsupported
from autoauto.records.units import IntArray
from autoauto.targets.gpu.costs import layer_costs
from autoauto.targets.gpu.memory import MemoryRule, memory_rule
from autoauto.targets.gpu.systems import system_named
from autoauto.targets.gpu.tables import Serving

_MOST_SEQUENCES = 2048
"""Most sequences of a micro-batch, as published rows were measured [perf-overview]."""
_N_SIZES = 64
_SEQUENCES_LIMIT = 2**20
"""Above what fits any GPU."""


@dataclass(frozen=True, slots=True)
class FixedReplicas:
    """Like pipelines of groups of GPUs of one system."""

    decoder: Decoder
    serving: Serving
    requests: Workload
    n_blocks: tuple[int, ...]
    n_replicas: int = 1
    n_max_batched_tokens: int = 8192
    arrivals: Arrivals = DEFAULT_ARRIVALS
    n_beyond: int = 0  # clients that ask beyond those that are answered at a time

    @property
    def engine(self) -> Engine:
        """The serving engine."""
        return engine_named(self.serving.engine)

    @property
    def n_gpus(self) -> int:
        """GPUs of all replicas."""
        return self.n_replicas * len(self.n_blocks) * self.serving.n_gpus

    def stages(self, n_sequences: int | IntArray) -> list[PositionCosts]:
        """The costs of every stage with so many sequences in every micro-batch; raises as `layer_costs`."""
        system, n_stages = system_named(self.serving.system), len(self.n_blocks)
        sizes = self.serving.split.of_rank(np.atleast_1d(n_sequences))
        layers = layer_costs(
            self.decoder, self.serving, system, self.engine, self.requests, sizes, self.n_max_batched_tokens
        )
        rule = self._rule(sizes * n_stages * self.requests.speculation.step_tokens)
        links = (*system.links_between(n_stages, self.serving.n_gpus), NO_LINK)
        n_in_flight = sizes.astype(np.float64) * n_stages
        positions = (StagePosition(0, not i, i == n_stages - 1, link) for i, link in enumerate(links))
        return [position_costs(layers, position, n_in_flight, rule, int(rule.limit_bytes)) for position in positions]

    def rates(self, n_sequences: int | IntArray) -> Rates:
        """The rates of all replicas, arrays over batch sizes, whether they fit or not; raises as `layer_costs`."""
        b = np.atleast_1d(n_sequences)
        of_rank = self.serving.split.of_rank(b)
        n_blocks = np.tile(self._of_kinds[:, :, None], len(b))
        made = pipeline_rates(
            self.stages(n_sequences),
            n_blocks,
            of_rank.astype(np.float64),
            self.requests,
            self.engine,
            self.n_max_batched_tokens,
            self.arrivals,
        )
        return made.rates.times(b / of_rank).times(self.n_replicas)

    def memory_bytes(self, n_sequences: int) -> list[dict[str, int]]:
        """Bytes that a GPU of every stage holds, by category."""
        return [stage.memory_bytes(n, 0) for stage, n in zip(self.stages(n_sequences), self._of_kinds, strict=True)]

    @property
    def _of_kinds(self) -> IntArray:
        """The blocks of every kind, shape (stages, kinds)."""
        return blocks_of_kinds(self.decoder.block_order, np.array(self.n_blocks))

    def max_sequences(self) -> int:
        """The most sequences of a micro-batch whose keys and values fit every stage; 0 where weights do not."""
        stages, n_stages = self.stages(1), len(self.n_blocks)

        def lacks(n_sequences: int) -> bool:  # of a rank
            rule = self._rule(np.array([n_stages * n_sequences * self.requests.speculation.step_tokens]))
            for stage, n_blocks in zip(stages, self._of_kinds, strict=True):
                weights = float(stage.memory_bytes(n_blocks, 0)[WEIGHTS])
                cache = float((n_blocks * stage.sequence_bytes).sum()) * n_stages * n_sequences
                if cache > rule.max_kv_bytes(weights).item():
                    return True
            return False

        return bisect_left(range(1, _SEQUENCES_LIMIT), True, key=lacks) * self.serving.attention_data_parallel

    def _rule(self, n_in_flight: IntArray) -> MemoryRule:
        system, n_stages = system_named(self.serving.system), len(self.n_blocks)
        return memory_rule(
            self.decoder, self.serving, system, self.engine, n_stages, self.n_max_batched_tokens, n_in_flight
        )

    def closed_loop(self, n_clients: int) -> Rates:
        """The rates for clients that wait for an answer before they ask again.

        The engine answers as many at a time as its KV cache holds; the others wait.

        Raises:
            Unsupported: not one sequence fits, or as `layer_costs`.
        """
        asked = max(1, n_clients // (len(self.n_blocks) * self.n_replicas))
        taken = min(asked, self.check_holds())
        rates = self.rates(taken)
        # Clients beyond those that are answered wait as many times for whole answers.
        answered_s = rates.ttft_s + (self.requests.output_tokens - 1) * rates.tpot_s
        return rates._replace(ttft_s=rates.ttft_s + ((asked + self.n_beyond) / taken - 1) * answered_s)

    def of_waves(self, n_requests: int) -> Rates:
        """The rates for requests that all wait at the beginning, at the batch size with the most tokens/s.

        Requests come in waves of as many as are in flight; the last is seldom full and takes as long as the others:

            n_requests = 5, 2 in flight     |##|##|# |      tokens/s of 5 / 6 of full waves

        Raises:
            Unsupported: as `closed_loop`.
        """
        n_pipelines = len(self.n_blocks) * self.n_replicas
        most = min(_MOST_SEQUENCES, self.check_holds(), -(-n_requests // n_pipelines))
        full = -(-n_requests // (n_pipelines * np.arange(1, _N_SIZES)))  # sizes whose last wave is full
        spread = np.geomspace(1, most, _N_SIZES).astype(np.int64)
        b = np.unique(np.concatenate([full[full <= most], spread]))
        rates, n_waves = self.rates(b), n_requests / (n_pipelines * b)
        share = n_waves / np.ceil(n_waves)
        best = np.argmax(rates.tokens_per_s * share)
        return Rates(*(number[[best]] for number in rates)).times(share[best])

    def check_holds(self, n_sequences: int = 1) -> int:
        """`max_sequences`, at least so many; raises Unsupported if fewer fit."""
        held = self.max_sequences()
        if held < n_sequences:
            some = "one sequence" if n_sequences == 1 else f"{n_sequences} sequences"
            got = held or "none does"
            raise Unsupported(f"{some} must fit beside the weights of {self.decoder.name}, {got}")
        return held
