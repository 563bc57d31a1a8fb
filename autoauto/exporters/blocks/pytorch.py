"""Stages of modules for PyTorch: a split and a schedule for `torch.distributed.pipelining`, modules for torchtitan."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from autoauto.exporters import schedule_csv
from autoauto.exporters.blocks.stages import (
    blocks_of_stages,
    check_counts,
    check_devices,
    not_run,
    write_blocks,
)
from autoauto.exporters.exporter import Check, Deployment, Exporter
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from autoauto.schedule.orders.registry import make_schedule

SPLIT_FILE = "split_spec.json"
TITAN_FILE = "torchtitan.toml"
LOADER = "torch_pipeline.py"
TORCH_SCHEDULES = {Order.GPIPE: "GPipe", Order.ONE_F_ONE_B: "1F1B", Order.INTERLEAVED: "Interleaved1F1B"}
"""Names by which `get_schedule_class` finds the schedules whose order is the same in PyTorch [torch-pipelining]."""


def write_split(deployment: Deployment, folder: Path) -> None:
    """Write `SPLIT_FILE`: the path of the first block of every stage but the first, and "BEGINNING".

    Of a plan for training also the schedule, and `LOADER`, which loads both.
    """
    stages = blocks_of_stages(deployment, "torch")
    split = {blocks[0].module: "BEGINNING" for blocks in stages[1:]}
    (folder / SPLIT_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(split), indent=1))
    write_blocks(deployment, stages, folder)
    if deployment.knobs.training:
        schedule_csv.write(deployment, folder)
        program = Path(__file__).with_name(LOADER).read_text(encoding="utf-8")
        (folder / LOADER).write_text(program, encoding="utf-8")


def check_split(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Count the blocks between the split points of the file, and read the schedule back."""
    split = json.loads((folder / SPLIT_FILE).read_text(encoding="utf-8"))
    modules = [block.module for block in deployment.graph.blocks]
    cuts = [0, *map(modules.index, split), len(modules)]
    yield check_counts(deployment, [stop - start for start, stop in pairwise(cuts)])
    if deployment.knobs.training:
        yield from schedule_csv.check(deployment, folder)
    yield not_run("torch.distributed.pipelining")


def write_titan(deployment: Deployment, folder: Path) -> None:
    """Write `TITAN_FILE`: the modules of every stage, those without operators of their own by their weights."""
    stages = blocks_of_stages(deployment, "torchtitan")
    knobs = deployment.knobs
    lines = ["[parallelism]"]
    if knobs.training and knobs.replicas > 1:
        lines += [f"data_parallel_replicate_degree = {knobs.replicas}", "data_parallel_shard_degree = 1"]
    if knobs.training:
        lines.append(f"pipeline_parallel_schedule = {json.dumps(_schedule(deployment))}")
    lines.append(f"pipeline_parallel_degree = {deployment.plan.n_devices}")
    lines.append(f"pipeline_parallel_microbatch_size = {knobs.batch_size}")
    lines.append("module_fqns_per_model_part = [")
    for blocks in stages:  # the modules beside the first block, the blocks, and those beside the last
        modules = [*blocks[0].others, *(block.module for block in blocks)]
        if len(blocks) > 1:
            modules += blocks[-1].others
        lines.append(f"  {json.dumps(modules)},")
    lines.append("]")
    if knobs.training:
        lines += ["", "[training]", f"local_batch_size = {knobs.batch_size * knobs.mode.n_micro_batches}"]
    (folder / TITAN_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_blocks(deployment, stages, folder)


def _schedule(deployment: Deployment) -> str:
    knobs, n_stages = deployment.knobs, len(deployment.plan.stages)
    order, n_micro_batches = knobs.mode.order, knobs.mode.n_micro_batches
    if order not in TORCH_SCHEDULES:
        raise BadInput(
            f"--to torchtitan names the schedules {', '.join(TORCH_SCHEDULES)}, got {order}; try --schedule 1f1b"
        )
    if order is Order.ONE_F_ONE_B and n_micro_batches < n_stages:
        raise BadInput(
            f"1F1B of PyTorch needs at least as many micro-batches as stages, got {n_micro_batches} and {n_stages}; "
            f"try --n-micro-batches {n_stages}"
        )
    return TORCH_SCHEDULES[order]


def check_titan(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Read the file again, count its blocks, and look for modules that no stage has."""
    file = tomllib.loads((folder / TITAN_FILE).read_text(encoding="utf-8"))
    parts = file["parallelism"]["module_fqns_per_model_part"]
    blocks = {block.module for block in deployment.graph.blocks}
    yield check_counts(deployment, [len(blocks.intersection(modules)) for modules in parts])
    everything = blocks.union(*(block.others for block in deployment.graph.blocks))
    missing = sorted(everything.difference(*parts))
    detail = f"{len(everything)} modules in {len(parts)} stages"
    if missing:
        detail = f"no stage has {', '.join(missing)}"
    yield Check("every module is in a stage", not missing, detail)
    yield _check_order(deployment, file)
    yield not_run("torchtitan")


def _check_order(deployment: Deployment, file: dict[str, Any]) -> Check:
    parallelism = file["parallelism"]
    n_devices, n_stages = parallelism["pipeline_parallel_degree"], len(parallelism["module_fqns_per_model_part"])
    if not deployment.knobs.training:
        return check_devices(deployment, n_devices, 1, n_stages // n_devices)
    n_micro_batches = file["training"]["local_batch_size"] // parallelism["pipeline_parallel_microbatch_size"]
    name = parallelism["pipeline_parallel_schedule"]
    order = next(order for order, torch_name in TORCH_SCHEDULES.items() if torch_name == name)
    schedule = make_schedule(order, n_devices, n_micro_batches, n_chunks=n_stages // n_devices)
    same = schedule_csv.schedule_to_csv(schedule) == schedule_csv.schedule_to_csv(deployment.schedule)
    detail = f"{name} of {n_micro_batches} micro-batches"
    if order is Order.GPIPE:
        detail += ", whose backward passes begin with the first"
    return Check("every rank has the actions of the plan", same, detail)


TORCH = Exporter(
    name="torch",
    summary="torch.distributed.pipelining, a split of the module",
    apply=(
        "import json; from torch.distributed.pipelining import SplitPoint, pipeline",
        f'split_spec = {{k: SplitPoint[v] for k, v in json.load(open("{SPLIT_FILE}")).items()}}',
        "stage = pipeline(module, mb_args=(micro_batch,), split_spec=split_spec).build_stage(rank, device)",
    ),
    write=write_split,
    check=check_split,
    trains=True,
    notes=f"A plan for training also has `{schedule_csv.FILE}`, and `{LOADER}` says how processes train by both,\n"
    "a process a device. Every replica is such a group of its own; a program averages gradients between replicas.",
)
TORCHTITAN = Exporter(
    name="torchtitan",
    summary="torchtitan, the modules of every stage",
    apply=(
        "import dataclasses, tomllib",
        f'parallelism = tomllib.load(open("{TITAN_FILE}", "rb"))["parallelism"]',
        "config.parallelism = dataclasses.replace(config.parallelism, **parallelism)",
    ),
    write=write_titan,
    check=check_titan,
    trains=True,
    notes=(
        "PyTorch's GPipe runs the backward passes of a rank from the first micro-batch on, a plan from the last;\n"
        "a step takes as long."
    ),
)
