"""Always-live memory of a program by Poplar's categories: `shared_bytes`, `program_bytes`, `weight_bytes`.

The fullest tile is the limit, so what a layer leaves empty on other tiles counts as `imbalance`: a range fits when all
its bytes fit on the device, and its code in the part of a tile that code runs from.

Code of one codelet is stored once on every tile that runs it, so equal codelets of different layers share it. State
and control code belong to one layer. So does a third of the exchange code; the rest is shared by equal layers.

Figures are bytes a tile. Without another source they come from a profile of BERT-large, sequence length 128
[popliner], or are fitted to it. Names in quotes are layers of that profile, or other programs in
`tests/vectors/memory_popliner_profiles.json`. Poplar's lists of vectors and copies, its constants and its code to
exchange with other IPUs are left out: no figures are public.

Bytes of the tensors that are alive while each layer runs: `live_bytes`, `live_gradient_bytes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from autoauto.records.costs.profile import PARAMETER
from autoauto.records.errors import OutOfMemory
from autoauto.records.hardware import Device
from autoauto.records.layers import Derivative, LayerGraph, LayerRange
from autoauto.records.units import Precision, format_bytes
from autoauto.targets.ipu.operator_cost import Family, OperatorCost, PricedRange

CODE_REGION_BYTES = 212_992  # the part of a tile that instructions run from [poplar-docs, memory map]
EXCHANGE_CODE = "internalExchangeCode"
IMBALANCE = "imbalance"
LAYER_CODE = ("vertexInstanceState", "controlCode", EXCHANGE_CODE)
"""State and code that belong to one layer each (`program_bytes`), or to a subgraph that equal layers call."""
_CODE = frozenset({"vertexCode", "controlCode", "hostExchangeCode", EXCHANGE_CODE})


class Codelet(NamedTuple):
    """The memory of one codelet on a tile.

    Attributes:
        code_bytes: such that a layer of BERT-large needs its 5351 and a dense layer with bias 2422
            ("auto_pipeline_dense_4096x1024_bs16_fp32").
        n_edges: pointers of its vertex; the state of a vertex is 8 bytes and 4 an edge ("poplar_report_mk1_adder").
    """

    code_bytes: int
    n_edges: int

    @property
    def state_bytes(self) -> int:
        """Bytes of the state of one vertex."""
        return 8 + 4 * self.n_edges


# Edges fitted: a product needs 58 bytes of state on average, a softmax 109, a normalisation 83 in an encoder ("layers"
# less the other operators of "per_op") and 150 in the embedding, a look-up 28 to 63.
_CODELETS: dict[str, Codelet] = {
    "conv1x1": Codelet(840, 6),
    "convNx1": Codelet(1150, 7),
    "slic": Codelet(1400, 7),
    "vectorMac": Codelet(640, 5),
    "copy": Codelet(230, 1),
    "transpose": Codelet(500, 1),
    "dynamicSlice": Codelet(330, 3),
    "reduceAdd": Codelet(510, 2),
    "reduceMax": Codelet(510, 2),
    "reduceSquareAdd": Codelet(510, 2),
    "broadcastSubtract": Codelet(320, 2),
    "broadcastMultiply": Codelet(320, 2),
    "rsqrt": Codelet(260, 1),
    "cast": Codelet(190, 1),
    "exponent": Codelet(230, 1),
    "multiSlice": Codelet(620, 6),
    "gates": Codelet(770, 4),
    "lrn": Codelet(770, 2),
    "sort": Codelet(1000, 4),
    "poolMax": Codelet(640, 2),
    "poolSum": Codelet(640, 2),
}
_ELEMENTWISE_CODE_BYTES = 120  # one generated codelet
_LOOP_CODE_BYTES = 60  # and every loop in it

_STEP_CONTROL_BYTES = 20  # control code of a compute set: "Mul scale" runs one, and exchanges nothing
_EXCHANGE_CONTROL_BYTES = 4  # of an exchange: "ApplyMask" needs 24 where "Mul scale" needs 20

# A product copies or transposes an operand in one step; a normalisation copies and casts as it reads, since its 107
# bytes of control code in an encoder are five compute sets and two exchanges.
_FUSED_CODELETS = {Family.PRODUCT: frozenset({"transpose"}), Family.NORM: frozenset({"cast", "copy"})}

# Exchanges of a layer: a product brings in its operands and then its partial sums; rows are cut and joined.
_N_EXCHANGES: dict[Family, int] = {
    Family.PRODUCT: 2,
    Family.ELEMENTWISE: 1,
    Family.NORM: 2,
    Family.SOFTMAX: 2,
    Family.REDUCE: 2,
    Family.POOL: 1,
    Family.GATHER: 2,
    Family.SORT: 2,
    Family.MOVE: 0,
}
_EXCHANGE_BYTES = 24  # code of one exchange; fitted to "ApplyMask" and "Add bias", 19 and 27
_SOURCE_BYTES = 4  # an instruction to turn to another sending tile
_MAX_SOURCES = 64  # further ones need no more code; fitted to products of all sizes, 301 to 353
# Fitted: 3.1 MB in the first encoder (less the embedding's look-up), 1.0 MB in each later one.
_OWN_EXCHANGE_SHARE = 1 / 3

# What every program has: report of a program that adds two tensors ("poplar_report_mk1_adder"). Its 700 bytes of
# control code are left out, because the program of the dense layer above has 70 in all.
_FLOOR_BYTES: dict[str, int] = {
    "stack": 3168,
    "vertexCode": 140,
    "hostExchangeCode": 289,
    "hostExchangePacketHeader": 9,
}


def shared_bytes(kinds: Sequence[str], costs: Sequence[OperatorCost], n_tiles: int) -> dict[str, int]:
    """Bytes by "category_identity" that a program stores once: its floor, codelets, code that equal layers share.

    `kinds` names the kind of every cost. Where costs of a kind differ, as backward passes do when one layer's inputs
    need no gradient, the largest counts.
    """
    shared = {f"{name}_program": n_bytes * n_tiles for name, n_bytes in _FLOOR_BYTES.items()}
    for kind, cost in zip(kinds, costs, strict=True):
        for key, code_bytes in _program(cost.family, cost.codelets).code_bytes:
            shared[key] = max(shared.get(key, 0), code_bytes * cost.n_tiles)
        if exchanged := _exchange_bytes(cost):
            key = f"{EXCHANGE_CODE}_{kind}"
            shared[key] = max(shared.get(key, 0), exchanged - _own_exchange_bytes(cost))
    return shared


def program_bytes(costs: Sequence[OperatorCost]) -> dict[str, int]:
    """Bytes by category of state, control code and exchange code that belong to one layer each."""
    state_bytes = control_bytes = exchange_bytes = 0
    for cost in costs:
        program = _program(cost.family, cost.codelets)
        state_bytes += cost.n_tiles * program.state_bytes
        control = program.n_steps * _STEP_CONTROL_BYTES + _n_exchanges(cost) * _EXCHANGE_CONTROL_BYTES
        control_bytes += cost.n_tiles * control
        exchange_bytes += _own_exchange_bytes(cost)
    return dict(zip(LAYER_CODE, (state_bytes, control_bytes, exchange_bytes), strict=True))


def outlined_bytes(priced: PricedRange) -> int:
    """Bytes that a range saves when equal layers are one subgraph, which every one of them calls.

    Their state and code, as in `program_bytes`, are then stored once. Before a call the weights of its layers are
    copied to where the subgraph reads them, so that a copy for at most one layer of every kind exists at a time.
    """
    largest: dict[str, int] = {}
    copied: dict[str, int] = {}
    weights = outlined_weight_bytes(priced)
    for layer, cost, n_bytes in zip(priced.chosen, priced.costs, weights, strict=True):
        largest[layer.kind] = max(sum(program_bytes((cost,)).values()), largest.get(layer.kind, 0))
        copied[layer.kind] = max(n_bytes, copied.get(layer.kind, 0))
    return sum(program_bytes(priced.costs).values()) - sum(largest.values()) - sum(copied.values())


def outlined_weight_bytes(priced: PricedRange) -> list[int]:
    """Bytes of the weights that each layer copies for its subgraph; 0 for a layer without an equal."""
    occurrences = Counter(layer.kind for layer in priced.chosen)
    n_bytes = [0] * len(priced.chosen)
    for step, layer in enumerate(priced.chosen):
        if occurrences[layer.kind] > 1:
            n_bytes[step] = sum(map(priced.stored_bytes, layer.weights))
    return n_bytes


def weight_bytes(priced: PricedRange) -> dict[str, int]:
    """Bytes of weights, each once however many layers read it; in training its gradient lies on the same tiles.

    The weights of a product are spread over all tiles, whichever of them multiply.
    """
    n_tiles = priced.device.n_tiles
    n_used: dict[int, int] = {}  # the tiles of every weight tensor, of the reader with the fewest
    for layer, cost in zip(priced.chosen, priced.costs, strict=True):
        spread = n_tiles if cost.family is Family.PRODUCT else cost.n_tiles
        for index in layer.weights:
            n_used[index] = min(spread, n_used.get(index, n_tiles))
    total_bytes, imbalance_bytes = 0, 0
    for index, n in n_used.items():
        n_bytes = priced.stored_bytes(index)
        total_bytes += n_bytes
        imbalance_bytes += on_fullest_tile(n_bytes, n, n_tiles) - n_bytes
    if priced.options.training:
        imbalance_bytes *= 2
    return {PARAMETER: total_bytes, IMBALANCE: imbalance_bytes}


def check_code(layers: LayerRange, memory_bytes: Mapping[str, int], device: Device) -> None:
    """Raise OutOfMemory for code that exceeds the region of a tile that instructions run from."""
    code_bytes = sum(n_bytes for name, n_bytes in memory_bytes.items() if name in _CODE)
    tile_bytes = ceil(code_bytes / device.n_tiles)
    if tile_bytes > CODE_REGION_BYTES:
        raise OutOfMemory(
            f"layers {layers} need {format_bytes(tile_bytes)} of code on a tile, which runs code from "
            f"{format_bytes(CODE_REGION_BYTES)} of its memory; try more devices",
            (tile_bytes - CODE_REGION_BYTES) * device.n_tiles,
            layers,
            memory_bytes,
        )


def working_bytes(cost: OperatorCost, n_tiles: int) -> int:
    """Bytes of a layer's temporaries, as if every tile of the device were as full as the tiles that are used."""
    return on_fullest_tile(cost.working_bytes, cost.n_tiles, n_tiles)


def on_fullest_tile(n_bytes: int, n_used: int, n_tiles: int) -> int:
    """Bytes of a device if all its tiles were as full as the `n_used` that hold `n_bytes`.

    >>> on_fullest_tile(3000, 736, 1472)
    6000
    """
    return ceil(n_bytes * n_tiles / n_used)


def _codelet(name: str) -> Codelet:
    """A codelet by its name before the variant: one of the table's, or the loops of a generated one, "loop+loop".

    >>> [_codelet(name).code_bytes for name in ("exponent_fp16", "exponent+add+logarithm_fp16", "add_fp16")]
    [230, 300, 180]
    >>> [_codelet(name).state_bytes for name in ("add_fp16", "add_broadcast_fp16")]
    [12, 16]
    """
    name, _, variant = name.partition("_")
    if name in _CODELETS:
        return _CODELETS[name]
    n_edges = 2 if variant.startswith("broadcast") else 1
    return Codelet(_ELEMENTWISE_CODE_BYTES + _LOOP_CODE_BYTES * len(name.split("+")), n_edges)


class _Program(NamedTuple):
    """The memory and steps of the codelets of a layer on a tile."""

    code_bytes: tuple[tuple[str, int], ...]  # shared keys, with the code of each
    state_bytes: int  # of all vertices
    n_steps: int  # compute sets, one for every codelet that does not run within another one's


@lru_cache(maxsize=1024)
def _program(family: Family, codelets: tuple[str, ...]) -> _Program:
    fused = _FUSED_CODELETS.get(family, frozenset())
    steps = [name for name in codelets if name.partition("_")[0] not in fused]
    if family is Family.MOVE:  # a view of the tensor: the figures of the layer that reads it hold the copy
        steps = []
    code_bytes = tuple((f"vertexCode_{name}", _codelet(name).code_bytes) for name in codelets)
    return _Program(code_bytes, sum(_codelet(name).state_bytes for name in steps), len(steps))


def _n_exchanges(cost: OperatorCost) -> int:
    if not cost.n_sources:
        return 0
    return _N_EXCHANGES[cost.family]


def _exchange_bytes(cost: OperatorCost) -> int:
    """Exchange code of a layer that is the first of its kind."""
    n = _n_exchanges(cost)
    if not n:
        return 0
    return cost.n_tiles * (n * _EXCHANGE_BYTES + min(cost.n_sources, _MAX_SOURCES) * _SOURCE_BYTES)


def _own_exchange_bytes(cost: OperatorCost) -> int:
    return round(_exchange_bytes(cost) * _OWN_EXCHANGE_SHARE)


def live_bytes(priced: PricedRange, stashed_until: Mapping[int, int] | None = None) -> list[int]:
    """Bytes of tensors on the device while each of the layers runs.

    An input of the range is alive from the start of the range, a tensor that the range writes from the layer that
    writes it. Both are alive until their last use, or to the end of the range when a later layer reads them. A tensor
    that is stashed for the backward pass is alive at least until the layer of `stashed_until`. A tensor that an earlier
    layer wrote for a later one is alive all the time: a pipeline sends it from device to device.
    """
    tensors = tensors_of(priced.graph, priced.layers) | _passing_tensors(priced.graph, priced.layers)
    return _alive(priced, tensors, stashed_until or {})


def live_gradient_bytes(priced: PricedRange, derivative: Derivative) -> list[int]:
    """Bytes of gradients on the device while each of the layers runs backward.

    The gradient of a tensor is alive during the same layers as the tensor: the layer that read the tensor last writes
    it, and the layer that wrote the tensor reads it.
    """
    tensors = tensors_of(priced.graph, priced.layers) | _passing_tensors(priced.graph, priced.layers)
    return _alive(priced, set(filter(derivative.needs_gradient, tensors)), {})


def _alive(priced: PricedRange, tensors: set[int], stashed_until: Mapping[int, int]) -> list[int]:
    layers = priced.layers
    change = [0] * (layers.stop - layers.start + 1)  # of the bytes alive, before each layer and after the last one
    for index in tensors:
        tensor, n_bytes = priced.graph.tensors[index], priced.n_bytes(index)
        # The half-open range of layers during which the tensor is alive within the range.
        first = max(tensor.producer, layers.start)
        last = min(max(tensor.last_use, tensor.producer) + 1, layers.stop)
        change[first - layers.start] += n_bytes
        change[max(last, stashed_until.get(index, last)) - layers.start] -= n_bytes
    alive = list(accumulate(change[:-1]))
    may_be_overwritten = tensors.difference(stashed_until)
    for step, (index, cost) in enumerate(zip(range(*layers), priced.costs, strict=True)):
        if tensors.issuperset(priced.graph.layers[index].outputs):
            alive[step] -= _overwritten_bytes(priced, index, cost, may_be_overwritten)
    return alive


def tensors_of(graph: LayerGraph, layers: LayerRange) -> set[int]:
    """The tensors that a range of layers reads or writes, without weights."""
    tensors: set[int] = set()
    for layer in graph.layers[slice(*layers)]:
        tensors.update(layer.inputs, layer.outputs)
    return tensors


def _passing_tensors(graph: LayerGraph, layers: LayerRange) -> set[int]:
    """The tensors that exist before the range and that a layer behind the range reads."""
    passing: set[int] = set()
    for layer in graph.layers[: layers.start]:
        passing.update(index for index in layer.outputs if graph.tensors[index].last_use >= layers.stop)
    for layer in graph.layers[layers.stop :]:
        passing.update(index for index in layer.inputs if graph.tensors[index].producer < 0)
    return passing


def _overwritten_bytes(priced: PricedRange, index: int, cost: OperatorCost, may_be_overwritten: set[int]) -> int:
    """Bytes that a layer saves by writing over operands that it is the last to read."""
    layer = priced.graph.layers[index]
    dying = [i for i in layer.inputs if priced.graph.tensors[i].last_use == index and i in may_be_overwritten]
    saved_bytes = 0
    if cost.family is Family.ELEMENTWISE and len(layer.outputs) == 1:
        n_bytes = priced.n_bytes(layer.outputs[0])
        if n_bytes in map(priced.n_bytes, dying):
            saved_bytes += n_bytes
    if priced.options.precision is Precision.FP8 and layer.attribute("precision") == Precision.FP8:
        # A product in fp8 casts its operands from fp16 before it runs.
        saved_bytes += sum(priced.n_bytes(i) // 2 for i in dying)
    return saved_bytes
