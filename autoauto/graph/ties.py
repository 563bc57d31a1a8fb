"""Which layers must share a stage because they read one weight matrix.

Only a matrix that several products or look-ups read is one variable of the model: the embedding that is also the head.
A vector, a scalar or a mask is copied to every stage that reads it, for exporters merge equal ones, so that sharing one
says nothing about the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_READERS = frozenset({"Conv", "ConvTranspose", "Einsum", "GRU", "Gather", "Gemm", "LSTM", "MatMul", "RNN"})


def is_matrix(shape: Sequence[int], dtype: str) -> bool:
    """Whether a weight is one that ties its readers.

    >>> is_matrix((50257, 768), "float"), is_matrix((1, 768), "float"), is_matrix((2, 3), "int64")
    (True, False, False)
    """
    return dtype == "float" and sum(length > 1 for length in shape) > 1


def ties(readings: Sequence[tuple[str, Sequence[str]]]) -> list[str | None]:
    """For each layer, given as (op, names of the matrices it reads), the key of those that it is tied to.

    >>> ties([("Gather", ["wte"]), ("MatMul", ["a"]), ("MatMul", ["wte"]), ("Add", ["a"])])
    ['wte', None, 'wte', None]
    """
    read = [tuple(dict.fromkeys(names)) if op in _READERS else () for op, names in readings]
    group: dict[str, str] = {}

    def find(name: str) -> str:
        while group.setdefault(name, name) != name:
            name = group[name]
        return name

    for names in read:
        for other in names[1:]:
            group[find(other)] = find(names[0])
    keys = [find(names[0]) if names else None for names in read]
    readers = Counter(keys)
    return [key if readers[key] > 1 else None for key in keys]
