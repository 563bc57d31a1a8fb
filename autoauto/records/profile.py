"""What compiling layers told: `CompiledRange`, `LayerProfile`, `ModelProfile`."""

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
    """What a target needs to know to compile a range of layers.

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
        temporary_bytes: everything not always alive during the step: live tensors and working memory.
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
        activation_bytes: what one micro-batch keeps for its backward pass.
        backward_temporary_bytes: the peak of what is not always alive in the backward pass, what is kept included.
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
        """The peak of what is not always alive, forward or backward."""
        return max(self.backward_temporary_bytes, *(step.temporary_bytes for step in self.steps))

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Bytes by category: shared keys under the category before their first "_", exclusive ones, the peak.

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

    This is all that a device of your own needs; `studies/custom_target.py` is one in 40 lines. `compile` is called for
    every kind of layer alone at the batch sizes that `profiled` names, for a few ranges that teach the estimate, and
    for every stage of a plan that is measured. Layers and ranges that teach are kept by `version` and `depends_on`, and
    not asked for again. It may raise OutOfMemory: that configuration does not fit, and a search goes on; anything else
    ends the search. It is pickled where other processes measure.

    A target that also runs whole plans is a `Runner` (records/run.py): then the run is the measurement, a search has a
    smaller default space, and the values of its trials have noise.
    """

    @property
    def version(self) -> str:
        """Changes whenever equal input may compile to something else; part of every cache key."""

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        """The batch sizes at which layers are compiled to know them at `batch_size`: itself, or two that it is between.

        Compiling for a cost model is cheap, running layers on a real device is not: what lies between is interpolated.
        """

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        """What of `device` and `options` a compiled range depends on; its repr is part of every cache key."""

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        """Compile `layers` of `graph` as one program for `device`; memory limits are the caller's to check."""


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One layer compiled alone, and what of the model lives around it. All bytes are for one micro-batch.

    Attributes:
        forward_cycles, backward_cycles: without transfers between devices.
        shared, exclusive: always-live bytes, as in `CompiledRange`; a shared key counts once in a range.
        temporary_bytes: peak of what is not always alive while this layer runs.
        carried_bytes: tensors made before this layer and read after it, so alive while it runs.
        input_bytes: everything alive just before the layer: what a stage that starts here receives.
        output_bytes: everything alive just after the layer: what a stage that stops after it sends.
        activation_bytes: what this layer is the first to keep for the backward pass; 0 for inference.
        weight_cycles: the part of `backward_cycles` that makes the gradients of weights.
        kept_input_bytes: of `input_bytes`, what earlier layers keep for the backward pass and later ones keep too: a
            stage that starts here keeps it for itself.
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
    kept_input_bytes: int = 0


class Cache(Protocol):
    """Compiled layers kept from earlier, by a digest of all that they depend on."""

    def read(self, digests: Iterable[str]) -> dict[str, LayerProfile]:
        """The entries there are among `digests`."""

    def write(self, entries: Mapping[str, LayerProfile]) -> None:
        """Keep `entries`; those that there are already stay as they are."""

    def open(self, tables: Sequence[str]) -> AbstractContextManager[Any]:
        """The database beneath, one transaction, with `tables` made where they are missing.

        It has the methods `execute` and `executemany` of an SQLite connection, "?" for parameters, and understands the
        SQL that SQLite and PostgreSQL have in common.
        """


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The profiles of all layers at one batch size.

    Attributes:
        model: the model's name.
        target: what it was compiled for, for example "ipu bow".
        options: how it was compiled; None when a profile taken elsewhere does not say.
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
