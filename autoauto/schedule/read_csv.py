"""PyTorch's pipeline schedule CSV -> Schedule: `read_schedule_csv`, `schedule_from_csv` [torch-pipelining].

A row is a rank; a cell is an action: the stage, what it does, and the micro-batch (`read_cells`).

    0F0,0F1,,0I0,0W0,0B1        forward; idle; input gradient; weight gradient; backward, which is both gradients
    (0F2;0B1)OVERLAP_F_B        a forward and a backward that a runtime may overlap
    1RECV_F0 1SEND_F0           the input of a forward is received, its output is sent; RECV_B, SEND_B: of a backward
    0UNSHARD 0RESHARD           weights are gathered and released; 0REDUCE_GRAD: their gradients are summed

A file may hold any actions in any order; `check_actions` refuses those that are no schedule.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import NamedTuple, NoReturn

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Action, ActionKind, Codes, Schedule

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
        text = self.text if len(self.text) <= _MAX_ECHO else f"{self.text[:_MAX_ECHO]}..."
        return f"row {self.row + 1}, column {self.column + 1}, {text!r}"

    def refuse(self, reason: str) -> NoReturn:
        """Raise BadInput with the position of the cell."""
        raise BadInput(f"{self.file}, {self}: {reason}")


class CsvAction(NamedTuple):
    """What a cell, or a part of it, does: F, B for the input gradient, W, or a message."""

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
        file: its name.
        operations: for every row what its cells do, in order; without those that only concern weights.
        cells: the cell of every action.
        rows: the row of every stage.
        full: the input gradients whose cells compute the weight gradients, too.
    """

    file: str
    operations: list[list[Operation]]
    cells: dict[CsvAction, CsvCell]
    rows: dict[int, int]
    full: frozenset[CsvAction]

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return len(self.rows)

    @property
    def n_micro_batches(self) -> int:
        """Number of micro-batches, by the largest number."""
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
    for text in overlap[1].split(";") if overlap else [cell.text]:
        match = _ACTION.fullmatch(text.strip())
        if match is None or (overlap and match[2] not in _COMPUTE) or not (match[3] or match[2] in _OF_WEIGHTS):
            _refuse_text(cell)
        yield int(match[1]), match[2], int(match[3] or -1)


def _refuse_text(cell: CsvCell) -> NoReturn:
    if re.fullmatch(r"[0-9]+BW[0-9]+", cell.text):
        cell.refuse("older versions of PyTorch wrote BW and B; write B for BW, and I for B")
    cell.refuse(
        f"a cell is empty or a stage, one of {', '.join((*_COMPUTE, *MESSAGES))} and a micro-batch, as in 2F0; "
        f"or as in 2UNSHARD one of {', '.join(_OF_WEIGHTS)}; or (2F1;3B0)OVERLAP_F_B"
    )


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
            for action in (CsvAction(stage, done, micro_batch) for done in _DOES[kind]):
                if action in cell_of:
                    cell.refuse(f"every action comes once, got it in {cell_of[action]}, too")
                cell_of[action] = cell
                actions.append(action)
            if kind == "B":
                full.add(CsvAction(stage, "B", micro_batch))
        if actions:
            operations[cell.row].append((cell, tuple(actions)))
    return CsvActions(file, operations, cell_of, rows, frozenset(full))


MAX_STAGES = 2_000
"""The arrays of a schedule (`Codes`) grow with the square of the number of stages."""


def read_schedule_csv(path: Path) -> Schedule:
    """The schedule of a file.

    Raises:
        BadInput: the file cannot be read, or is refused by `schedule_from_csv`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"a schedule must be readable, {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"a schedule must be a text in UTF-8, {path}: {error.reason}; check the path") from error
    return schedule_from_csv(text, str(path))


def schedule_from_csv(text: str, file: str) -> Schedule:
    """The schedule of a text in the formats "compute_only" and "compute_comms" of PyTorch.

    A stage's device is the row that computes it. Idle cells have no meaning: an action starts when its inputs are
    there. A B in a file that also has I or W is an input and a weight gradient in one, after which the gradient leaves.
    The parts of OVERLAP_F_B run one after the other. Messages are checked and then left out, as the schedule implies
    them: one leaves when its action has stopped. UNSHARD, RESHARD and REDUCE_GRAD are left out.

    Args:
        text: the content of the file.
        file: its name, for messages.

    Raises:
        BadInput: a cell that is no action; a stage on two rows; an action that is missing or comes twice; a backward
            that is neither whole nor split; a message without its partner; ranks that wait for each other in a circle.

    >>> schedule = schedule_from_csv("0F0,0F1,0I0,0W0,0B1\\n1F0,1B0,1F1,1B1", "two.csv")
    >>> [str(action) for action in schedule.actions(1)], sorted(schedule.full_backwards)
    (['1F0', '1B0', '1W0', '1F1', '1B1', '1W1'], [9, 12, 13])
    """
    actions = read_cells(text, file)
    check_actions(actions)
    return _schedule(actions)


def _schedule(actions: CsvActions) -> Schedule:
    is_split = any(action.kind == "B" and action not in actions.full for action in actions.cells)
    codes = Codes(actions.n_stages, actions.n_micro_batches)
    programs = tuple(
        codes.encode(
            [
                Action(part.stage, ActionKind(part.kind), part.micro_batch)
                for _, parts in operations
                for part in parts
                if part.kind in ("F", "B") or (part.kind == "W" and is_split)
            ]
        )
        for operations in actions.operations
    )
    full = [Action(stage, ActionKind(kind), micro_batch) for stage, kind, micro_batch in actions.full if is_split]
    return Schedule(
        order=None,
        devices=tuple(actions.rows[stage] for stage in range(actions.n_stages)),
        n_micro_batches=actions.n_micro_batches,
        programs=programs,
        full_backwards=frozenset(codes.encode(full).tolist()),
    )


def check_actions(actions: CsvActions) -> None:
    """Check stages, micro-batches, messages, and that no ranks wait for each other in a circle.

    Raises:
        BadInput: with the row, and where there is one the cell.
    """
    _check_stages(actions)
    _check_counts(actions)
    _check_messages(actions)
    _check_progress(actions)


def _check_stages(actions: CsvActions) -> None:
    """Every row has actions, and stages count from 0 without gaps."""
    for row, operations in enumerate(actions.operations):
        if not operations:
            raise BadInput(f"{actions.file}, row {row + 1}: every rank runs a stage, got no action; delete the row")
    if not actions.cells:
        raise BadInput(f"{actions.file}: a schedule has a row of actions for every rank, got no action")
    last, n_stages = max(actions.rows), actions.n_stages
    if last >= n_stages:
        missing = next(stage for stage in count() if stage not in actions.rows)
        raise BadInput(
            f"{actions.file}, row {actions.rows[last] + 1}: stages count from 0 without gaps, "
            f"got stage {last}{_first_cell(actions, last)} and no stage {missing}"
        )
    if n_stages > MAX_STAGES:
        raise BadInput(f"{actions.file}: a schedule has at most {MAX_STAGES:,} stages, got {n_stages:,}")


def _first_cell(actions: CsvActions, stage: int) -> str:
    return next((f" in {cell}" for action, cell in actions.cells.items() if action.stage == stage), "")


def _check_counts(actions: CsvActions) -> None:
    """Every stage has the forward of every micro-batch, and its backward, or no stage has a backward."""
    kinds = "FBW" if actions.kinds & {"B", "W"} else "F"
    n_of = Counter((action.stage, action.kind) for action in actions.cells)
    last = max(actions.cells, key=lambda action: action.micro_batch)
    for stage in range(actions.n_stages):
        for kind in kinds:
            if n_of[stage, kind] <= last.micro_batch:
                _refuse_missing(actions, stage, kind, last)


def _refuse_missing(actions: CsvActions, stage: int, kind: str, last: CsvAction) -> NoReturn:
    micro_batch = next(m for m in count() if CsvAction(stage, kind, m) not in actions.cells)
    for half, other in ("IW", "WI"):
        cell = actions.cells.get(CsvAction(stage, "B" if half == "I" else half, micro_batch))
        if cell and kind != "F":
            cell.refuse(f"a backward is a B, or an I and a W, got no {stage}{other}{micro_batch}")
    raise BadInput(
        f"{actions.file}, row {actions.rows[stage] + 1}: every stage runs all micro-batches, "
        f"got {last.micro_batch} in {actions.cells[last]}, and no {stage}{kind}{micro_batch}"
    )


def _peers(action: CsvAction) -> tuple[int, int]:
    """The stages that send and receive a message."""
    step = 1 if action.kind.endswith("F") else -1
    sender = action.stage if action.kind.startswith("SEND") else action.stage - step
    return sender, sender + step


def _check_messages(actions: CsvActions) -> None:
    """Every message has an output to send, an input to receive, and leads to another row."""
    for action, cell in actions.cells.items():
        if action.kind in MESSAGES:
            sender, receiver = _peers(action)
            ends = [CsvAction(stage, action.kind[-1], action.micro_batch) for stage in (sender, receiver)]
            if not all(end in actions.cells for end in ends):
                cell.refuse("a message leads from a stage to the next, or back, got no action at one of its ends")
            if actions.rows[sender] == actions.rows[receiver]:
                cell.refuse("a message leads to another rank, got two stages of one rank; delete it")


def _needs(actions: CsvActions, action: CsvAction, by_message: bool) -> Iterator[CsvAction]:
    """What must be done before an action; with messages, a cell of its own rank must receive an input."""
    stage, kind, micro_batch = action
    if kind in ("B", "SEND_F"):
        yield CsvAction(stage, "F", micro_batch)
    if kind in ("W", "SEND_B"):
        yield CsvAction(stage, "B", micro_batch)
    source = {"F": stage - 1, "B": stage + 1}.get(kind)
    if source in actions.rows:
        if by_message and actions.rows[source] != actions.rows[stage]:
            yield CsvAction(stage, f"RECV_{kind}", micro_batch)
            yield CsvAction(source, f"SEND_{kind}", micro_batch)
        else:
            yield CsvAction(source, kind, micro_batch)


def _unmet(actions: CsvActions, parts: Sequence[CsvAction], done: set[CsvAction], by_message: bool) -> CsvAction | None:
    """The first input of a cell that is not there; a part may use what the parts before it make."""
    for i, part in enumerate(parts):
        for need in _needs(actions, part, by_message):
            if need not in done and need not in parts[:i]:
                return need
    return None


def _check_progress(actions: CsvActions) -> None:
    """Let every row run until a cell lacks an input; the cell that makes the input lets the row continue."""
    by_message = bool(actions.kinds & set(MESSAGES))
    done: set[CsvAction] = set()
    work = [iter(operations) for operations in actions.operations]
    waits: dict[int, tuple[CsvCell, CsvAction]] = {}
    waiting: dict[CsvAction, tuple[int, Operation]] = {}
    ready = deque((row, operation) for row, operations in enumerate(work) for operation in islice(operations, 1))
    while ready:
        row, operation = ready.popleft()
        for cell, parts in chain([operation], work[row]):
            need = _unmet(actions, parts, done, by_message)
            if need is not None:
                if need not in actions.cells:
                    cell.refuse(f"in a file with messages every input is sent and received, got no {need}")
                waits[row], waiting[need] = (cell, need), (row, (cell, parts))
                break
            done.update(parts)
            ready.extend(waiting.pop(part) for part in parts if part in waiting)
        else:
            waits.pop(row, None)
    if waits:
        _refuse_circle(actions, waits)


def _refuse_circle(actions: CsvActions, waits: dict[int, tuple[CsvCell, CsvAction]]) -> NoReturn:
    """Say who waits for whom: the cell that a row needs comes later in another row, or in its own."""
    row, texts = min(waits), dict[int, str]()
    while row not in texts:
        cell, need = waits[row]
        texts[row] = f"{cell} waits for {actions.cells[need]}"
        row = actions.cells[need].row
    circle = list(texts.values())[list(texts).index(row) :]
    raise BadInput(f"{actions.file}: ranks must not wait in a circle, got: {'; '.join(circle)}; reorder one of them")
