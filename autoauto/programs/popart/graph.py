"""The values of PopART's pipelining: `PipelineGraph` in, `PopartPipeline` with ops, stashes and program out.

The words are those of [popart-pipelining]: a *fragment* is the ops of one kind that a stage runs in a pipeline cycle; a
*stash* holds activations until a later stage on the same device restores them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import repeat
from typing import NamedTuple


class TensorKind(StrEnum):
    """The origin of the values of a tensor."""

    ACTIVATION = "activation"
    """A layer computes it for every micro-batch; gradients of activations are activations, too."""
    STREAM = "stream"
    """The host sends it for every micro-batch."""
    VARIABLE = "variable"
    CONSTANT = "constant"
    OPTIMIZER = "optimizer"


class PipelineTensor(NamedTuple):
    """A tensor and its properties.

    Attributes:
        is_anchor: whether it goes to the host for every micro-batch (PopART: an anchor).
        streamed_to: the devices that a stream goes to; empty for the device of its first reader.
    """

    name: str
    kind: TensorKind = TensorKind.ACTIVATION
    is_anchor: bool = False
    streamed_to: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PipelineLayer:
    """A layer of the forward graph, as the user writes it.

    Attributes:
        stage: its pipeline stage; None on all layers to take the device's number.
        device: its device (PopART: virtual graph); None where the user names none.
        gradient_needs: the inputs and outputs that its gradient reads.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    stage: int | None
    device: int | None
    gradient_needs: tuple[str, ...]
    recompute: bool = False


@dataclass(frozen=True, slots=True)
class PipelineGraph:
    """Layers in an order in which each reads outputs of earlier ones.

    The user may ask for a second program, of the forward pass alone.
    """

    layers: tuple[PipelineLayer, ...]
    tensors: Mapping[str, PipelineTensor]
    forward_only_program: bool = False

    @property
    def results(self) -> frozenset[str]:
        """The outputs that no layer reads."""
        read: set[str] = set()
        for layer in self.layers:
            read.update(layer.inputs)
        return frozenset(self.makers.keys() - read)

    @property
    def makers(self) -> dict[str, PipelineLayer]:
        """For every output of a layer the layer that makes it."""
        makers: dict[str, PipelineLayer] = {}
        for layer in self.layers:
            makers.update(dict.fromkeys(layer.outputs, layer))
        return makers

    @property
    def anchors(self) -> frozenset[str]:
        """The tensors that go to the host: the results and the anchors."""
        return self.results | {name for name, tensor in self.tensors.items() if tensor.is_anchor}

    def changes(self, name: str) -> bool:
        """True if every micro-batch has its own value; tensors that a transformation adds do."""
        return name not in self.tensors or self.tensors[name].kind in {TensorKind.ACTIVATION, TensorKind.STREAM}


class OpKind(StrEnum):
    """The kinds of ops in a pipeline."""

    MAIN = "main"
    """A layer, or its gradient."""
    TO_DEVICE = "to_device"
    TO_HOST = "to_host"
    COPY = "copy"
    """Between the devices of neighbouring stages, when all stages have computed."""
    CLONE = "clone"
    """Copies a value on its device before the value is overwritten there."""
    STASH = "stash"
    RESTORE = "restore"


class Fragment(StrEnum):
    """The kinds of program fragment, in the order of a cycle."""

    TO_DEVICE = "D"
    MAIN = "M"
    TO_HOST = "H"
    COPY = "C"


_FRAGMENTS = {
    OpKind.TO_DEVICE: Fragment.TO_DEVICE,
    OpKind.TO_HOST: Fragment.TO_HOST,
    OpKind.COPY: Fragment.COPY,
}


@dataclass(frozen=True, slots=True)
class PipelineOp:
    """An op on a stage and a device; tensors are names of storage, which several ops may write.

    Attributes:
        backward: it is the gradient of a layer.
        recompute: it runs a layer a second time, in the backward stage.
    """

    name: str
    kind: OpKind
    stage: int
    device: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    backward: bool = False
    recompute: bool = False

    @property
    def fragment(self) -> Fragment:
        """The program fragment that contains the op."""
        return _FRAGMENTS.get(self.kind, Fragment.MAIN)


class Stash(NamedTuple):
    """A tensor whose last values wait on their device for later stages.

    Attributes:
        stage: where it is stashed.
        restore_stages: where it is restored, ascending.
        in_place: whether it is restored into the tensor itself.
    """

    tensor: str
    device: int
    stage: int
    restore_stages: tuple[int, ...]
    in_place: bool

    @property
    def n_entries(self) -> int:
        """Values held: restore_stage - stash_stage + 1, as a cycle stashes before it restores."""
        return self.restore_stages[-1] - self.stage + 1

    def entry(self, micro_batch: int) -> int:
        """The entry of a micro-batch's value: the index grows by one, modulo the size."""
        return micro_batch % self.n_entries


class FragmentCall(NamedTuple):
    """One call of a fragment; the copies of all stages are one fragment, without a stage."""

    fragment: Fragment
    stage: int | None = None

    def __str__(self) -> str:
        return str(self.fragment) if self.stage is None else f"ps{self.stage}[{self.fragment}]"


Cycle = tuple[FragmentCall, ...]


@dataclass(frozen=True, slots=True)
class PipelineProgram:
    """Fill, one main cycle that repeats, flush [popart-pipelining].

    Attributes:
        n_main: how often `main` runs.
        carried: the tensors that the copies of one main cycle write for the next: they enter the loop from the fill
            phase (loop_in), are carried from cycle to cycle, and leave it for the flush phase (loop_out).
    """

    fill: tuple[Cycle, ...]
    main: Cycle
    n_main: int
    flush: tuple[Cycle, ...]
    carried: tuple[str, ...]

    @property
    def n_cycles(self) -> int:
        """Number of pipeline cycles: 2 (P - 1) + (G - (P - 1)) for P stages and G micro-batches."""
        return len(self.fill) + self.n_main + len(self.flush)

    def cycles(self) -> Iterator[Cycle]:
        """All cycles, one after the other."""
        yield from self.fill
        yield from repeat(self.main, self.n_main)
        yield from self.flush


@dataclass(frozen=True, slots=True)
class PopartPipeline:
    """A graph after the pipelining transformation.

    Attributes:
        ops: in an order that each stage can follow.
        devices: the device of every stage.
    """

    ops: tuple[PipelineOp, ...]
    devices: tuple[int, ...]
    n_micro_batches: int
    stashes: tuple[Stash, ...]
    program: PipelineProgram

    @property
    def n_stages(self) -> int:
        """Number of stages, the backward ones included."""
        return len(self.devices)

    @property
    def copies(self) -> tuple[PipelineOp, ...]:
        """The copies between devices."""
        return tuple(op for op in self.ops if op.kind is OpKind.COPY)

    @property
    def stash_entries(self) -> dict[int, int]:
        """For every device, the number of values in all its stashes."""
        entries = dict.fromkeys(sorted(self.devices), 0)
        for stash in self.stashes:
            entries[stash.device] += stash.n_entries
        return entries
