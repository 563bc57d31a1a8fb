"""The input and the result of a cost rule: a layer in its `OperatorContext`, and its `OperatorCost`.

`relayout_cycles` leaves out relayouts that a neighbour saves: layers write as their readers in the same program read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from autoauto.records.costs.options import CompileOptions
from autoauto.records.hardware import Device
from autoauto.records.layers import Layer, LayerGraph, LayerRange, Tensor
from autoauto.records.units import Precision
from autoauto.targets.ipu.session import memory_proportion

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CompilerSettings:
    """Options of Poplar's compiler that are no knobs of the search.

    Attributes:
        partials: format of partial sums; PopRT's benchmarks ask for fp16, Poplar's default is fp32, with which half of
            the matrix units rest. fp32 products always have fp32 sums.
        float_operators: ONNX operators that run in fp32 with casts around them (PopRT's `fp16_skip_op_types`).
        erf_gelu: whether Gelu is computed by the error function (PopRT's `enable_erf_gelu`), else by tanh.
    """

    partials: Precision = Precision.FP16
    float_operators: frozenset[str] = frozenset()
    erf_gelu: bool = False

    def __str__(self) -> str:
        """The settings that differ from the defaults, for a target's version.

        >>> str(CompilerSettings()), str(CompilerSettings(Precision.FP32, frozenset({"Gelu"}), erf_gelu=True))
        ('', ' partials fp32 float Gelu erf_gelu')
        """
        text = ""
        if self.partials is not Precision.FP16:
            text += f" partials {self.partials}"
        if self.float_operators:
            text += f" float {','.join(sorted(self.float_operators))}"
        if self.erf_gelu:
            text += " erf_gelu"
        return text


DEFAULT_SETTINGS = CompilerSettings()


class Family(StrEnum):
    """Operators whose code, state and layout of the output are alike."""

    PRODUCT = "product"
    ELEMENTWISE = "elementwise"
    NORM = "norm"
    SOFTMAX = "softmax"
    REDUCE = "reduce"
    POOL = "pool"
    GATHER = "gather"
    MOVE = "move"
    SORT = "sort"


class Relayout(NamedTuple):
    """Cycles to bring one operand, by its tensor index, into the layout that the layer reads.

    They are not spent when the layer that wrote the operand wrote it in that layout.
    """

    tensor: int
    cycles: int


class OperatorCost(NamedTuple):
    """The cost of one layer, or of one pass over data, on the tiles.

    Attributes:
        family: decides code, state and layout.
        exchange_cycles: cycles of syncs and of bytes between tiles.
        compute_cycles: compute cycles of the fullest tile.
        codelets: vertices that it needs; equal names are stored once a tile.
        n_sources: tiles that the fullest tile receives from, over all exchanges.
        working_bytes: temporaries of the operator on all tiles.
        follows: the tensor whose layout the output keeps, -1 when the operator lays it out itself.
        within_bound: False when a product was planned without the bound on temporaries.
        binding_below_bytes: any bound of so many bytes or more on the temporaries of a tile gives the same cost.
    """

    family: Family
    exchange_cycles: int
    compute_cycles: int
    codelets: tuple[str, ...]
    n_tiles: int
    n_sources: int = 0
    working_bytes: int = 0
    follows: int = -1
    relayouts: tuple[Relayout, ...] = ()
    within_bound: bool = True
    binding_below_bytes: float = 0.0

    @property
    def cycles(self) -> int:
        """Exchange and compute, without relayouts."""
        return self.exchange_cycles + self.compute_cycles

    def of_tensors(self, numbers: Mapping[int, int]) -> OperatorCost:
        """The cost of a like layer, which has the tensor `numbers[i]` where this one has tensor i."""
        if self.follows < 0 and not self.relayouts:
            return self
        relayouts = tuple(relayout._replace(tensor=numbers[relayout.tensor]) for relayout in self.relayouts)
        return self._replace(follows=numbers.get(self.follows, -1), relayouts=relayouts)


def together(first: OperatorCost, *others: OperatorCost) -> OperatorCost:
    """The sum of several costs, one after the other, in the family of the first."""
    costs = (first, *others)
    return OperatorCost(
        family=first.family,
        exchange_cycles=sum(cost.exchange_cycles for cost in costs),
        compute_cycles=sum(cost.compute_cycles for cost in costs),
        codelets=tuple(dict.fromkeys(name for cost in costs for name in cost.codelets)),
        n_tiles=max(cost.n_tiles for cost in costs),
        n_sources=sum(cost.n_sources for cost in costs),
        working_bytes=max(cost.working_bytes for cost in costs),
        follows=first.follows,
        relayouts=tuple(relayout for cost in costs for relayout in cost.relayouts),
        within_bound=all(cost.within_bound for cost in costs),
        binding_below_bytes=max(cost.binding_below_bytes for cost in costs),
    )


class OperatorContext(NamedTuple):
    """A layer of a graph on a device, with the options that it is compiled for."""

    graph: LayerGraph
    layer: Layer
    device: Device
    options: CompileOptions
    settings: CompilerSettings = DEFAULT_SETTINGS

    def at(self, batch_size: int) -> OperatorContext:
        """This layer at another batch size."""
        return self._replace(options=replace(self.options, batch_size=batch_size))

    @property
    def tensors(self) -> tuple[int, ...]:
        """The indices of operands, -1 for one that is omitted, and of outputs."""
        return *self.layer.operands, *self.layer.outputs

    @property
    def alike(self) -> object:
        """A key that layers of one graph share if they cost the same, but for the indices of their tensors."""
        tensors = self.tensors
        described: list[object] = []
        for index in tensors:
            if index < 0:
                described.append(None)
                continue
            tensor = self.graph.tensors[index]
            described.append((tensor.shape, tensor.batch_axis, tensor.dtype, self.is_activation(index)))
        repeats = tuple(map(tensors.index, tensors))  # the first position of each tensor, which may occur twice
        return self.layer.kind, repeats, *described

    @property
    def precision(self) -> Precision:
        """Format of the operands; with fp8, fp16 for all but the products that `graph.layers.kinds.quantise` marked."""
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
        """Bytes that temporaries of a product may take on one tile."""
        return self.device.tile_memory_bytes * memory_proportion(self.options)

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
        """The operands that are not omitted, as tensor indices, without repeats."""
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
        """True if an operand is computed or fed; False for constants, and for views of constants."""
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


class PricedRange(NamedTuple):
    """A range of layers with the cost of each, on a device and with the options that it is compiled for."""

    graph: LayerGraph
    layers: LayerRange
    costs: Sequence[OperatorCost]
    device: Device
    options: CompileOptions

    @property
    def chosen(self) -> Sequence[Layer]:
        """The layers of the range."""
        return self.graph.layers[slice(*self.layers)]

    def n_bytes(self, index: int) -> int:
        """Bytes of a tensor by its index."""
        return self.graph.tensors[index].n_bytes(self.options.batch_size, self.options.precision)

    def stored_bytes(self, index: int) -> int:
        """Bytes of a weight tensor by its index, as it is stored."""
        return self.graph.tensors[index].stored_bytes(self.options.batch_size, self.options.precision)


CostRule = Callable[[OperatorContext], OperatorCost]
"""Gives the cost of a layer; a rule is for some operators."""


def by_operator(operators: Mapping[CostRule, str]) -> dict[str, CostRule]:
    """The rule of every operator, given the operators of every rule; spaces separate their names."""
    rules: dict[str, CostRule] = {}
    for rule, names in operators.items():
        rules.update(dict.fromkeys(names.split(), rule))
    return rules


_OUTSIDE = -1
_WRITES_PANELS = frozenset({Family.PRODUCT, Family.POOL, Family.MOVE})


def relayout_cycles(priced: PricedRange) -> list[int]:
    """Cycles that each layer of the range spends on bringing operands into the layout that it reads.

    The maker of a layout is the last layer that chose it; layers that run in place pass it on:

        conv 1 (maker: 1) -> relu 2 (maker: 1) -> conv 3 reads panels of maker 1: no relayout
        conv 1 (maker: 1) -> relu 2 (maker: 1) -> add 4 of 1 and 2: one maker, no relayout

    A product reads without a relayout what a maker within the range wrote in panels; an elementwise layer what has the
    maker of its first operand. A maker saves its readers at most as many cycles as it takes itself, so that a range
    never gets cheaper by a layer more.
    """
    graph, layers, costs, *_ = priced
    maker: dict[int, int] = {}
    left_cycles: dict[int, int] = {}

    def made_by(tensor: int) -> int:
        if tensor < 0:
            return _OUTSIDE
        return maker.get(graph.tensors[tensor].producer, _OUTSIDE)

    charged = []
    for index, cost in zip(range(*layers), costs, strict=True):
        n_cycles = 0
        for relayout in cost.relayouts:
            n_cycles += relayout.cycles
            source = made_by(relayout.tensor)
            if source != _OUTSIDE and _suits(cost, costs[source - layers.start], source == made_by(cost.follows)):
                saved = min(relayout.cycles, left_cycles[source])
                left_cycles[source] -= saved
                n_cycles -= saved
        charged.append(n_cycles)
        maker[index] = made_by(cost.follows) if cost.follows >= 0 else index
        left_cycles[index] = cost.cycles
    return charged


def _suits(reader: OperatorCost, source: OperatorCost, same_maker: bool) -> bool:
    if reader.family is Family.ELEMENTWISE:
        return same_maker
    return source.family in _WRITES_PANELS
