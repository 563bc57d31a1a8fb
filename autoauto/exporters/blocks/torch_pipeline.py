"""The pipeline of this folder in PyTorch, for training: `load` is called by every rank of a program of yours.

`torchrun --nproc-per-node N PROGRAM` starts it on the N devices of the plan:

    distributed.init_process_group("gloo")
    stages, schedule = load(module, (micro_batch,), loss)
    optimizer = torch.optim.Adam(parameter for stage in stages for parameter in stage.submod.parameters())
    for batch, target in batches:  # of as many micro-batches as the plan has
        losses = []  # is filled on the rank of the last stage
        inputs = (batch,) if stages[0].is_first else ()
        schedule.step(*inputs, target=target, losses=losses)
        optimizer.step()
        optimizer.zero_grad()
"""

import csv
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def load(module: Any, micro_batch: tuple[Any, ...], loss: Any, device: str = "cpu", folder: Path = FOLDER) -> Any:
    """The stages of this rank, and the schedule whose `step` runs them.

    Args:
        module: the model that was exported, with the same weights on every rank.
        micro_batch: positional inputs of the module, of one micro-batch.
        loss: what a micro-batch's output and target cost, the mean over its samples; gradients are divided by the
            number of micro-batches.
        device: where this rank computes.
        folder: of the artifact.

    Raises:
        ValueError: this is not one of as many ranks as the plan has devices, or the module is another one.
    """
    import torch
    from torch import distributed
    from torch.distributed.pipelining import SplitPoint, pipeline
    from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime

    with open(folder / "schedule.csv", encoding="utf-8", newline="") as file:
        programs = [[_Action.from_str(cell) for cell in row] for row in csv.reader(file)]
    if distributed.get_world_size() != len(programs):
        raise ValueError(f"the plan has {len(programs)} devices, got {distributed.get_world_size()} ranks")
    split = json.loads((folder / "split_spec.json").read_text(encoding="utf-8"))
    pipe = pipeline(module, micro_batch, split_spec={name: SplitPoint[point] for name, point in split.items()})
    stages_of_ranks = [sorted({action.stage_index for action in program}) for program in programs]
    n_stages = 1 + max(map(max, stages_of_ranks))
    if pipe.num_stages != n_stages:
        raise ValueError(f"the plan has {n_stages} stages, the module got {pipe.num_stages}")
    stages = [pipe.build_stage(index, torch.device(device)) for index in stages_of_ranks[distributed.get_rank()]]
    runtime: Any = _PipelineScheduleRuntime  # without types
    n_micro_batches = len({action.microbatch_index for action in programs[0]})
    schedule = runtime(stages, n_micro_batches, loss_fn=loss)
    schedule._load_csv(str(folder / "schedule.csv"))
    return stages, schedule
