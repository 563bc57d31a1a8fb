"""One rank of a real pipeline: `python torch_pipeline.py RANK WORLD_SIZE FOLDER N_STAGES:FILE.csv ...`.

PyTorch loads every file and runs one step over gloo. The rank compares the loss and the gradients of its stages with
those of the whole model, and prints a line of JSON for every file. The ranks meet at a file of FOLDER.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

RUNTIME: Any = _PipelineScheduleRuntime  # without types
N_MICRO_BATCHES, WIDTH = 4, 8
LOSS = nn.MSELoss()


def model(n_stages: int) -> list[nn.Module]:
    """The stages, with the same weights on every rank."""
    torch.manual_seed(7)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)) for _ in range(n_stages)]


def gradients(module: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


def step(path: Path, n_stages: int, rank: int) -> dict[str, Any]:
    """Run the schedule of a file; the largest differences from the whole model."""
    text = path.read_text(encoding="utf-8").splitlines()[rank]
    mine = sorted({int(cell.split("F")[0]) for cell in text.split(",") if "F" in cell})
    whole, parts = model(n_stages), model(n_stages)
    inputs, target = torch.randn(2 * N_MICRO_BATCHES, WIDTH), torch.randn(2 * N_MICRO_BATCHES, WIDTH)
    loss = LOSS(nn.Sequential(*whole)(inputs), target)
    loss.backward()
    stages = [PipelineStage(parts[s], s, n_stages, torch.device("cpu")) for s in mine]
    schedule = RUNTIME(stages, N_MICRO_BATCHES, loss_fn=LOSS)
    schedule._load_csv(str(path), format="compute_only")
    losses: list[Tensor] = []
    schedule.step(*([inputs] if 0 in mine else []), target=target, losses=losses)
    assert all(len(gradients(parts[s])) == 4 for s in mine)
    pairs = [pair for s in mine for pair in zip(gradients(parts[s]), gradients(whole[s]), strict=True)]
    return {
        "file": path.name,
        "stages": mine,
        "gradient_error": max(float((own - other).abs().max()) for own, other in pairs),
        "loss_error": float((torch.stack(losses).mean() - loss).abs()) if losses else None,
    }


def main(rank: str, world_size: str, folder: str, *files: str) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=int(rank), world_size=int(world_size)
    )
    for file in files:
        n_stages, _, name = file.partition(":")
        print(json.dumps(step(Path(folder) / name, int(n_stages), int(rank))), flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
