"""Costs of compiled layers: `CompiledRange`, `LayerProfile`, `ModelProfile`.

`WeightUpdate` has the costs of the end of a training step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from typing import NamedTuple

from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerGraph
from autoauto.records.units import Precision

PROFILE_SCHEMA = 9
"""Of stored profiles; raised whenever they, or the cached profiles of layers, mean something else than before."""
TEMPORARY = "temporary"
PARAMETER = "parameter"
GRADIENT = "gradient"
STASH = "stash"
WEIGHTS = "weights"
"""Of a stage of a decoder."""
RESERVE = "reserve"
"""What an engine of decoders leaves free beside its KV cache: counted against the limit, and held by nothing."""
OUTLINED = "outlined"
"""What a program saves, a number below 0, by one subgraph for equal layers; or the copies of weights that it makes."""


def category(shared_key: str) -> str:
    """The category of a shared key "category_identity"."""
    return shared_key.partition("_")[0]


def gradient_bytes(memory_bytes: Mapping[str, int]) -> int:
    """Bytes of the gradients of parameters; as many as the parameters where a profile of other programs has no more.

    >>> gradient_bytes({"parameter": 9, "gradient": 4}), gradient_bytes({"parameter": 9})
    (4, 9)
    """
    return memory_bytes.get(GRADIENT, memory_bytes.get(PARAMETER, 0))


class Optimizer(StrEnum):
    """The rule by which gradients change weights."""

    SGD = "sgd"
    """Gradient descent without state."""
    MOMENTUM = "momentum"
    """Gradient descent with a velocity in the format of the weights."""
    ADAM = "adam"
    """Two moments in fp32 [adam]."""
    LAMB = "lamb"
    """Those of Adam, and a step of every weight tensor in proportion to its norm [lamb]."""


class OptimizerState(StrEnum):
    """The memory in which the states of an optimizer lie."""

    AUTO = "auto"
    """On the chip where they fit, else in streaming memory, sharded."""
    ON_CHIP = "on-chip"
    """In the memory of the device."""
    STREAMING = "streaming"
    """In the streaming memory beside it; a step loads them, updates them and stores them."""
    STREAMING_SHARDED = "streaming-sharded"
    """The same, of every replica its part only [popxl-phased]."""


MASTER_WEIGHT = "masterWeight"
_MOMENTS = {"firstMoment": Precision.FP32, "secondMoment": Precision.FP32}
# The format of a state by its category of memory; None is that of the weights. Moments have fp32 by default in
# Graphcore's BERT [graphcore-examples].
_STATES: dict[Optimizer, dict[str, Precision | None]] = {
    Optimizer.SGD: {},
    Optimizer.MOMENTUM: {"velocity": None},
    Optimizer.ADAM: {**_MOMENTS},
    Optimizer.LAMB: {**_MOMENTS},
}


class WeightUpdate(NamedTuple):
    """The update of the weights of a stage at the end of a step.

    Attributes:
        master_weights: whether there is a copy of the weights in fp32, which is changed and then rounded.
        n_shards: replicas that share the states: each updates as large a part, and then all gather the weights.
    """

    optimizer: Optimizer = Optimizer.SGD
    master_weights: bool = False
    n_shards: int = 1
    streams: bool = False

    def state_bytes(self, gradient_bytes: int, precision: Precision) -> dict[str, int]:
        """Bytes of the states on a device by category, where gradients of so many bytes have the format of the weights.

        >>> WeightUpdate(Optimizer.ADAM).state_bytes(200, Precision.FP16)
        {'firstMoment': 400, 'secondMoment': 400}
        >>> WeightUpdate(Optimizer.MOMENTUM, master_weights=True, n_shards=4).state_bytes(200, Precision.FP16)
        {'velocity': 50, 'masterWeight': 100}
        """
        return {} if self.streams else self._states(gradient_bytes, precision)

    def streamed_bytes(self, gradient_bytes: int, precision: Precision) -> tuple[int, ...]:
        """Bytes of every state that a device has in streaming memory.

        >>> WeightUpdate(Optimizer.ADAM, n_shards=2, streams=True).streamed_bytes(200, Precision.FP16)
        (200, 200)
        """
        return tuple(self._states(gradient_bytes, precision).values()) if self.streams else ()

    def working_bytes(self, gradient_bytes: int, precision: Precision) -> int:
        """Bytes that a device needs besides while it updates a tensor of weights with gradients of so many bytes.

        There are the states that it streams, gradients cast to fp32 for moments in fp32, and the change of the weights.
        Replicas that share states need that for their part, and copies of the gradients, whose parts they sum, or of
        the weights that they gather (AdamDecompose and AdamUpdater of [popart-pipelining], at the same commit).

        >>> WeightUpdate(Optimizer.ADAM).working_bytes(200, Precision.FP16)
        600
        >>> WeightUpdate(Optimizer.ADAM, streams=True).working_bytes(200, Precision.FP16)
        1400
        >>> WeightUpdate(Optimizer.ADAM, n_shards=4, streams=True).working_bytes(200, Precision.FP16)
        600
        >>> WeightUpdate(Optimizer.SGD).working_bytes(200, Precision.FP16)
        0
        """
        part = -(-gradient_bytes // self.n_shards)
        n_bytes = sum(self.streamed_bytes(gradient_bytes, precision)) + (gradient_bytes + part) * (self.n_shards > 1)
        if self.optimizer in (Optimizer.ADAM, Optimizer.LAMB):
            cast_bytes = part // precision.n_bytes * Precision.FP32.n_bytes
            n_bytes += part
            if precision is not Precision.FP32:
                n_bytes += cast_bytes
        return n_bytes

    def _states(self, gradient_bytes: int, precision: Precision) -> dict[str, int]:
        formats = dict(_STATES[self.optimizer])
        if self.has_master_weights(precision):
            formats[MASTER_WEIGHT] = Precision.FP32
        n_bytes = {name: gradient_bytes * (kind or precision).n_bytes for name, kind in formats.items()}
        return {name: -(-n // (precision.n_bytes * self.n_shards)) for name, n in n_bytes.items()}

    def has_master_weights(self, precision: Precision) -> bool:
        """True if the weights have a copy: only where they are shorter than fp32."""
        return self.master_weights and precision is not Precision.FP32


class ProgramStep(NamedTuple):
    """One step of a compiled program.

    Attributes:
        name: the layer and what is done for it, for example "conv1/convolve".
        cycles: of one micro-batch.
        temporary_bytes: memory that is in use during the step but not always: live tensors and working memory.
    """

    name: str
    cycles: int
    temporary_bytes: int


@dataclass(frozen=True, slots=True)
class CompiledRange:
    """A range of layers that a target compiled as one program.

    Attributes:
        steps: the forward program, in order.
        backward_cycles: cycles of the backward pass; 0 for inference.
        shared: bytes by a key "category_identity"; equal keys on one device are stored once.
        exclusive: bytes by category that no other range shares.
        weight_cycles: the part of `backward_cycles` that makes the gradients of weights.
        activation_bytes: what one micro-batch stashes for its backward pass.
        backward_temporary_bytes: the peak of temporary memory in the backward pass, stashed activations included.
        checkpoint_bytes: what one micro-batch stashes besides the inputs of the range, where it recomputes.
        recompute_temporary_bytes: then the peak of temporary memory, forward or backward; 0 where the target does not
            know, so that it is that without recomputation.
        last_segment_cycles: of the forward pass, those after the last checkpoint in the range.
        binding_below_bytes: with sessions that differ in their bound alone (`Session.bound_bytes`) it compiles to the
            same, if none is below so many bytes; infinite where that is not known.
    """

    steps: tuple[ProgramStep, ...]
    backward_cycles: int
    shared: Mapping[str, int]
    exclusive: Mapping[str, int]
    weight_cycles: int = 0
    activation_bytes: int = 0
    backward_temporary_bytes: int = 0
    checkpoint_bytes: int = 0
    recompute_temporary_bytes: int = 0
    last_segment_cycles: int = 0
    binding_below_bytes: float = inf

    @property
    def forward_cycles(self) -> int:
        """Cycles of one micro-batch, without transfers between devices."""
        return sum(step.cycles for step in self.steps)

    def recomputed(self, *, keeps_last: bool = False) -> CompiledRange:
        """This range with a backward pass that runs the forward pass again from checkpoint to checkpoint.

        With `keeps_last` it begins with the activations of the last segment, which the forward pass has just made.
        """
        again_cycles = self.forward_cycles
        if keeps_last:
            again_cycles -= self.last_segment_cycles
        steps, peak_bytes = self.steps, self.recompute_temporary_bytes
        if peak_bytes:
            steps = tuple(step._replace(temporary_bytes=min(step.temporary_bytes, peak_bytes)) for step in steps)
        return replace(
            self,
            steps=steps,
            backward_cycles=self.backward_cycles + again_cycles,
            backward_temporary_bytes=peak_bytes or self.backward_temporary_bytes,
        )

    @property
    def temporary_bytes(self) -> int:
        """The peak of temporary memory, forward or backward."""
        return max(self.backward_temporary_bytes, *(step.temporary_bytes for step in self.steps))


class NodeTime(NamedTuple):
    """A node of the graph that a runtime makes of a model, timed by the runtime itself while it ran the whole model.

    The `names` are those of the node, and of the nodes of the file that it computes, as far as the runtime says.
    """

    names: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One layer, compiled alone or timed in its model, and the tensors that are alive around it there.

    All bytes are for one micro-batch. Stored profiles have keys by these names (`autoauto.profile.codec`).

    Attributes:
        forward_cycles, backward_cycles: without transfers between devices.
        shared, exclusive: always-live bytes, as in `CompiledRange`; a shared key counts once in a range.
        temporary_bytes: peak of temporary memory while this layer runs.
        carried_bytes: tensors made before this layer and read after it, so alive while it runs.
        input_bytes: all tensors alive just before the layer: what a stage that starts here receives.
        output_bytes: all tensors alive just after the layer: what a stage that stops after it sends.
        activation_bytes: what this layer is the first to stash for the backward pass; 0 for inference.
        weight_cycles: the part of `backward_cycles` that makes the gradients of weights.
        stashed_input_bytes: of `input_bytes`, what both earlier layers and layers from this one on stash for the
            backward pass, so that a stage which starts here has a stash of its own of it.
        checkpoint_bytes: where the stage recomputes and there is a checkpoint before this layer, what it stashes there
            that no earlier checkpoint has stashed.
    """

    forward_cycles: int
    backward_cycles: int
    shared: Mapping[str, int]
    exclusive: Mapping[str, int]
    temporary_bytes: int
    carried_bytes: int
    input_bytes: int
    output_bytes: int
    activation_bytes: int
    weight_cycles: int = 0
    stashed_input_bytes: int = 0
    checkpoint_bytes: int = 0


@dataclass(frozen=True, slots=True)
class UnboundLayer:
    """A layer alone, the same with every bound on the temporaries of a tile of `from_bytes` or more."""

    profile: LayerProfile
    from_bytes: float


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The profiles of all layers at one batch size.

    Attributes:
        target: what it was compiled for, for example "ipu bow".
        options: how it was compiled; None when an imported profile does not contain them.
        names, kinds, layers: one entry a layer.
        tied: one entry a layer; layers of equal key must share a stage, None is free.
        outlined: the categories of exclusive bytes that layers of one kind store once where they are one subgraph; each
            call then copies the weights of its layer. Without any, the target has no such subgraphs.
    """

    model: str
    target: str
    options: CompileOptions | None
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    tied: tuple[str | None, ...]
    layers: tuple[LayerProfile, ...]
    outlined: tuple[str, ...] = ()

    @staticmethod
    def of_graph(
        graph: LayerGraph,
        target: str,
        options: CompileOptions,
        layers: Sequence[LayerProfile],
        outlined: tuple[str, ...] = (),
    ) -> ModelProfile:
        """The profile of a graph, whose layers have names, kinds and ties; `layers` has the profile of each."""
        return ModelProfile(
            model=graph.name,
            target=target,
            options=options,
            names=tuple(layer.name for layer in graph.layers),
            kinds=tuple(layer.kind for layer in graph.layers),
            tied=tuple(layer.tied for layer in graph.layers),
            layers=tuple(layers),
            outlined=outlined,
        )

    def __post_init__(self) -> None:
        lengths = list(map(len, (self.names, self.kinds, self.tied, self.layers)))
        if len(set(lengths)) > 1 or not self.layers:
            raise BadInput(
                f"a profile needs names, kinds, tied and layers of one length, at least 1, got {lengths}; "
                "give every layer an entry in each"
            )

    def __len__(self) -> int:
        return len(self.layers)
