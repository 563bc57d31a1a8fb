"""The schedules that torchtitan makes by name: the classes of PyTorch take the plan, and run its order."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from autoauto.exporters.blocks.pytorch import TORCH_SCHEDULES
from autoauto.exporters.registry import write_artifact
from autoauto.exporters.schedule_csv import schedule_to_csv
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order, Schedule
from autoauto.schedule.orders.registry import TRAINING_ORDERS, make_schedule
from autoauto.schedule.simulate.simulate import simulate
from tests.exporters.block_plans import MakeChain, deployment, graph_of_blocks, written
from tests.exporters.schedule_csv.conftest import Case, times_of
from tests.orders import STAGES_PER_DEVICE, n_stages_of

SIZES = [*product((1, 2, 3, 4), range(1, 9))]
"""Devices and micro-batches."""


@pytest.mark.parametrize("order", TRAINING_ORDERS)
def test_what_is_written_has_the_order_of_the_plan(chain: MakeChain, tmp_path: Path, order: Order) -> None:
    chunks = STAGES_PER_DEVICE[order][0]
    for n_devices, n_micro_batches in SIZES:
        n_stages, folder = n_stages_of(order, n_devices), tmp_path / f"{n_devices}-{n_micro_batches}"
        partition = [2 * (8 * stage // n_stages) for stage in range(n_stages + 1)]
        knobs = {"schedule": order, "stages_per_device": chunks, "n_micro_batches": n_micro_batches, "n_ipu": n_devices}
        try:
            made = deployment(graph_of_blocks(chain, 8), partition, **knobs)
        except BadInput:
            continue  # no plan is so
        if order in TORCH_SCHEDULES and (order is not Order.ONE_F_ONE_B or n_micro_batches >= n_stages):
            written(made, "torchtitan", folder)
        else:
            with pytest.raises(BadInput, match=f"got {order}|got {n_micro_batches} and {n_stages}; try --n-micro-bat"):
                write_artifact(made, "torchtitan", folder)


def steps(schedules: Any, order: Order, n_devices: int, n_micro_batches: int, rank: int) -> list[str]:
    """The passes that PyTorch's class runs in a step on a rank with one stage."""
    is_last = rank == n_devices - 1
    stage = MagicMock(num_stages=n_devices, stage_index=rank, is_first=rank == 0, is_last=is_last, device="cpu")
    for direction in ("fwd_recv", "fwd_send", "bwd_recv", "bwd_send"):
        getattr(stage, f"get_{direction}_ops").return_value = []
    schedule = schedules.get_schedule_class(TORCH_SCHEDULES[order])(stage, n_micro_batches, loss_fn=lambda *_: 0)
    schedule._initialize_stage, schedule._update_losses = MagicMock(), MagicMock()
    arguments: dict[str, Any] = {"arg_mbs": [()], "kwarg_mbs": [{}], "target_mbs": [0]}
    schedule._step_microbatches(**{name: value * n_micro_batches for name, value in arguments.items()}, losses=[])
    letters = {"forward_one_chunk": "F", "backward_one_chunk": "B"}
    return [f"{rank}{letters[name]}{args[0]}" for name, args, _ in stage.method_calls if name in letters]


def with_backwards_from_the_first(schedule: Schedule) -> Schedule:
    """GPipe as PyTorch has it; codes of a kind count stages and micro-batches up."""
    return replace(schedule, programs=tuple(np.sort(program) for program in schedule.programs))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of torch
@pytest.mark.parametrize("order", [Order.ONE_F_ONE_B, Order.GPIPE])
def test_classes_of_pytorch_run_the_order_that_is_written_and_refuse_what_is_refused(order: Order) -> None:
    schedules: Any = pytest.importorskip("torch.distributed.pipelining.schedules", reason="torch has the classes")
    for n_devices, n_micro_batches in SIZES:
        if order is Order.ONE_F_ONE_B and n_micro_batches < n_devices:
            with pytest.raises(ValueError, match="must be greater than"):
                steps(schedules, order, n_devices, n_micro_batches, 0)
            continue
        ours = make_schedule(order, n_devices, n_micro_batches)
        if order is Order.GPIPE:
            ours = with_backwards_from_the_first(ours)
        theirs = [",".join(steps(schedules, order, n_devices, n_micro_batches, rank)) for rank in range(n_devices)]
        assert theirs == schedule_to_csv(ours).split()


@pytest.mark.parametrize("n_devices", [2, 3, 4])
def test_gpipe_of_pytorch_takes_as_long(n_devices: int) -> None:
    times = times_of(Case(Order.GPIPE, n_devices, 6))
    ours = make_schedule(Order.GPIPE, n_devices, 6)
    assert simulate(with_backwards_from_the_first(ours), times).stop_tick == simulate(ours, times).stop_tick


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of torch
def test_interleaved_of_pytorch_is_that_of_the_plan() -> None:
    schedules: Any = pytest.importorskip("torch.distributed.pipelining.schedules", reason="torch has the classes")
    for n_devices, n_micro_batches, chunks in product((2, 3, 4), range(2, 13), (2, 3)):
        if n_micro_batches % n_devices:
            continue  # no plan is so
        fields = {"num_stages": n_devices * chunks, "group_size": n_devices, "group_rank": 0, "submod": None}
        stages = [SimpleNamespace(stage_index=i * n_devices, is_last=False, **fields) for i in range(chunks)]
        order = schedules.ScheduleInterleaved1F1B(stages, n_micro_batches).pipeline_order
        theirs = [",".join(str(action) for action in order[rank] if action) for rank in range(n_devices)]
        ours = make_schedule(Order.INTERLEAVED, n_devices, n_micro_batches, n_chunks=chunks)
        assert theirs == schedule_to_csv(ours).split()
