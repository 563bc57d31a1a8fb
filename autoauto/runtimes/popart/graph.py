"""What PopART's pipelining works on and makes: layers on stages and devices, ops, stashes, a program of fragments.

The words are those of seed 000: a *fragment* is what a stage does in a pipeline cycle of one kind, a *stash* holds
activations until a later stage on the same device restores them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class TensorKind(StrEnum):
    """Where the values of a tensor come from."""

    ACTIVATION = "activation"
    """A layer, anew for every micro-batch; gradients of activations too."""
    STREAM = "stream"
    """The host, anew for every micro-batch."""
    VARIABLE = "variable"
    CONSTANT = "constant"
    OPTIMIZER = "optimizer"


class PipelineTensor(NamedTuple):
    """A tensor and its marks.

    Attributes:
        anchored: the host wants it for every micro-batch.
        streamed_to: the devices a stream is meant for; empty for that of its first reader.
    """

    name: str
    kind: TensorKind = TensorKind.ACTIVATION
    anchored: bool = False
    streamed_to: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PipelineLayer:
    """A layer of the forward graph, as the user gives it.

    Attributes:
        stage: its pipeline stage; None on all layers to take the device's number.
        device: its device (PopART: virtual graph); None where the user names none.
        gradient_needs: those of its inputs and outputs that its gradient reads.
        recompute: the user asks for it to be recomputed.
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
    """Layers in an order in which each reads what earlier ones made.

    Attributes:
        tensors: every tensor of the layers, by name.
        forward_only_program: the user asks for a program of the forward pass beside that of the training.
    """

    layers: tuple[PipelineLayer, ...]
    tensors: Mapping[str, PipelineTensor]
    forward_only_program: bool = False

    @property
    def results(self) -> frozenset[str]:
        """What layers make and none reads."""
        read = {name for layer in self.layers for name in layer.inputs}
        return frozenset(name for layer in self.layers for name in layer.outputs if name not in read)

    @property
    def anchors(self) -> frozenset[str]:
        """What goes to the host: the results, and all that is anchored."""
        return self.results | {name for name, tensor in self.tensors.items() if tensor.anchored}

    def changes(self, name: str) -> bool:
        """Whether every micro-batch has its own value; what a transformation adds does."""
        return name not in self.tensors or self.tensors[name].kind in {TensorKind.ACTIVATION, TensorKind.STREAM}


class OpKind(StrEnum):
    """What an op does."""

    MAIN = "main"
    """A layer, or its gradient."""
    TO_DEVICE = "to_device"
    TO_HOST = "to_host"
    COPY = "copy"
    """Between the devices of neighbouring stages, when all stages have computed."""
    CLONE = "clone"
    """Keeps a value that is overwritten on the device before it is copied."""
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
        """The fragment of its stage that it is part of."""
        return _FRAGMENTS.get(self.kind, Fragment.MAIN)


class Stash(NamedTuple):
    """A tensor whose last values wait on their device for later stages.

    Attributes:
        stage: where it is stashed.
        restore_stages: where it is restored, ascending.
        in_place: restored into the tensor itself.
    """

    tensor: str
    device: int
    stage: int
    restore_stages: tuple[int, ...]
    in_place: bool

    @property
    def n_entries(self) -> int:
        """Values held: restore_stage - stash_stage + 1, as a cycle stashes before it restores (IPU.md section 4).

        >>> Stash("in", device=0, stage=0, restore_stages=(4,), in_place=True).n_entries
        5
        """
        return self.restore_stages[-1] - self.stage + 1

    def entry(self, micro_batch: int) -> int:
        """Where a micro-batch's value lies: the index goes up by one, modulo the size.

        >>> [Stash("in", 0, 0, (2,), True).entry(m) for m in range(5)]
        [0, 1, 2, 0, 1]
        """
        return micro_batch % self.n_entries


class Step(NamedTuple):
    """One call of a fragment; the copies of all stages are one fragment, without a stage.

    >>> str(Step(Fragment.MAIN, 1)), str(Step(Fragment.COPY))
    ('ps1[M]', 'C')
    """

    fragment: Fragment
    stage: int | None = None

    def __str__(self) -> str:
        return str(self.fragment) if self.stage is None else f"ps{self.stage}[{self.fragment}]"


Cycle = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class PipelineProgram:
    """Fill, one main cycle that repeats, flush (seed 000).

    Attributes:
        n_main: how often `main` runs.
        carried: what the copies of one main cycle leave for the next: it enters the loop from the fill phase
            (loop_in), is carried from cycle to cycle, and leaves it for the flush phase (loop_out).
    """

    fill: tuple[Cycle, ...]
    main: Cycle
    n_main: int
    flush: tuple[Cycle, ...]
    carried: tuple[str, ...]

    @property
    def n_cycles(self) -> int:
        """How many pipeline cycles there are: 2 (P - 1) + (G - (P - 1)) for P stages and G micro-batches."""
        return len(self.fill) + self.n_main + len(self.flush)

    def cycles(self) -> Iterator[Cycle]:
        """All cycles, one after the other."""
        yield from self.fill
        yield from (self.main for _ in range(self.n_main))
        yield from self.flush


@dataclass(frozen=True, slots=True)
class Pipeline:
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
        """How many stages there are, the backward ones included."""
        return len(self.devices)

    @property
    def copies(self) -> tuple[PipelineOp, ...]:
        """The copies between devices."""
        return tuple(op for op in self.ops if op.kind is OpKind.COPY)

    @property
    def stash_entries(self) -> dict[int, int]:
        """For every device how many values its stashes hold together."""
        entries = dict.fromkeys(sorted(self.devices), 0)
        for stash in self.stashes:
            entries[stash.device] += stash.n_entries
        return entries
