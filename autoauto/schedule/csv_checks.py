"""PyTorch's pipeline schedule CSV -> Schedule: `read_schedule_csv`, `schedule_from_csv` [torch-pipelining].

A file may hold any actions in any order (`read_cells`); `check_actions` refuses those that are no schedule. Where it
hangs if sends wait for their receives: `hang_of_waiting_sends`.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
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
        """Number of stages."""
        return len(self.rows)

    @property
    def n_micro_batches(self) -> int:
        """Number of micro-batches, by the largest index."""
        return 1 + max(action.micro_batch for action in self.cells)

    @property
    def kinds(self) -> set[str]:
        """The kinds of all actions."""
        return {action.kind for action in self.cells}


def read_cells(text: str, file: str) -> CsvActions:
    """The actions of a text; `file` is its name, for messages.

    Raises BadInput for not a CSV file, a cell that is no action, a stage on two rows, or an action that comes twice.
    """
    cells = list(_cells(text, file))
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


MAX_STAGES = 2_000
"""The arrays of a schedule (`Codes`) grow with the square of the number of stages."""


def check_actions(actions: CsvActions) -> None:
    """Check stages, micro-batches, messages with their order, and that no ranks wait for each other in a circle.

    Raises BadInput with the row, and where there is one the cell.
    """
    _check_stages(actions)
    _check_counts(actions)
    _check_messages(actions)
    _check_progress(actions)
    _check_order(actions)


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
        first_cell = next((f" in {cell}" for action, cell in actions.cells.items() if action.stage == last), "")
        raise BadInput(
            f"{actions.file}, row {actions.rows[last] + 1}: stages count from 0 without gaps, "
            f"got stage {last}{first_cell} and no stage {missing}"
        )
    if n_stages > MAX_STAGES:
        raise BadInput(f"{actions.file}: a schedule has at most {MAX_STAGES:,} stages, got {n_stages:,}")


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
    if kind != "F":
        # A file writes I for the input gradient, which is B here.
        for half, other in (("B", "W"), ("W", "I")):
            cell = actions.cells.get(CsvAction(stage, half, micro_batch))
            if cell is not None:
                cell.refuse(f"a backward is a B, or an I and a W, got no {stage}{other}{micro_batch}")
    raise BadInput(
        f"{actions.file}, row {actions.rows[stage] + 1}: every stage runs all micro-batches, "
        f"got {last.micro_batch} in {actions.cells[last]}, and no {stage}{kind}{micro_batch}"
    )


def _peers(action: CsvAction) -> tuple[int, int]:
    """The stages that send and receive a message: activations go to the next stage, gradients to the one before."""
    step = 1 if action.kind.endswith("F") else -1
    if action.kind.startswith("SEND"):
        return action.stage, action.stage + step
    return action.stage - step, action.stage


def _check_messages(actions: CsvActions) -> None:
    """Every message has an output to send, an input to receive, and leads to another row."""
    for action, cell in actions.cells.items():
        if action.kind in MESSAGES:
            sender, receiver = _peers(action)
            for stage in (sender, receiver):
                if CsvAction(stage, action.kind[-1], action.micro_batch) not in actions.cells:
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
    at = [0] * len(actions.operations)  # the next cell of every row
    needs: dict[int, CsvAction] = {}  # what a row waits for
    # Who waits for an action: if two rows do, one makes it itself, later, so that neither ever goes on.
    waiting: dict[CsvAction, int] = {}
    ready = deque(range(len(actions.operations)))
    while ready:
        row = ready.popleft()
        needs.pop(row, None)
        operations = actions.operations[row]
        while at[row] < len(operations):
            cell, parts = operations[at[row]]
            need = _unmet(actions, parts, done, by_message)
            if need is not None:
                if need not in actions.cells:
                    cell.refuse(f"in a file with messages every input is sent and received, got no {need}")
                needs[row] = need
                waiting[need] = row
                break
            at[row] += 1
            done.update(parts)
            ready.extend(waiting.pop(part) for part in parts if part in waiting)
    if needs:
        waits = {row: actions.operations[row][at[row]][0] for row in needs}
        blocked_by = {row: actions.cells[need] for row, need in needs.items()}
        circle = _circle(waits, blocked_by)
        raise BadInput(f"{actions.file}: ranks must not wait in a circle, got: {circle}; reorder one of them")


def _circle(waits: Mapping[int, CsvCell], blocked_by: Mapping[int, CsvCell]) -> str:
    """Who waits for whom: the cell that a row needs comes later in another row, or in its own."""
    row, texts = min(waits), dict[int, str]()
    while row not in texts:
        texts[row] = f"{waits[row]} waits for {blocked_by[row]}"
        row = blocked_by[row].row
    return "; ".join(list(texts.values())[list(texts).index(row) :])


def _check_order(actions: CsvActions) -> None:
    """Messages between two ranks come in the order in which they were sent: NCCL has no tags to tell them apart."""
    sent: dict[tuple[int, int], list[CsvAction]] = defaultdict(list)
    received: dict[tuple[int, int], list[CsvAction]] = defaultdict(list)
    for action in actions.cells:
        if action.kind in MESSAGES:
            sender, receiver = _peers(action)
            side = sent if action.kind.startswith("SEND") else received
            side[actions.rows[sender], actions.rows[receiver]].append(action)
    for ranks, messages in sent.items():
        for message, receipt in zip(messages, received[ranks], strict=True):
            if _partner(message) != receipt:
                actions.cells[receipt].refuse(
                    "messages between two ranks are received in the order in which they are sent, got "
                    f"{_partner(receipt)} behind {actions.cells[message]}; reorder the receives"
                )


def _partner(message: CsvAction) -> CsvAction:
    """The other end of a message: of 0SEND_F3 it is 1RECV_F3."""
    sender, receiver = _peers(message)
    way, _, kind = message.kind.partition("_")
    if way == "SEND":
        return CsvAction(receiver, f"RECV_{kind}", message.micro_batch)
    return CsvAction(sender, f"SEND_{kind}", message.micro_batch)


def hang_of_waiting_sends(actions: CsvActions) -> str:
    """Who waits for whom in a checked file if a send waits for its receive; empty where all ranks come to their end."""
    programs = []
    for operations in actions.operations:
        programs.append([(cell, parts[0]) for cell, parts in operations if parts[0].kind in MESSAGES])
    at = [0] * len(programs)
    heads = [row for row, program in enumerate(programs) if program]
    while heads:
        row = heads.pop()
        if at[row] == len(programs[row]):
            continue
        partner = _partner(programs[row][at[row]][1])
        other = actions.rows[partner.stage]
        # Both ranks have come to this message: both go on, and may meet others that wait.
        if programs[other][at[other]][1] == partner:
            at[row] += 1
            at[other] += 1
            heads += [row, other]
    waits: dict[int, CsvCell] = {}
    blocked_by: dict[int, CsvCell] = {}
    for row, program in enumerate(programs):
        if at[row] < len(program):
            cell, message = program[at[row]]
            waits[row] = cell
            blocked_by[row] = actions.cells[_partner(message)]
    return _circle(waits, blocked_by) if waits else ""


def read_schedule_csv(path: Path) -> Schedule:
    """The schedule of a file; raises as `read_actions`."""
    return schedule_of(read_actions(path))


def read_actions(path: Path) -> CsvActions:
    """The actions of a file, which are checked.

    Raises BadInput if the file cannot be read, or is refused by `schedule_from_csv`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"a schedule must be readable, {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"a schedule must be a text in UTF-8, {path}: {error.reason}; check the path") from error
    actions = read_cells(text, str(path))
    check_actions(actions)
    return actions


def schedule_from_csv(text: str, file: str) -> Schedule:
    """The schedule of a text in the formats "compute_only" and "compute_comms" of PyTorch; `file` is for messages.

    A stage's device is the row that computes it. Idle cells have no meaning: an action starts when its inputs are
    there. A B in a file that also has I or W is an input and a weight gradient in one, after which the gradient leaves.
    The parts of OVERLAP_F_B run one after the other. Messages are checked and then left out, as the schedule implies
    them: one leaves when its action has stopped. UNSHARD, RESHARD and REDUCE_GRAD are left out. Raises BadInput for a
    cell that is no action; a stage on two rows; an action that is missing or comes twice; a backward that is neither
    whole nor split; a message without its partner or out of order; ranks that wait for each other in a circle.
    """
    actions = read_cells(text, file)
    check_actions(actions)
    return schedule_of(actions)


def schedule_of(actions: CsvActions) -> Schedule:
    """The schedule of actions that were checked."""
    codes = Codes(actions.n_stages, actions.n_micro_batches)
    # Where every backward is whole, the schedule has no weight gradients of their own.
    is_split = any(action.kind == "B" and action not in actions.full for action in actions.cells)
    kinds = {"F", "B", "W"} if is_split else {"F", "B"}
    programs = []
    for operations in actions.operations:
        program = []
        for _, parts in operations:
            for stage, kind, micro_batch in parts:
                if kind in kinds:
                    program.append(Action(stage, ActionKind(kind), micro_batch))
        programs.append(codes.encode(program))
    full: frozenset[int] = frozenset()
    if is_split:
        wholes = [Action(stage, ActionKind(kind), micro_batch) for stage, kind, micro_batch in actions.full]
        full = frozenset(codes.encode(wholes).tolist())
    return Schedule(
        order=None,
        devices=tuple(actions.rows[stage] for stage in range(actions.n_stages)),
        n_micro_batches=actions.n_micro_batches,
        programs=tuple(programs),
        full_backwards=full,
    )
