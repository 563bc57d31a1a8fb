"""Stages of modules for PyTorch: a split and a schedule for `torch.distributed.pipelining`, modules for torchtitan."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec

from autoauto.exporters import schedule_csv
from autoauto.exporters.layer_lists import StageBlocks, blocks_of_stages, check_counts, not_run, write_blocks
from autoauto.exporters.registry import Check, Deployment, Exporter
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order

SPLIT_FILE = "split_spec.json"
TITAN_FILE = "torchtitan.toml"
LOADER = "torch_pipeline.py"
TORCH_SCHEDULES = {Order.GPIPE: "GPipe", Order.ONE_F_ONE_B: "1F1B"}
"""Names of schedules by which `get_schedule_class` finds them, of those with one stage a device [torch-pipelining]."""


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
    """Write `TITAN_FILE`: the modules of every stage, those without operators of their own by their weights.

    Raises:
        BadInput: torchtitan has no schedule of this name.
    """
    stages = blocks_of_stages(deployment, "torchtitan")
    knobs = deployment.knobs
    lines = [
        "[parallelism]",
        f"pipeline_parallel_degree = {len(stages)}",
        f"pipeline_parallel_microbatch_size = {knobs.batch_size}",
        "module_fqns_per_model_part = [",
        *(f"  {json.dumps(modules)}," for modules in map(_modules, stages)),
        "]",
    ]
    if knobs.training:
        schedule = json.dumps(_schedule(knobs.schedule))
        lines.insert(1, f"pipeline_parallel_schedule = {schedule}")
        if knobs.replicas > 1:
            lines[1:1] = [f"data_parallel_replicate_degree = {knobs.replicas}", "data_parallel_shard_degree = 1"]
        lines += ["", "[training]", f"local_batch_size = {knobs.batch_size * knobs.n_micro_batches}"]
    (folder / TITAN_FILE).write_text("\n".join([*lines, ""]), encoding="utf-8")
    write_blocks(deployment, stages, folder)


def _modules(blocks: StageBlocks) -> list[str]:
    """The modules of a stage: those beside the first block, the blocks, those beside the last."""
    first, last = blocks[0], blocks[-1]
    return [*first.others, *(block.module for block in blocks), *(last.others if last is not first else ())]


def _schedule(order: Order) -> str:
    """The name of an order in PyTorch.

    Raises:
        BadInput: it has none.
    """
    if order not in TORCH_SCHEDULES:
        raise BadInput(
            f"--to torchtitan names the schedules {', '.join(TORCH_SCHEDULES)}, got {order}; try --schedule 1f1b"
        )
    return TORCH_SCHEDULES[order]


def check_titan(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Read the file again, count its blocks, and look for modules that no stage has."""
    parallelism = tomllib.loads((folder / TITAN_FILE).read_text(encoding="utf-8"))["parallelism"]
    parts = parallelism["module_fqns_per_model_part"]
    blocks = {block.module for block in deployment.graph.blocks}
    yield check_counts(deployment, [len(blocks.intersection(modules)) for modules in parts])
    everything = blocks.union(*(block.others for block in deployment.graph.blocks))
    missing = sorted(everything.difference(*parts))
    detail = f"no stage has {', '.join(missing)}" if missing else f"{len(everything)} modules in {len(parts)} stages"
    yield Check("every module is in a stage", not missing, detail)
    yield not_run("torchtitan")


EXPORTERS = (
    Exporter(
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
        notes=f"A plan for training also has `{schedule_csv.FILE}`, and `{LOADER}` says how processes train by both.",
    ),
    Exporter(
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
    ),
)
