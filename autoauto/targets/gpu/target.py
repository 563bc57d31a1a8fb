"""The opened target "gpu": `GpuTarget`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import chain

from autoauto.engines.engine import Engine
from autoauto.engines.registry import ENGINES, engine_named
from autoauto.records.costs.decoder import NO_SPECULATION, Decoder, Speculation, WeightFormat, Workload, lacks_draft
from autoauto.records.costs.options import Session
from autoauto.records.costs.traffic.load import TrafficLoad
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Period
from autoauto.records.target import Origin, TargetTraits
from autoauto.records.units import IntArray
from autoauto.targets.gpu.calibration import NOT_CALIBRATED, Calibration, Factors, Group
from autoauto.targets.gpu.costs import DecoderCosts, layer_costs
from autoauto.targets.gpu.family_errors import decoding_family, family_of
from autoauto.targets.gpu.memory import MemoryRule, memory_rule
from autoauto.targets.gpu.session import GpuSession
from autoauto.targets.gpu.systems import GpuSystem
from autoauto.targets.gpu.tables import Serving
from autoauto.targets.gpu.workload import traffic_notes, workload_errors

DEFAULT_TOKENS = 1024
"""Tokens of a prompt, and of an answer, if no number is given."""


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """Groups of GPUs that serve a decoder, by measured times of their kernels.

    Attributes:
        notes: what was assumed, a sentence each.
        traffic: requests that arrive at times of their own; None for clients that ask again once they are answered.
        n_in_flight: requests of such clients on the whole cluster; None for any number.
        pools: the numbers of pools of servers among which a search looks for configurations.
    """

    decoder: Decoder
    systems: tuple[GpuSystem, ...]
    notes: tuple[str, ...] = ()
    calibration: Calibration = NOT_CALIBRATED  # what measured rows say of forecasts
    speculation: Speculation = NO_SPECULATION
    cached_share: float = 0.0  # of a prompt, that the prefix cache has
    traffic: TrafficLoad | None = None
    n_in_flight: int | None = None
    pools: tuple[int, ...] = (1,)

    @property
    def version(self) -> str:
        """Implements `Target`; also names the factors of measured rows, the workload and the traffic."""
        parts = [_version()]
        factors = sorted(self.calibration.factors.items())
        if factors:
            parts.append(f"measured {hashlib.sha256(repr(factors).encode()).hexdigest()[:12]}")
        workload = (self.speculation, self.cached_share)
        if workload != (NO_SPECULATION, 0.0):
            parts.append(str(workload))
        if self.traffic is not None:
            parts.append(str(self.traffic))
        return " ".join(parts)

    @property
    def traits(self) -> TargetTraits:
        """Engines that were measured on any of the GPUs, formats of the checkpoint, groups inside a node."""
        size = max(system.n_gpus_per_node for system in self.systems)
        sizes = tuple(n for n in (1, 2, 4, 8) if n <= size)
        # A dense model has no experts to deal, and ranks of attention with sequences of their own are its replicas.
        of_experts = sizes if self.decoder.experts else (1,)
        checkpoint = self.decoder.checkpoint
        mean_input, mean_output = (None, None) if self.traffic is None else self.traffic.mean_tokens
        return TargetTraits(
            origin=Origin.MODELLED,
            space={
                "engine": measured_engines(self.systems),
                "tensor_parallel": sizes,
                "expert_parallel": of_experts,
                "attention_data_parallel": of_experts,
                "precision": (checkpoint.weights,),
                "kv_cache_precision": (checkpoint.kv_cache,),
                "input_tokens": (mean_input or DEFAULT_TOKENS,),
                "output_tokens": (mean_output or DEFAULT_TOKENS,),
                "batch_size": self._batch_sizes,
            },
            period=Period.SERIAL,
            groups=("tensor_parallel", "attention_data_parallel"),
            sessions=(GpuSession,),
            in_seconds=True,
            n_in_flight=self.n_in_flight,
        )

    @property
    def _batch_sizes(self) -> tuple[int, ...]:
        """Maximum numbers of sequences in flight; where arrivals are simulated, which takes longer, powers of two."""
        sizes = GROUP_BATCH_SIZES if self.decoder.experts else BATCH_SIZES
        if self.traffic is None:
            return sizes
        return tuple(size for size in sizes if size >= 8 and size.bit_count() == 1)

    def with_arrivals(self) -> GpuTarget:
        """The target with requests that arrive at random, if no option says how they arrive.

        Raises:
            BadInput: a number of requests in flight is given, which is for clients that ask again.
        """
        if self.traffic is not None:
            return self
        if self.n_in_flight is not None:
            raise BadInput(
                "percentiles are of requests that arrive at times of their own, got --concurrency; try --rate"
            )
        return replace(self, traffic=TrafficLoad(), notes=(*self.notes, *traffic_notes(TrafficLoad())))

    def serving(self, system: GpuSystem, session: GpuSession) -> Serving:
        """The computation of a group of a system that serves the decoder."""
        checkpoint = self.decoder.checkpoint
        return Serving(
            system.name,
            session.engine,
            session.tensor_parallel,
            session.expert_parallel,
            attention_data_parallel=session.attention_data_parallel,
            weights=WeightFormat(session.precision or checkpoint.weights),
            kv_cache=WeightFormat(session.kv_cache_precision or checkpoint.kv_cache),
        )

    def layer_costs(
        self, system: GpuSystem, session: GpuSession, requests: Workload, n_sequences: IntArray
    ) -> DecoderCosts:
        """Costs of every layer for requests, by the numbers of sequences of a rank; raises as `open_tables`."""
        engine, serving = self.engine(session), self.serving(system, session)
        n_tokens = session.max_batched_tokens
        return layer_costs(self.decoder, serving, system, engine, requests, n_sequences, n_tokens)

    def memory_rule(self, system: GpuSystem, session: GpuSession, n_stages: int, n_sequences: IntArray) -> MemoryRule:
        """The memory of a GPU of a group besides weights and KV cache, with so many sequences in flight."""
        engine, serving = self.engine(session), self.serving(system, session)
        return memory_rule(self.decoder, serving, system, engine, n_stages, session.max_batched_tokens, n_sequences)

    def factors(self, system: GpuSystem, session: GpuSession, n_stages: int, requests: Workload) -> Factors:
        """The factors by which forecasts of pipelines of groups of a system are multiplied."""
        serving = self.serving(system, session)
        family = family_of(self.decoder)
        if session.prefill is not None:
            family = decoding_family(family, serving.n_gpus)
        group = Group(self.decoder.name, serving.engine, serving.system, serving.weights, family)
        errors = workload_errors(self.speculation, self.cached_share)
        factors = self.calibration.of(group, requests).widened(self.engine(session).measured.stages_error(n_stages))
        factors = factors.widened(*errors)
        if factors.tpot.n_rows:  # rows of the user count more than those that we know
            return factors
        for rows in self.engine(session).measured.contradicted:
            if (rows.system, rows.weights) == (serving.system, serving.weights) and rows.is_of(self.decoder):
                # The interval of TPOT is wide enough to contain the measured ratios.
                low = min(factors.tpot.low, *rows.tpot)
                high = max(factors.tpot.high, *rows.tpot)
                return factors._replace(tpot=factors.tpot._replace(low=low, high=high))
        return factors

    def needs(self, session: Session) -> str:
        """Implements `ServesDecoder`: a checkpoint in another format than the engine can make of this one; a draft."""
        assert isinstance(session, GpuSession)
        published, engine = self.decoder.checkpoint.weights, self.engine(session)
        weights = WeightFormat(session.precision or published)
        needs = []
        if engine.makes_conflict(published, weights):
            needs.append(f"a checkpoint that is published in {weights}")
        if lacks_draft(self.speculation, self.decoder.checkpoint):
            needs.append("an EAGLE-3 head of the model (--draft-model)")
        return f"{engine.name} needs {' and '.join(needs)}" if needs else ""

    def engine(self, session: GpuSession) -> Engine:
        """The engine of a session."""
        return engine_named(session.engine)


def measured_engines(systems: Iterable[GpuSystem]) -> tuple[str, ...]:
    """The names of the engines whose kernels were measured on any of the systems."""
    measured = set(chain.from_iterable(system.engines for system in systems))
    return tuple(name for name, engine in ENGINES.items() if engine.kernel_times in measured)


@cache
def _version() -> str:
    return f"gpu 2 aiconfigurator-core {version('aiconfigurator-core')}"


BATCH_SIZES = tuple(sorted({*range(1, 33), *range(32, 129, 4), *range(128, 257, 8), *range(256, 513, 16)}))
"""Sequences of a micro-batch in the default space."""
GROUP_BATCH_SIZES = (*BATCH_SIZES, *range(544, 1025, 32), *range(1088, 2049, 64), *range(2176, 4097, 128))
"""Sequences of a micro-batch of groups whose ranks of the attention share them."""
