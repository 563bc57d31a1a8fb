"""Which rows of which buffers phases share, and the rows through which one phase hands on to the next (seed 002)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autoauto.records.phased import BufferLayout, BufferRow

# forward    x[0]      x[1]      x[2]
#        P0 ------> P1 -----> P2 -----> P3     the last phase only reads x, and writes dx
# backward  <------    <-----    <-----
#           dx[0]     dx[1]     dx[2]          the first phase only reads dx


class GraphRow(NamedTuple):
    """Which program a phase runs, and which of its phases it is."""

    graph: int
    row: int


def number_graphs(identities: Iterable[Hashable]) -> list[GraphRow]:
    """Phases of equal identity share a graph; graphs are numbered as they appear, rows within each.

    >>> [tuple(found) for found in number_graphs(["in", "fc", "fc", "out"])]
    [(0, 0), (1, 0), (1, 1), (2, 0)]
    """
    graphs: dict[Hashable, int] = {}
    rows: Counter[int] = Counter()
    found = []
    for identity in identities:
        graph = graphs.setdefault(identity, len(graphs))
        found.append(GraphRow(graph, rows[graph]))
        rows[graph] += 1
    return found


@dataclass(frozen=True, slots=True)
class Rows:
    """One row for every item, in as few buffers as their sizes allow.

    Attributes:
        rows: the row of every item, in order.
        buffers: a buffer for every different size.
    """

    rows: tuple[BufferRow, ...]
    buffers: tuple[BufferLayout, ...]


NO_ROWS = Rows((), ())


def share_buffers(name: str, keys: Sequence[Hashable], sizes_bytes: Sequence[int], steps: int) -> Rows:
    """Give items of equal key rows of one buffer; the buffer of a single key has the bare name.

    >>> [str(row) for row in share_buffers("x", [8, 8, 8], [8, 8, 8], 4).rows]
    ['x[0]', 'x[1]', 'x[2]']
    >>> [str(row) for row in share_buffers("x", [8, 2, 8], [8, 2, 8], 4).rows]
    ['x0[0]', 'x1[0]', 'x0[1]']
    """
    numbers = number_graphs(keys)
    alone = len({number.graph for number in numbers}) == 1
    rows = tuple(BufferRow(name if alone else f"{name}{number.graph}", number.row) for number in numbers)
    n_rows = Counter(row.buffer for row in rows)
    size = {row.buffer: n_bytes for row, n_bytes in zip(rows, sizes_bytes, strict=True)}
    return Rows(rows, tuple(BufferLayout(buffer, n_rows[buffer], steps, size[buffer]) for buffer in n_rows))
