"""A schedule as the CSV file that PyTorch's pipelines load: `schedule_to_csv` [torch-pipelining]."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from autoauto.exporters.exporter import Check, Deployment, Exporter
from autoauto.records.errors import BadInput
from autoauto.records.schedule import CHECK, WEIGHT, ActionKind, Schedule
from autoauto.schedule.csv_checks import read_schedule_csv

FILE = "schedule.csv"


def schedule_to_csv(schedule: Schedule) -> str:
    """One row a device and one cell an action, in order, as `_PipelineScheduleRuntime._load_csv` reads "compute_only".

    A cell is the stage, a letter and the micro-batch. F is a forward and B a backward; where the backward is split, I
    is the input gradient, W the weight gradient, and B does both. Idle time has no cells: PyTorch reads an empty cell
    as none, and every action starts when its inputs are there. PyTorch adds the messages itself. Its loader accepts
    training alone: a file of forwards is for other readers, as `eval()` runs a training schedule without backwards.

    Raises:
        BadInput: the schedule has bubble checks, or a stage on several devices: PyTorch has neither.

    >>> from autoauto.schedule.orders.one_f_one_b import one_f_one_b
    >>> print(schedule_to_csv(one_f_one_b(2, 2)), end="")
    0F0,0F1,0B0,0B1
    1F0,1B0,1F1,1B1
    """
    if schedule.has(CHECK):
        raise BadInput("PyTorch has no bubble checks, got a schedule with some; leave them out of the CSV")
    for device, program in enumerate(schedule.programs):
        for stage in set(schedule.codes.stages(program).tolist()):
            if schedule.devices[stage] != device:
                raise BadInput(
                    f"PyTorch runs all of a stage on one rank, got stage {stage} on devices "
                    f"{schedule.devices[stage]} and {device}; give it one device"
                )
    return "".join(f"{','.join(_cells(schedule, device))}\n" for device in range(schedule.n_devices))


def write_schedule_csv(schedule: Schedule, path: Path) -> None:
    """Write a schedule to a file as the CSV of `schedule_to_csv`; raises `BadInput` as that, or for the file."""
    text = schedule_to_csv(schedule)
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise BadInput(f"the CSV needs a file that can be written, got {path} ({error.strerror})") from error


def write(deployment: Deployment, folder: Path) -> None:
    """Write the order of the micro-batches."""
    deployment.one_plan()
    write_schedule_csv(deployment.schedule, folder / FILE)


def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Read the file back: its actions and what they wait for are checked, and every device has those of the plan."""
    schedule, expected = read_schedule_csv(folder / FILE), deployment.schedule
    same = schedule.n_devices == expected.n_devices
    for device in range(expected.n_devices):
        same = same and list(schedule.actions(device)) == list(expected.actions(device))
    n_actions = sum(map(len, expected.programs))
    yield Check("every rank has the actions of the plan", same, f"{n_actions} actions on {expected.n_devices} ranks")


def _cells(schedule: Schedule, device: int) -> Iterator[str]:
    codes, full = schedule.codes, schedule.full_backwards
    backward = "I" if schedule.has(WEIGHT) else "B"  # without the weight gradient, where it is an action of its own
    in_full = {code + codes.n_stages * codes.n_numbers for code in full}  # WEIGHT codes, which a cell B includes
    for code, action in zip(schedule.programs[device].tolist(), schedule.actions(device), strict=True):
        if code in in_full:
            continue
        letter = str(action.kind)
        if action.kind is ActionKind.BACKWARD and code not in full:
            letter = backward
        yield f"{action.stage}{letter}{action.micro_batch}"


EXPORTER = Exporter(
    name="schedule-csv",
    summary="PyTorch's pipelines, as a schedule CSV",
    apply=(
        "from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime",
        "schedule = _PipelineScheduleRuntime(stages, n_microbatches=N, loss_fn=loss)",
        f'schedule._load_csv("{FILE}")',
    ),
    write=write,
    check=check,
    trains=True,
    notes=(
        "A row is a device of one replica; a program makes the stages and averages gradients between replicas.\n"
        "PyTorch loads files of training only: a file of forwards is for other readers."
    ),
)
