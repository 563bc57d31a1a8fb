"""A serving engine: `Engine`.

    mixes           a prompt is computed in steps that decode other sequences too   ▒▓░░░░▒▓░░
    does not        prompts first: all sequences wait for them, then decode         ▓▓▓░░░░░░░

All stages of a replica have groups of one size, since every engine is told one [unequal-groups].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2, sqrt
from typing import NamedTuple

from autoauto.engines.command import Launcher
from autoauto.engines.load_drivers import DriverOf, driver_of
from autoauto.engines.rules import ENGINE_RULES, GroupSplit, Rule
from autoauto.engines.stand_in import NO_EXCEPTIONS, Contradiction, KernelExceptions
from autoauto.engines.step_rules import DEFAULT_RULES, Release, StepRules
from autoauto.records.costs.decoder import Decoder, WeightFormat
from autoauto.records.units import MIB, FloatArray


class HostCosts(NamedTuple):
    """What the host CPU adds to the times of kernels, in seconds.

    Attributes:
        sequence_s: of every sequence in every step: scheduling, sampling, text of the new token.
        first_token_s: of every request: tokenizing the prompt and starting the response.
        together: the share of requests of one length that arrive together with all others in flight after the first
            wave, too, and wait for their prompts.
        stage_sequence_s: of every sequence in every step of a stage of a pipeline, besides `sequence_s`; where no
            pipeline of an engine was measured, that of TensorRT-LLM is assumed.
        n_behind: prompts of others behind which one is computed in the mean, where requests of one length come again.
    """

    step_s: float
    sequence_s: float
    first_token_s: float
    together: float
    stage_sequence_s: float = 45e-6
    n_behind: float = 0.0

    def of_step(self, n_sequences: FloatArray, n_stages: int) -> FloatArray:
        """Seconds that a step of so many sequences takes besides its kernels, in every stage."""
        return self.step_s + n_sequences * (self.sequence_s + (n_stages > 1) * self.stage_sequence_s)


NOT_MEASURED = 0.17
"""The `stage_error` of an engine of whose pipelines nothing was measured: by so much for a doubling of the stages were
pipelines of TensorRT-LLM slower than forecast, before its own costs of a stage were fitted."""


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """What measured rows of an engine say of its forecasts, and how the published ones were measured.

    Attributes:
        stage_error: how far forecasts of pipelines are off: the standard deviation of the logarithm of measured over
            forecast times that a doubling of the stages adds.
    """

    driver_of: DriverOf = driver_of  # the load driver of a published row
    stage_error: float = NOT_MEASURED
    contradicted: tuple[Contradiction, ...] = ()

    def stages_error(self, n_stages: int) -> float:
        """`stage_error` of so many stages; doublings err independently."""
        return self.stage_error * sqrt(log2(n_stages))


class NodePart(NamedTuple):
    """The GPUs of a node that a replica has."""

    node: int  # counted over the cluster
    n_gpus: int  # for stages that follow each other


ShareOfMemory = Callable[[int, int, int], float]
"""The share of a GPU's memory that an engine takes, from its bytes, the tensor-parallel size and the stages."""


@dataclass(frozen=True, slots=True)
class ConstantShare:
    """The same share of memory on every GPU: a `ShareOfMemory` that can be sent to another process."""

    share: float

    def __call__(self, *_: int) -> float:
        """The share, whatever the GPU."""
        return self.share


class EngineMemory(NamedTuple):
    """What an engine holds on a GPU besides weights and KV cache, and how much of the memory it takes.

    Attributes:
        share: of the memory of a GPU that the engine takes for all, or of what is free once weights are there.
        activation_factors: bytes of activations per token and element of attention, halved, by tensor-parallel size.
        base_bytes: kernels and libraries on a GPU alone.
        group_bytes: buffers of NCCL and of all-reduces on a GPU of a group of several.
        logit_bytes: per sequence and token of the vocabulary, while tokens are sampled.
        graph_bytes: per block, what is set aside for CUDA graphs; twice that on a GPU of a group of several.
        is_of_free: True if `share` is of what is free, for the KV cache alone.
        counts_activations: True if `share` is for activations and graphs too.
        earlier: what releases before another held, by that release, the oldest first.
    """

    share: ShareOfMemory
    activation_factors: Mapping[int, float]
    min_activation_bytes: int
    base_bytes: int = 512 * MIB
    group_bytes: int = 1638 * MIB
    logit_bytes: float = 0.0
    graph_bytes: int = 0
    is_of_free: bool = False
    counts_activations: bool = True
    earlier: tuple[tuple[Release, EngineMemory], ...] = ()

    def of(self, release: Release) -> EngineMemory:
        """The memory of a release."""
        return next((memory for before, memory in self.earlier if release < before), self)

    def activation_factor(self, tensor_parallel: int) -> float:
        """The factor of a group; of a size between two that are known, that of the smaller, which holds more."""
        return self.activation_factors[max(n for n in self.activation_factors if n <= tensor_parallel)]

    @property
    def is_of_all(self) -> bool:
        """True if the share is of all memory and for everything that a GPU holds."""
        return self.counts_activations and not self.is_of_free


@dataclass(frozen=True, slots=True)
class Engine:
    """A serving engine.

    Attributes:
        name: the value of the knob "engine".
        kernel_times: the engine whose measured kernels stand for its own, as the package of extra gpu names it.
        mixes: True if a step computes prompts and decodes; else prompts come first and decoding waits.
    """

    name: str
    title: str
    kernel_times: str
    mixes: bool
    memory: EngineMemory
    host: HostCosts  # what the host CPU adds
    launcher: Launcher
    step_rules: StepRules = DEFAULT_RULES  # how requests are admitted to its steps
    rules: tuple[Rule, ...] = ENGINE_RULES  # what it takes of blocks, groups and formats
    model_rules: tuple[Rule, ...] = ()  # what it takes of models besides
    kernel_exceptions: KernelExceptions = NO_EXCEPTIONS  # kernels whose times are not simply those of `kernel_times`
    measured: MeasuredRows = MeasuredRows()

    def takes(self, decoder: Decoder, split: GroupSplit, weights: WeightFormat) -> str | None:
        """Why the engine refuses a decoder in groups of this kind and weights of this format; None if it takes them."""
        if conflict := self.split_conflict(split):
            return conflict
        for rule in self.model_rules:
            if reason := rule(decoder, split, weights):
                return reason
        for alike in decoder.by_kind:
            # blocks without experts are split as any others are
            of_kind = split if alike.experts or not decoder.experts else GroupSplit(split.tensor_parallel)
            for rule in self.rules:
                if reason := rule(alike, of_kind, weights):
                    return reason
        return None

    def split_conflict(self, split: GroupSplit) -> str:
        """Why a group cannot have such ranks, or experts cannot be dealt so in it, or an empty text."""
        placing = self.launcher.placing
        has_ranks_of_several = split.attention_data_parallel > 1 and split.tensor_parallel > 1
        if has_ranks_of_several and not placing.splits_ranks:
            return (
                f"{self.name} has ranks of one GPU each where attention is data-parallel, got tensor_parallel "
                f"{split.tensor_parallel}; try tensor_parallel 1"
            )
        able = placing.experts_among(split.n_gpus)
        if split.expert_parallel in able:
            return ""
        counts = " or ".join(map(str, able))
        return (
            f"{self.name} deals experts among {counts} of {split.n_gpus} GPUs of a group, got {split.expert_parallel}"
        )

    def makes_conflict(self, published: WeightFormat, weights: WeightFormat) -> str:
        """Why the engine does not make weights of a published checkpoint when it loads it, or an empty text."""
        able = list(self.launcher.makes) if published is WeightFormat.BF16 else []
        if weights is published or weights in able:
            return ""
        made = " or ".join(map(str, able)) or "nothing else"
        return (
            f"{self.title} makes {made} of a checkpoint in {published} when it loads it, got a configuration in "
            f"{weights}"
        )

    def headroom_conflict(self, usable_share: float, gpu: str) -> str:
        """Why a plan that may fill a share of a GPU cannot leave free what the engine would take, or an empty text."""
        if usable_share >= 1 or self.memory.is_of_all:
            return ""
        return (
            f"{self.title} takes a share of what is free, so a plan has all memory of {gpu}, got {usable_share:.1%} of "
            "it; try without --headroom, or another engine"
        )

    def nodes_conflict(self, parts: Sequence[NodePart], split: GroupSplit) -> str:
        """Why a replica cannot have its stages on these nodes, in this order; an empty text if it can.

        A process on each node counts as many GPUs, and the nodes one after the other: engines are told two numbers.
        Where ranks of the attention are counted before stages, the stages of a rank would be on one node.
        """
        is_even = len({part.n_gpus for part in parts}) == 1 and len({part.node for part in parts}) == len(parts)
        is_one_stage = sum(part.n_gpus for part in parts) == split.n_gpus
        if len(parts) == 1 or (is_even and self._spans_nodes(split, is_one_stage=is_one_stage)):
            return ""
        return self.nodes_rule(split)

    def _spans_nodes(self, split: GroupSplit, *, is_one_stage: bool = False) -> bool:
        has_order = not self.launcher.placing.ranks_first or split.attention_data_parallel == 1 or is_one_stage
        return self.launcher.placing.spans_machines and has_order

    def nodes_rule(self, split: GroupSplit) -> str:
        """The beginning of a sentence that says on which nodes a replica may stand."""
        rule = f"{self.name} has the stages of a replica"
        if split.attention_data_parallel > 1:
            rule += " with data-parallel attention"
        rule += " in one node"
        if self._spans_nodes(split):
            rule += ", or as many in each of several nodes"
        return rule
