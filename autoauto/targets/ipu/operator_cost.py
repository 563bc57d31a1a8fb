"""What is known where a layer is compiled (`Site`) and what compiling it costs (`Work`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import NamedTuple

from autoauto.records.hardware import Device
from autoauto.records.layers import Layer, LayerGraph, Tensor
from autoauto.records.profile import CompileOptions
from autoauto.records.units import Precision

Shape = tuple[int, ...]


class Family(StrEnum):
    """Operators that store and lay out alike."""

    PRODUCT = "product"
    ELEMENTWISE = "elementwise"
    NORM = "norm"
    SOFTMAX = "softmax"
    REDUCE = "reduce"
    POOL = "pool"
    GATHER = "gather"
    MOVE = "move"
    SORT = "sort"


class Demand(NamedTuple):
    """Cycles to bring one operand into the layout that the layer wants, unless its maker left it there."""

    tensor: int
    cycles: int


@dataclass(frozen=True, slots=True)
class Work:
    """One layer on the tiles.

    Attributes:
        family: how it stores and lays out.
        exchange_cycles: syncs and bytes between tiles.
        compute_cycles: of the fullest tile.
        codelets: vertices that it needs; equal names are stored once a tile.
        n_tiles: how many tiles work.
        n_sources: tiles that the fullest tile receives from, over all exchanges.
        working_bytes: temporaries of the operator on all tiles.
        follows: the tensor whose layout the output keeps, -1 when the operator lays it out itself.
        demands: what a neighbour in the same program may spare it.
        within_bound: False when a product was planned without the bound on temporaries.
    """

    family: Family
    exchange_cycles: int
    compute_cycles: int
    codelets: tuple[str, ...]
    n_tiles: int
    n_sources: int = 0
    working_bytes: int = 0
    follows: int = -1
    demands: tuple[Demand, ...] = ()
    within_bound: bool = True

    @property
    def cycles(self) -> int:
        """Exchange and compute, demands aside."""
        return self.exchange_cycles + self.compute_cycles


def together(first: Work, *others: Work) -> Work:
    """Several works, one after the other, as one of the first one's family."""
    works = (first, *others)
    return Work(
        family=first.family,
        exchange_cycles=sum(work.exchange_cycles for work in works),
        compute_cycles=sum(work.compute_cycles for work in works),
        codelets=tuple(dict.fromkeys(name for work in works for name in work.codelets)),
        n_tiles=max(work.n_tiles for work in works),
        n_sources=sum(work.n_sources for work in works),
        working_bytes=max(work.working_bytes for work in works),
        follows=first.follows,
        demands=tuple(demand for work in works for demand in work.demands),
        within_bound=all(work.within_bound for work in works),
    )


@dataclass(frozen=True, slots=True)
class Site:
    """A layer of a graph on a device, with the options that it is compiled for."""

    graph: LayerGraph
    layer: Layer
    device: Device
    options: CompileOptions
    settings: Settings = DEFAULTS

    @property
    def precision(self) -> Precision:
        """Format of the operands; with fp8, that of products that `autoauto.graph.quantise` marked, else fp16."""
        if self.options.precision is Precision.FP8 and self.layer.attribute("precision") != Precision.FP8:
            return Precision.FP16
        return self.options.precision

    @property
    def out_precision(self) -> Precision:
        """Format of what a layer writes: fp8 products write halves."""
        return Precision.FP16 if self.precision is Precision.FP8 else self.precision

    @property
    def n_tiles(self) -> int:
        """Tiles of the device."""
        return self.device.n_tiles

    @property
    def bound_bytes(self) -> float:
        """What temporaries of a product may take on one tile."""
        return self.device.tile_memory_bytes * self.options.memory_proportion

    def tensor(self, position: int) -> Tensor | None:
        """The operand at a position, None when it is omitted."""
        operands = self.layer.operands
        if position >= len(operands) or operands[position] < 0:
            return None
        return self.graph.tensors[operands[position]]

    def shape(self, position: int) -> Shape:
        """The shape of an operand, () when it is omitted."""
        tensor = self.tensor(position)
        return () if tensor is None else tensor.shape_at(self.options.batch_size)

    @property
    def out_shape(self) -> Shape:
        """The shape of the first output."""
        return self.graph.tensors[self.layer.outputs[0]].shape_at(self.options.batch_size)

    @property
    def n_out(self) -> int:
        """Elements of all outputs."""
        return sum(self.graph.tensors[i].n_elements(self.options.batch_size) for i in self.layer.outputs)

    @property
    def present(self) -> tuple[int, ...]:
        """The operands that are there, as tensor indices, without repeats."""
        return tuple(dict.fromkeys(index for index in self.layer.operands if index >= 0))

    def n_bytes(self, index: int) -> int:
        """Bytes of a tensor by its index."""
        return self.graph.tensors[index].n_bytes(self.options.batch_size, self.precision)

    def n_elements(self, index: int) -> int:
        """Elements of a tensor by its index."""
        return self.graph.tensors[index].n_elements(self.options.batch_size)

    @property
    def out_bytes(self) -> int:
        """Bytes of all outputs."""
        return sum(self.n_bytes(index) for index in self.layer.outputs)

    def is_activation(self, index: int) -> bool:
        """Whether an operand is computed or fed, not a constant; views of constants are constants."""
        tensor = self.graph.tensors[index]
        return index in self.layer.inputs or tensor.producer >= 0 or tensor.batch_axis is not None

    def integer(self, name: str, default: int) -> int:
        """An attribute that is one integer."""
        value = self.layer.attribute(name)
        return value if isinstance(value, int) else default

    def integers(self, name: str, default: Shape) -> Shape:
        """An attribute that is a list of integers; one integer is a list of one."""
        value = self.layer.attribute(name)
        values = value if isinstance(value, tuple) else (value,)
        numbers = tuple(number for number in values if isinstance(number, int))
        return numbers or default

    def text(self, name: str) -> str:
        """An attribute that is a string, "" when there is none."""
        value = self.layer.attribute(name)
        return value if isinstance(value, str) else ""

    def axis(self, default: int, rank: int) -> int:
        """The attribute `axis`, counted from the front."""
        return self.integer("axis", default) % max(rank, 1)


def size(shape: Shape) -> int:
    """Elements of a shape; a scalar has one."""
    return prod(shape)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the tools were asked to compile.

    Attributes:
        partials: format of partial sums; PopRT's benchmarks ask for fp16, Poplar's own default is fp32, with which half
            of the matrix units rest. fp32 products have fp32 sums whatever it says.
        float_operators: ONNX operators that run in fp32 with casts around them (PopRT's `fp16_skip_op_types`).
    """

    partials: Precision = Precision.FP16
    float_operators: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """What differs from the defaults, for a target's version.

        >>> str(Settings()), str(Settings(Precision.FP32, frozenset({"Gelu"})))
        ('', ' partials fp32 float Gelu')
        """
        partials = "" if self.partials is Precision.FP16 else f" partials {self.partials}"
        return partials + (f" float {','.join(sorted(self.float_operators))}" if self.float_operators else "")


DEFAULTS = Settings()
