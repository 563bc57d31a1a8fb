"""Always-live memory of a program by Poplar's categories.

Code of one codelet is stored once on every tile that runs it, so equal codelets of different layers share it; state,
control code and exchange code belong to one layer. A codelet is called "name" or "name_variant"; the variant, such as a
precision, does not change its size. Figures are bytes a tile from a profile of BERT-large, sequence length 128
(vectors/memory_popliner_profiles.json, IPU.md section 1.4).
"""

from __future__ import annotations

from collections.abc import Sequence

from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.profile import PARAMETER, PROGRAM, CompileOptions
from autoauto.targets.ipu.work import Family, Work

# (vertex state, control code) a tile and layer: averages of the operators of each family, "per_op" of the profile.
_LAYER_BYTES: dict[Family, tuple[int, int]] = {
    Family.PRODUCT: (52, 64),
    Family.ELEMENTWISE: (12, 20),
    Family.NORM: (120, 150),
    Family.SOFTMAX: (100, 125),
    Family.REDUCE: (40, 50),
    Family.POOL: (20, 30),
    Family.GATHER: (45, 40),
    Family.MOVE: (8, 10),
    Family.SORT: (60, 80),
}

# Code of a codelet a tile. Sizes are such that an operator needs a little more than the profile says of it (a matrix
# product 1612, softmax 1560, layer normalisation 2020), because a layer of BERT-large needs 5351 and a dense layer with
# bias 2422 ("auto_pipeline_dense_4096x1024_bs16_fp32").
_CODELET_BYTES: dict[str, int] = {
    "conv1x1": 840,
    "convNx1": 1150,
    "slic": 1400,
    "vectorMac": 640,
    "copy": 230,
    "transpose": 500,
    "dynamicSlice": 330,
    "reduceAdd": 510,
    "reduceMax": 510,
    "reduceSquareAdd": 510,
    "broadcastSubtract": 320,
    "broadcastMultiply": 320,
    "rsqrt": 260,
    "cast": 190,
    "exponent": 230,
    "multiSlice": 620,
    "gates": 770,
    "lrn": 770,
    "sort": 1000,
    "poolMax": 640,
    "poolSum": 640,
}
_ELEMENTWISE_CODE_BYTES = 120  # one generated codelet ...
_LOOP_CODE_BYTES = 60  # ... and every loop in it
_EXCHANGE_LAYER_BYTES = 12  # exchange code of a layer that exchanges at all ...
_EXCHANGE_SOURCE_BYTES = 1.5  # ... and to turn to another sending tile; fitted to 1.0 MB a BERT-large layer

# What every program has (report of a program that adds two tensors: "poplar_report_mk1_adder"), bytes a tile.
_FLOOR_BYTES: dict[str, int] = {"stack": 3168, "controlCode": 700, "vertexCode": 140, "hostExchangeCode": 289}


def shared_bytes(works: Sequence[Work], n_tiles: int) -> dict[str, int]:
    """Bytes by "category_identity" of what a program stores once: its floor, and the code of every codelet."""
    shared = {f"{name}_{PROGRAM}": n_bytes * n_tiles for name, n_bytes in _FLOOR_BYTES.items()}
    for work in works:
        for codelet in work.codelets:
            key = f"vertexCode_{codelet}"
            shared[key] = max(shared.get(key, 0), _codelet_bytes(codelet) * work.n_tiles)
    return shared


def _codelet_bytes(codelet: str) -> int:
    """Code by the name before the variant: one of the table's, or the loops of a generated codelet, "loop+loop".

    >>> _codelet_bytes("exponent_fp16"), _codelet_bytes("exponent+add+logarithm_fp16"), _codelet_bytes("add_fp16")
    (230, 300, 180)
    """
    name = codelet.partition("_")[0]
    generated = _ELEMENTWISE_CODE_BYTES + _LOOP_CODE_BYTES * len(name.split("+"))
    return _CODELET_BYTES.get(name, generated)


def exclusive_bytes(
    graph: LayerGraph, layers: LayerRange, works: Sequence[Work], options: CompileOptions
) -> dict[str, int]:
    """Bytes by category of what no other program shares; a weight counts once however many layers read it."""
    weights = {index for layer in graph.layers[slice(*layers)] for index in layer.weights}
    state, control = zip(*(_LAYER_BYTES[work.family] for work in works), strict=True)
    tiles = [work.n_tiles for work in works]
    return {
        "vertexInstanceState": sum(n * t for n, t in zip(state, tiles, strict=True)),
        "controlCode": sum(n * t for n, t in zip(control, tiles, strict=True)),
        "internalExchangeCode": sum(_exchange_code(work) * work.n_tiles for work in works),
        PARAMETER: sum(graph.tensors[index].n_bytes(1, options.precision) for index in weights),
    }


def _exchange_code(work: Work) -> int:
    return int(_EXCHANGE_LAYER_BYTES + _EXCHANGE_SOURCE_BYTES * work.n_sources) if work.n_sources else 0
