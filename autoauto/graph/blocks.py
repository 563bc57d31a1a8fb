"""The repeated modules of a model, `blocks_of`: layers.0, layers.1, ... of PyTorch, by the names of operators.

Exporters write where in the module an operator comes from. The first product of layers.0.mlp is, by its exporter,

    /layers.0/mlp/fc1/MatMul    torch.onnx.export(dynamo=False); in an nn.Sequential /layers/layers.0/mlp/fc1/MatMul
    layers.0.mlp.fc1.MatMul     of the models that come with autoauto
    node_linear_3               torch.onnx.export(dynamo=True), which adds the metadata "pkg.torch.onnx.name_scopes":
                                ['', 'layers.0', 'layers.0.mlp', 'layers.0.mlp.fc1', 'linear_3'] [torch-onnx]

A path with an index, "stages.2.layers.0", names a block of the list "stages.*.layers.*". There are many lists: in a
ResNet stages.*, stages.*.layers.*, and the layers of every such layer. A list of blocks is one whose blocks follow each
other in the order of their indices without an operator of another module between them; of these the one with the most
blocks that are alike, then the shortest path:

    stages.*                    4 blocks of 3, 4, 6 and 3 layers              alike: 2
    stages.*.layers.*           16 blocks, 4 of them with a shortcut          alike: 12
    stages.*.layers.*.layer.*   an Add of stages.0.layers.0 follows layer.2   no list of blocks
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import onnx

from autoauto.records.layers import Block, LayerRange

_SCOPES = "pkg.torch.onnx.name_scopes"
Path = tuple[str, ...]
Index = tuple[int, ...]


class ScopedOperator(NamedTuple):
    """An operator, the module that it comes from, "" where that is not known, and the modules of its weights."""

    op: str
    module: str
    weight_modules: tuple[str, ...] = ()


def scoped_operator(node: onnx.NodeProto, weights: Iterable[str]) -> ScopedOperator:
    """The operator of a node with its module, and the modules that the names of its weights show."""
    modules: list[str] = []
    for name in weights:
        module = name.rpartition(".")[0]
        if module and "/" not in name and ":" not in name:  # others are names that an exporter made up
            modules.append(module)
    scopes = next((entry.value for entry in node.metadata_props if entry.key == _SCOPES), None)
    if scopes is not None:
        own = _innermost(str(scopes))
    elif node.name.startswith("/"):
        own = module_of_scopes(node.name)
    else:
        own = node.name.rpartition(".")[0]
    return ScopedOperator(node.op_type, own, tuple(modules))


def blocks_of(operators: Sequence[ScopedOperator]) -> tuple[Block, ...]:
    """The blocks of a model in order, every layer in one; none where no module is repeated.

    The first block has the layers before it, too. A layer behind a block, of the list's owner or of unknown module, is
    of that block, and so are all layers behind the last block.
    """
    paths = [tuple(filter(None, operator.module.split("."))) for operator in operators]
    # Every index in a path names a block of a list, which is the path up to there with stars for indices.
    starts: dict[Path, dict[Index, int]] = {}
    for path in paths:
        for end, part in enumerate(path):
            if part.isdecimal():
                pattern = tuple("*" if each.isdecimal() else each for each in path[: end + 1])
                if pattern not in starts:
                    starts[pattern] = _starts(pattern, paths)
    lists = [pattern for pattern, first_layers in starts.items() if first_layers]
    if not lists:
        return ()
    best = max(lists, key=lambda pattern: (_n_alike(pattern, paths, operators), -len(pattern)))
    return tuple(_blocks(best, starts[best], paths, operators))


def module_of_scopes(name: str) -> str:
    """The dotted path of a module by the name of an operator in it, which has slashes.

    A container that is called itself comes before its children, whose names repeat it.

    >>> module_of_scopes("/layer1/layer1.0/conv1/Conv")
    'layer1.0.conv1'
    """
    parts: list[str] = []
    scopes = [part for part in name.split("/") if part]
    for part in scopes[:-1]:
        if parts and part.startswith(f"{parts[-1]}."):
            parts.pop()
        parts.append(part)
    return ".".join(parts)


def _innermost(scopes: str) -> str:
    """The module in a list of scopes, whose last is the operator.

    >>> _innermost("['', 'layers.0', 'layers.0.mlp', 'linear_3']")
    'layers.0.mlp'
    """
    names = re.findall("'([^']*)'", scopes)
    return names[-2] if len(names) > 1 else ""


def _index(pattern: Path, path: Path) -> Index | None:
    if _n_common(pattern, path) < len(pattern):
        return None
    return tuple(int(part) for part, name in zip(path, pattern, strict=False) if name == "*")


def _n_common(pattern: Path, path: Path) -> int:
    """Number of leading parts of a module's path that match the pattern of a list of modules."""
    n_common = 0
    for name, part in zip(pattern, path, strict=False):
        if part != name and not (name == "*" and part.isdecimal()):
            break
        n_common += 1
    return n_common


def _starts(pattern: Path, paths: Sequence[Path]) -> dict[Index, int]:
    """The first layer of every block of a list; nothing when they do not follow each other, or there is one only."""
    indices = [_index(pattern, path) for path in paths]
    starts: dict[Index, int] = {}
    for layer, index in enumerate(indices):
        if index is not None:
            starts.setdefault(index, layer)
    ordered = list(starts)
    if len(ordered) < 2 or any(ordered[0]) or not all(_follows(*pair) for pair in pairwise(ordered)):
        return {}
    last = max(layer for layer, index in enumerate(indices) if index is not None)
    # Between two blocks may lie layers of unknown module, of the owner of the list, and of modules around it.
    owners = {pattern[:length] for length in range(pattern.index("*") + 1)}
    inside = [indices[layer] for layer in range(starts[ordered[0]], last + 1) if paths[layer] not in owners]
    # A block that occurs twice was interrupted by another one, and a None is an operator of another module.
    runs = [index for index, _ in groupby(inside)]
    return starts if runs == ordered else {}


def _follows(index: Index, following: Index) -> bool:
    """True if `following` may come next after `index` in nested lists: one entry counts on, later ones restart at 0.

    >>> _follows((0, 2), (1, 0)), _follows((0, 2), (0, 4))
    (True, False)
    """
    level = next(i for i, (a, b) in enumerate(zip(index, following, strict=True)) if a != b)
    return following[level] == index[level] + 1 and not any(following[level + 1 :])


def _n_alike(pattern: Path, paths: Sequence[Path], operators: Sequence[ScopedOperator]) -> int:
    content: dict[Index, list[str]] = defaultdict(list)
    for path, operator in zip(paths, operators, strict=True):
        index = _index(pattern, path)
        if index is not None:
            content[index].append(operator.op)
    return max(Counter(map(tuple, content.values())).values())


def _blocks(
    pattern: Path, starts: Mapping[Index, int], paths: Sequence[Path], operators: Sequence[ScopedOperator]
) -> Iterator[Block]:
    boundaries = [*starts.values(), len(paths)]
    boundaries[0] = 0  # the first block has the layers before it
    of_operators = [_module_beside(pattern, path) for path in paths]
    seen = set(of_operators)
    last_layers = {_index(pattern, path): layer for layer, path in enumerate(paths)}
    for (index, start), ends in zip(starts.items(), pairwise(boundaries), strict=True):
        layers = LayerRange(*ends)
        others = list(of_operators[slice(*layers)])
        for operator in operators[slice(*layers)]:  # a module that only holds a weight has no operator of its own
            modules = {_module_beside(pattern, tuple(module.split("."))) for module in operator.weight_modules} - seen
            others += sorted(modules)
            seen |= modules
        module = ".".join(paths[start][: len(pattern)])
        names = tuple(filter(None, dict.fromkeys(others)))
        yield Block(module, layers, names, start - layers.start, layers.stop - last_layers[index] - 1)


def _module_beside(pattern: Path, path: Path) -> str:
    """The outermost module beside the list that a path lies in; "" for a path in a block, and for owners of the list.

    >>> layers = ("bert", "layer", "*")
    >>> _module_beside(layers, ("bert", "pooler", "dense")), _module_beside(layers, ("bert",))
    ('bert.pooler', '')
    """
    n_common = _n_common(pattern, path)
    if n_common == min(len(pattern), len(path)):
        return ""
    return ".".join(path[: n_common + 1])
