"""The cells of PyTorch's pipeline schedule CSV: `read_cells` [torch-pipelining].

A row is a rank; a cell is an action: the stage, what it does, and the micro-batch.

    0F0,0F1,,0I0,0W0,0B1        forward; idle; input gradient; weight gradient; backward, which is both gradients
    (0F2;0B1)OVERLAP_F_B        a forward and a backward that a runtime may overlap
    1RECV_F0 1SEND_F0           the input of a forward is received, its output is sent; RECV_B, SEND_B: of a backward
    0UNSHARD 0RESHARD           weights are gathered and released; 0REDUCE_GRAD: their gradients are summed
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from autoauto.records.errors import BadInput

MESSAGES = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")
_COMPUTE = {"F": ("F",), "I": ("B",), "W": ("W",), "B": ("B", "W")}
_OF_WEIGHTS = ("UNSHARD", "RESHARD", "REDUCE_GRAD")
_DOES = _COMPUTE | {kind: (kind,) for kind in MESSAGES} | dict.fromkeys(_OF_WEIGHTS, ())
"""The kinds of actions that a word of the file stands for; B is the input gradient here, as in `ActionKind`."""

_ACTION = re.compile(rf"([0-9]{{1,9}})({'|'.join(_DOES)})([0-9]{{0,9}})")
_OVERLAP = re.compile(r"\(([^()]*)\)\s*OVERLAP_F_B")
_MAX_ECHO = 40


class CsvCell(NamedTuple):
    """A cell that is not empty, and where it is; rows and columns count from 0."""

    file: str
    row: int
    column: int
    text: str

    def __str__(self) -> str:
        text = self.text
        if len(text) > _MAX_ECHO:
            text = f"{text[:_MAX_ECHO]}..."
        return f"row {self.row + 1}, column {self.column + 1}, {text!r}"

    def refuse(self, reason: str) -> NoReturn:
        """Raise BadInput with the position of the cell."""
        raise BadInput(f"{self.file}, {self}: {reason}")


class CsvAction(NamedTuple):
    """An action of a cell or of a part of it. Its kind is F, B (the input gradient), W, or a message."""

    stage: int
    kind: str
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"


Operation = tuple[CsvCell, tuple[CsvAction, ...]]
"""A cell and what it does, one after the other."""


@dataclass(frozen=True, slots=True)
class CsvActions:
    """The actions of a file.

    Attributes:
        operations: for every row what its cells do, in order; without those that only concern weights.
        full: the input gradients whose cells compute the weight gradients, too.
    """

    file: str
    operations: list[list[Operation]]
    cells: dict[CsvAction, CsvCell]
    rows: dict[int, int]
    full: frozenset[CsvAction]

    @property
    def n_stages(self) -> int:
        """How many stages there are."""
        return len(self.rows)

    @property
    def n_micro_batches(self) -> int:
        """How many micro-batches there are, by the largest number."""
        return 1 + max(action.micro_batch for action in self.cells)

    @property
    def kinds(self) -> set[str]:
        """The kinds of all actions."""
        return {action.kind for action in self.cells}


def read_cells(text: str, file: str) -> CsvActions:
    """The actions of a text; `file` is its name, for messages.

    Raises:
        BadInput: not a CSV file, a cell that is no action, a stage on two rows, or an action that comes twice.
    """
    return _collect(list(_cells(text, file)), file)


def _cells(text: str, file: str) -> Iterator[CsvCell]:
    try:
        for row, texts in enumerate(csv.reader(io.StringIO(text, newline=""))):
            for column, cell in enumerate(texts):
                if cell.strip():
                    yield CsvCell(file, row, column, cell.strip())
    except csv.Error as error:
        raise BadInput(f"{file}: a schedule must be a CSV file, got one with an error: {error}") from error


def _parts(cell: CsvCell) -> Iterator[tuple[int, str, int]]:
    """Stage, kind and micro-batch of every action that a cell names; -1 where the kind needs no micro-batch."""
    overlap = _OVERLAP.fullmatch(cell.text)
    texts = [cell.text]
    if overlap:
        texts = overlap[1].split(";")
    for text in texts:
        match = _ACTION.fullmatch(text.strip())
        if match is None or (overlap and match[2] not in _COMPUTE) or not (match[3] or match[2] in _OF_WEIGHTS):
            if re.fullmatch(r"[0-9]+BW[0-9]+", cell.text):
                cell.refuse("older versions of PyTorch wrote BW and B; write B for BW, and I for B")
            cell.refuse(
                f"a cell is empty or a stage, one of {', '.join((*_COMPUTE, *MESSAGES))} and a micro-batch, as in 2F0; "
                f"or as in 2UNSHARD one of {', '.join(_OF_WEIGHTS)}; or (2F1;3B0)OVERLAP_F_B"
            )
        yield int(match[1]), match[2], int(match[3] or -1)


def _collect(cells: Sequence[CsvCell], file: str) -> CsvActions:
    operations: list[list[Operation]] = [[] for _ in range(cells[-1].row + 1)] if cells else []
    cell_of: dict[CsvAction, CsvCell] = {}
    rows: dict[int, int] = {}
    full = set()
    for cell in cells:
        actions = []
        for stage, kind, micro_batch in _parts(cell):
            if rows.setdefault(stage, cell.row) != cell.row:
                cell.refuse(f"a stage runs on one rank, got stage {stage} in row {rows[stage] + 1}, too")
            for done in _DOES[kind]:
                action = CsvAction(stage, done, micro_batch)
                if action in cell_of:
                    cell.refuse(f"every action comes once, got it in {cell_of[action]}, too")
                cell_of[action] = cell
                actions.append(action)
            if kind == "B":
                full.add(CsvAction(stage, "B", micro_batch))
        if actions:
            operations[cell.row].append((cell, tuple(actions)))
    return CsvActions(file, operations, cell_of, rows, frozenset(full))
