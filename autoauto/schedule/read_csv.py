"""PyTorch's pipeline schedule CSV -> Schedule: `read_schedule_csv`, `schedule_from_csv` [torch-pipelining].

A file may hold any actions in any order (`csv_cells.py`); `csv_checks.py` refuses those that are no schedule.
"""

from __future__ import annotations

from pathlib import Path

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Action, ActionKind, Codes, Schedule
from autoauto.schedule.csv_cells import CsvActions, read_cells
from autoauto.schedule.csv_checks import check_actions


def read_schedule_csv(path: Path) -> Schedule:
    """The schedule of a file; raises as `read_actions`."""
    return schedule_of(read_actions(path))


def read_actions(path: Path) -> CsvActions:
    """The actions of a file, which are checked.

    Raises:
        BadInput: the file cannot be read, or is refused by `schedule_from_csv`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"a schedule must be readable, {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"a schedule must be a text in UTF-8, {path}: {error.reason}; check the path") from error
    return _checked(text, str(path))


def schedule_from_csv(text: str, file: str) -> Schedule:
    """The schedule of a text in the formats "compute_only" and "compute_comms" of PyTorch; `file` is for messages.

    A stage's device is the row that computes it. Idle cells have no meaning: an action starts when its inputs are
    there. A B in a file that also has I or W is an input and a weight gradient in one, after which the gradient leaves.
    The parts of OVERLAP_F_B run one after the other. Messages are checked and then left out, as the schedule implies
    them: one leaves when its action has stopped. UNSHARD, RESHARD and REDUCE_GRAD are left out.

    Raises:
        BadInput: a cell that is no action; a stage on two rows; an action that is missing or comes twice; a backward
            that is neither whole nor split; a message without its partner or out of order; ranks that wait for each
            other in a circle.
    """
    return schedule_of(_checked(text, file))


def _checked(text: str, file: str) -> CsvActions:
    actions = read_cells(text, file)
    check_actions(actions)
    return actions


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
