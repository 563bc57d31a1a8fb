"""Targets and what they compile layers to: `Target`, `CompiledRange`, `LayerProfile`, `ModelProfile`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.units import Precision

PROFILE_SCHEMA = 2
TEMPORARY = "temporary"
PARAMETER = "parameter"
GRADIENT = "gradient"
STASH = "stash"


def category(shared_key: str) -> str:
    """The category of a shared key "category_identity".

    >>> category("vertexCode_conv_1x1")
    'vertexCode'
    """
    return shared_key.partition("_")[0]


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The options with which a target compiles a range of layers.

    Attributes:
        batch_size: samples in one micro-batch.
        memory_proportion: share of a tile's memory that temporaries of a matmul or convolution may take (0 to 1).
        precision: format of weights and activations.
        training: whether there is a backward pass.
    """

    batch_size: int
    memory_proportion: float
    precision: Precision
    training: bool = False


class ProgramStep(NamedTuple):
    """One step of a compiled program.

    Attributes:
        name: the layer and what is done for it, for example "conv1/convolve".
        cycles: cycles of one micro-batch.
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
    """

    steps: tuple[ProgramStep, ...]
    backward_cycles: int
    shared: Mapping[str, int]
    exclusive: Mapping[str, int]
    weight_cycles: int = 0
    activation_bytes: int = 0
    backward_temporary_bytes: int = 0

    @property
    def forward_cycles(self) -> int:
        """Cycles of one micro-batch, without transfers between devices."""
        return sum(step.cycles for step in self.steps)

    @property
    def temporary_bytes(self) -> int:
        """The peak of temporary memory, forward or backward."""
        return max(self.backward_temporary_bytes, *(step.temporary_bytes for step in self.steps))

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Bytes by category: shared keys under the category before their first "_", exclusive bytes, temporary peak.

        >>> CompiledRange((ProgramStep("a", 7, 3),), 0, {"vertexCode_1": 5}, {"parameter": 2}).memory_bytes
        {'vertexCode': 5, 'parameter': 2, 'temporary': 3}
        """
        memory: dict[str, int] = {}
        for key, n_bytes in self.shared.items():
            memory[category(key)] = memory.get(category(key), 0) + n_bytes
        for name, n_bytes in self.exclusive.items():
            memory[name] = memory.get(name, 0) + n_bytes
        memory[TEMPORARY] = memory.get(TEMPORARY, 0) + self.temporary_bytes
        return memory


class Target(Protocol):
    """A kind of device that ranges of layers can be compiled for, by a cost model or by running them.

    This is all that a device of your own needs; `studies/custom_target.py` has an example of 40 lines. `compile` is
    called for every kind of layer alone at the batch sizes that `profiled` returns, for a few ranges to which the
    estimate is fitted, and for every stage of a plan that is measured. The results for single layers and for those
    ranges are cached under `version` and `depends_on`, and not asked for again. `compile` may raise OutOfMemory: the
    configuration does not fit, and the search continues. Any other exception ends the search. The target is pickled
    where other processes measure.

    A target that also runs whole plans is a `Runner` (`autoauto.records.timeline`): the run is then the measurement, a
    search has a smaller default space, and the values of its trials have noise.
    """

    @property
    def version(self) -> str:
        """A text that changes whenever equal input may compile to something else; part of every cache key."""

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        """The batch sizes at which layers are compiled to profile them at `batch_size`: itself, or two around it.

        Compiling for a cost model is cheap, running layers on a real device is not; between two sizes the profiler
        interpolates.
        """

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        """What a compiled range depends on in `device` and `options`; its repr is part of every cache key."""

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        """Compile `layers` of `graph` as one program for `device`; the caller checks memory limits."""


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One layer compiled alone, and the tensors that are alive around it in its model.

    All bytes are for one micro-batch. Stored profiles have keys by these names (`autoauto.profile.store.codec`).

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


class Cache(Protocol):
    """Profiles of compiled layers, by a digest of everything that they depend on."""

    def read(self, digests: Iterable[str]) -> dict[str, LayerProfile]:
        """The cached entries among `digests`."""

    def write(self, entries: Mapping[str, LayerProfile]) -> None:
        """Store `entries`; entries that are stored already do not change."""

    def open(self, tables: Sequence[str]) -> AbstractContextManager[Any]:
        """The database of the cache for one transaction; `tables` are created where they are missing.

        The result has the methods `execute` and `executemany` of an SQLite connection, takes "?" for parameters, and
        understands the SQL that SQLite and PostgreSQL have in common.
        """


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The profiles of all layers at one batch size.

    Attributes:
        model: the model's name.
        target: what it was compiled for, for example "ipu bow".
        options: how it was compiled; None when an imported profile does not contain them.
        names, kinds: one entry a layer.
        tied: one entry a layer; layers of equal key must share a stage, None is free.
        layers: one `LayerProfile` a layer.
        schema: version of the saved form.
    """

    model: str
    target: str
    options: CompileOptions | None
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    tied: tuple[str | None, ...]
    layers: tuple[LayerProfile, ...]
    schema: int = field(default=PROFILE_SCHEMA)

    def __post_init__(self) -> None:
        assert len(self.names) == len(self.kinds) == len(self.tied) == len(self.layers) > 0

    def __len__(self) -> int:
        return len(self.layers)
