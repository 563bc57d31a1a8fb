"""How many blocks every stage has, in the layout of Megatron-LM: part i is on rank i mod size."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from autoauto.exporters.blocks.stages import (
    blocks_of_stages,
    check_counts,
    check_devices,
    not_run,
    require_one_list,
    require_order,
    write_blocks,
)
from autoauto.exporters.exporter import Check, Deployment, Exporter
from autoauto.records.schedule import Order

FILE = "megatron.sh"
LAYOUT, SIZE = "--pipeline-model-parallel-layout", "--pipeline-model-parallel-size"


def megatron_layout(counts: list[int]) -> str:
    """The layout of Megatron-LM [megatron-layout]: E is the embedding, t a decoder layer, L the loss, | ends a stage.

    >>> megatron_layout([3, 4, 1])
    'Et*3|t*4|tL'
    """
    stages = ["t" if count == 1 else f"t*{count}" for count in counts]
    return f"E{'|'.join(stages)}L"


def megatron_counts(layout: str) -> list[int]:
    """The decoder layers of every stage of a layout, which may repeat parts in parentheses and have commas.

    >>> megatron_counts("Et*3|(tt|)*2,t|L")
    [3, 2, 2, 1, 0]
    """
    for factor in (r"\(([^()]*)\)\*(\d+)", r"(\w)\*(\d+)"):  # repeated groups, then repeated layers
        layout = re.sub(factor, lambda match: match[1] * int(match[2]), layout)
    return [stage.count("t") for stage in layout.split("|")]


def write(deployment: Deployment, folder: Path) -> None:
    """Write the options of Megatron-LM."""
    require_order(deployment, "Megatron-LM", [Order.ONE_F_ONE_B, Order.INTERLEAVED])
    stages = blocks_of_stages(deployment, "megatron")
    require_one_list(deployment, "megatron", first_stage=False)
    counts, knobs = list(map(len, stages)), deployment.knobs
    words = ["--num-layers", f"{sum(counts)}", SIZE, f"{deployment.plan.n_devices}"]
    if len(counts) > 1:
        words += [LAYOUT, megatron_layout(counts)]
    words += ["--micro-batch-size", f"{knobs.batch_size}"]
    if knobs.training:
        words += ["--global-batch-size", f"{knobs.n_samples}"]
    (folder / FILE).write_text(f"PIPELINE_ARGS=({shlex.join(words)})\n", encoding="utf-8")
    write_blocks(deployment, stages, folder)


def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Read the options back by the rules of Megatron-LM, and the layout by its own parser where that is installed."""
    text, knobs = (folder / FILE).read_text(encoding="utf-8"), deployment.knobs
    words = shlex.split(text[text.index("(") + 1 : text.rindex(")")])
    options = dict(zip(words[::2], words[1::2], strict=True))
    size, counts = int(options[SIZE]), [int(options["--num-layers"])]
    if LAYOUT in options:
        counts = megatron_counts(options[LAYOUT])
    yield check_counts(deployment, counts)
    n_micro_batches = 1
    if knobs.training:  # the replicas share a global batch
        n_micro_batches = int(options["--global-batch-size"]) // (int(options["--micro-batch-size"]) * knobs.replicas)
    yield check_devices(deployment, size, n_micro_batches, len(counts) // size)
    if LAYOUT in options:
        yield _parsed(options[LAYOUT], size, counts)
    yield not_run("Megatron-LM")


_PARSER = """
import sys
from megatron.core.transformer.enums import LayerType
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
layout, size = PipelineParallelLayerLayout.from_str(sys.argv[1], int(sys.argv[2])), int(sys.argv[2])
layout.validate_layer_layout(int(sys.argv[3]), None)
chunks = layout.virtual_pipeline_model_parallel_size
print(*(layout.layout[rank][chunk].count(LayerType.decoder) for chunk in range(chunks) for rank in range(size)))
"""
"""Prints the decoder layers of every stage, chunk by chunk; a process of its own loads PyTorch."""


def _parsed(layout: str, size: int, counts: list[int]) -> Check:
    """Whether the parser of Megatron-LM reads the same blocks of every rank and chunk."""
    what = "Megatron-LM's parser reads the layout so"
    if find_spec("megatron") is None or find_spec("torch") is None:
        return Check(what, None, "it is not installed; try: pip install megatron-core")
    command = [sys.executable, "-W", "ignore", "-c", _PARSER, layout, str(size), str(sum(counts))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it fails"]
        return Check(what, False, lines[-1])
    seen = list(map(int, done.stdout.split()))
    return Check(what, seen == counts, f"{size} ranks, virtual size {len(seen) // size}, decoder layers {seen}")


EXPORTER = Exporter(
    name="megatron",
    summary="Megatron-LM, decoder layers of every stage",
    apply=(
        f". ./{FILE}",
        'torchrun OPTIONS pretrain_gpt.py "${PIPELINE_ARGS[@]}" ARGUMENTS  # a plan for training',
        'torchrun OPTIONS tools/run_text_generation_server.py "${PIPELINE_ARGS[@]}" ARGUMENTS  # for inference',
    ),
    write=write,
    check=check,
    trains=True,
    notes=(
        "Megatron-LM trains in 1F1B, interleaved where the layout has several parts for each rank: part i is on\n"
        "rank i mod size. Its other ranks are replicas."
    ),
)
