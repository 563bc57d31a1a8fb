"""Costs of a decoder that generates text on GPUs, by measured times of their kernels: `TokenCosts`.

All S micro-batches of a pipeline are in flight, and every sequence has its keys and values on the GPUs of every stage:

    bytes of a GPU = weights of its stage            of embedding and head once, where one stage has both of a tied pair
                   + KV cache of b x S sequences     of their full length, for the blocks of its stage
                   + activations and workspace       whatever its layers
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from autoauto.engines.registry import DEFAULT_ENGINE, engine_named
from autoauto.estimate.table import cost_table, with_cuts_at
from autoauto.evaluate.costs.costs import EndBytes
from autoauto.evaluate.setting import Setting
from autoauto.memo import Memo
from autoauto.profile.profiler import Progress
from autoauto.records.costs.correction import PLAIN_SUM, Correction, WholeRange
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import RESERVE, LayerProfile, ModelProfile
from autoauto.records.errors import BadInput, Unsupported
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.plans.plan import Plan
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.targets.gpu.costs import DecoderCosts
from autoauto.targets.gpu.memory import MemoryRule
from autoauto.targets.gpu.session import GpuSession
from autoauto.targets.gpu.steps import Workload
from autoauto.targets.gpu.systems import CLOCK_HZ
from autoauto.targets.gpu.target import GpuTarget, system_of

WEIGHTS, KV_CACHE = "weights", "KV cache"
"""Categories of memory, beside `RESERVE`."""
_NO_PROFILE = "layers of a decoder cost what its requests need, got no requests; try `autoauto predict`"
_FREE = Link(1e18, 0)
"""Where a stage receives: the stage before it has waited for the transfer already."""


class TokenCosts:
    """The `Costs` of a decoder on GPUs; nothing is compiled, and nothing learned."""

    def __init__(self, setting: Setting) -> None:
        assert isinstance(setting.target, GpuTarget)
        self.setting, self.target = setting, setting.target
        self._names, self._kinds = setting.names, tuple(layer.kind for layer in setting.graph.layers)
        self._costs: Memo[tuple[str, GpuSession, Workload, tuple[int, ...]], DecoderCosts] = Memo(1024)

    def at(self, device: Device, knobs: Knobs, sizes: tuple[int, ...]) -> DecoderCosts:
        """The costs of all layers on a GPU of a kind at many batch sizes, instead of that of `knobs`.

        Raises:
            Unsupported: the group cannot split the model, does not fit a node, or there are no times.
        """
        session, requests = session_of(knobs), requests_of(knobs)

        def made() -> DecoderCosts:
            return self.target.layer_costs(system_of(device), session, requests, np.array(sizes))

        return self._costs.of((device.name, session, requests, sizes), made)

    def kinds_of(self, knobs: Knobs) -> list[Device]:
        """A group of GPUs of every kind."""
        cluster = self.setting.devices(knobs)
        return [kind.device for kind in cluster.kinds] or [cluster.devices[0]]

    def limit(self, device: Device, knobs: Knobs) -> tuple[int, MemoryRule]:
        """The bytes that a GPU of a group may hold, and what counts against them."""
        session, system = session_of(knobs), system_of(device)
        rule = self.target.memory_rule(system, session, knobs.n_ipu)
        share = device.memory_bytes / session.tensor_parallel / system.memory_bytes  # what headroom leaves
        return int(int(rule.limit_bytes * share) * (self.setting.planning_proportion or 1.0)), rule

    def table_on(self, cluster: Cluster, knobs: Knobs, progress: Progress | None = None) -> CostTable:
        """See `Costs`; a stage computes one step of a micro-batch, and then sends it.

        A step has the decode steps of all its sequences, and the prompts that they have in the mean.
        """
        device = cluster.devices[0]
        limit_bytes, rule = self.limit(device, knobs)
        limit = replace(device, memory_bytes=limit_bytes)
        profile = self._profile(device, knobs, rule.kv_factor - 1.0, int(rule.fixed_bytes))
        free = (_FREE,) * len(cluster)
        line = replace(cluster, devices=(limit,) * len(cluster), receive_links=free, overlapped_host_links=None)
        table = cost_table(profile, line, 1.0, self.setting.period_of_devices)
        return with_cuts_at(table, [block.layers.start for block in self.setting.graph.blocks[1:]])

    def _profile(self, device: Device, knobs: Knobs, reserve: float, fixed_bytes: int) -> ModelProfile:
        """The layers of a GPU: nanoseconds of a mean step, and what is held for all micro-batches in flight."""
        requests, graph = requests_of(knobs), self.setting.graph
        costs = self.at(device, knobs, (knobs.batch_size,))
        n_prompts = knobs.batch_size / requests.output_tokens
        n_tokens = knobs.batch_size * knobs.n_ipu * requests.max_length
        sent, last = round(costs.send_bytes[0]), len(graph) - 1

        def layer(index: int) -> LayerProfile:
            n_weight, n_kv = round(costs.weight_bytes[index]), costs.kv_bytes[index] * n_tokens
            cache = {KV_CACHE: round(n_kv), RESERVE: round(reserve * n_kv)} if n_kv else {}
            tied = graph.layers[index].tied
            return LayerProfile(
                round((costs.decode_s[index, 0] + n_prompts * costs.prompt_s[index, 0]) * CLOCK_HZ),
                0,
                {f"{WEIGHTS}_{tied}": n_weight} if tied else {},
                cache if tied else {WEIGHTS: n_weight, **cache},
                fixed_bytes,
                carried_bytes=0,
                input_bytes=sent if index else 0,
                output_bytes=0 if index == last else sent,
                activation_bytes=0,
            )

        block = layer(1)  # all blocks are alike
        layers = (layer(0), *(block for _ in range(1, last - 1)), layer(last - 1), layer(last))
        untied = (None,) * len(layers)  # the last stage has a copy of a tied embedding
        options = self.setting.options(knobs)
        return ModelProfile(graph.name, self.target.version, options, self._names, self._kinds, untied, layers)

    def correction(self, knobs: Knobs, progress: Progress | None = None) -> Correction:
        """See `Costs`; sums of measured times are not corrected."""
        return PLAIN_SUM

    def with_equal_costs(self, knobs: Knobs, progress: Progress | None = None) -> Knobs:
        """See `Costs`."""
        return knobs

    def ends(self, options: CompileOptions) -> EndBytes:
        """See `Costs`; words are few bytes."""
        return EndBytes(0, 0)

    def whole_plan(self, knobs: Knobs) -> Plan | None:
        """See `Costs`."""
        return None

    def bound_plan(self, knobs: Knobs) -> Plan | None:
        """See `Costs`."""
        return None

    def profile(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """See `Costs`.

        Raises:
            BadInput: there is none without the numbers of devices and tokens.
        """
        raise BadInput(_NO_PROFILE)

    layers = profile

    def ranges(
        self, knobs: Knobs, correction: Correction, progress: Progress | None = None, device: int = 0
    ) -> tuple[ModelProfile, CostTable]:
        """See `Costs`; there are none, as there is no `profile`."""
        raise BadInput(_NO_PROFILE)

    def learn_ranges(self, options: CompileOptions, measured: Iterable[WholeRange]) -> None:
        """See `Costs`."""

    def learn_speed(self, knobs: Knobs, estimated_per_s: float, measured_per_s: float) -> None:
        """See `Costs`."""


def check_tokens(knobs: Knobs) -> None:
    """Refuse steps without room for a token of every sequence that the engine counts.

    Raises:
        Unsupported: there are too many sequences.
    """
    session = session_of(knobs)
    n_sequences = engine_named(session.engine).n_counted_sequences(knobs.batch_size, knobs.n_ipu)
    if n_sequences > session.max_batched_tokens:
        raise Unsupported(
            f"{session.engine} needs max_batched_tokens of at least its {n_sequences:,} sequences, "
            f"got {session.max_batched_tokens:,}; try a smaller batch_size"
        )


def session_of(knobs: Knobs) -> GpuSession:
    """The session of a configuration on GPUs."""
    if not isinstance(knobs.session, GpuSession):
        raise BadInput(f"a configuration on GPUs has an engine, got none; try engine {DEFAULT_ENGINE}")
    return knobs.session


def requests_of(knobs: Knobs) -> Workload:
    """The requests of a configuration that generates text."""
    if not isinstance(knobs.mode, Generation):
        raise BadInput("a configuration on GPUs has input_tokens and output_tokens, got none; give both")
    return Workload(knobs.mode.input_tokens, knobs.mode.output_tokens)
