"""DeepSpeed: a `PipelineModule` whose stages begin at the blocks of a plan."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from itertools import accumulate, pairwise
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
from autoauto.exporters.graphcore.ipu_plan import batches_per_step
from autoauto.records.schedule import Order

BATCH_FILE = "ds_config.json"
_NAME, _PACKAGE = "deepspeed", "DeepSpeed"
_PLANNED_PIPELINE = '''"""A pipeline of DeepSpeed with the stages of a plan."""

from deepspeed.pipe import PipelineModule

FIRST_BLOCKS = {first_blocks}
N_BLOCKS = {n_blocks}


class PlannedPipelineModule(PipelineModule):
    """The stages begin at these blocks: with partition_method="type:REGEX" the layers whose class has such a name."""

    def _partition_layers(self, method="uniform"):
        kind, _, pattern = method.partition(":")
        blocks = self._find_layer_type(pattern) if kind == "type" else []
        if len(blocks) != N_BLOCKS or self._topo.get_dim("pipe") != len(FIRST_BLOCKS):
            raise ValueError(
                f'the plan has {{len(FIRST_BLOCKS)}} stages of {{N_BLOCKS}} blocks, got {{self._topo.get_dim("pipe")}} '
                f'stages and {{len(blocks)}} blocks; try partition_method="type:NAME OF THE BLOCK"'
            )
        self.parts = [0, *(blocks[first] for first in FIRST_BLOCKS[1:]), len(self._layer_specs)]
        stage = self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])
'''
"""`PipelineModule` has no argument for the boundaries of stages; programs override this method [deepspeed-pipe]."""


def _write(deployment: Deployment, folder: Path) -> None:
    require_order(deployment, _PACKAGE, [Order.ONE_F_ONE_B])
    stages = blocks_of_stages(deployment, _NAME)
    require_one_list(deployment, _NAME, first_stage=True)
    counts, knobs = list(map(len, stages)), deployment.knobs
    first_blocks = list(accumulate(counts[:-1], initial=0))
    program = _PLANNED_PIPELINE.format(first_blocks=first_blocks, n_blocks=sum(counts))
    (folder / "planned_pipeline.py").write_text(program, encoding="utf-8")
    steps = knobs.mode.n_micro_batches if knobs.training else batches_per_step(deployment)
    batch = {"train_micro_batch_size_per_gpu": knobs.batch_size, "gradient_accumulation_steps": steps}
    (folder / BATCH_FILE).write_text(json.dumps(batch, indent=1) + "\n", encoding="utf-8")
    write_blocks(deployment, stages, folder)


def _check(deployment: Deployment, folder: Path) -> Iterator[Check]:
    tree = ast.parse((folder / "planned_pipeline.py").read_text(encoding="utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    first_blocks, n_blocks = (ast.literal_eval(node.value) for node in assigned)
    counts = [stop - start for start, stop in pairwise([*first_blocks, n_blocks])]
    batch = json.loads((folder / BATCH_FILE).read_text(encoding="utf-8"))
    yield check_counts(deployment, counts)
    yield check_devices(deployment, len(counts), batch["gradient_accumulation_steps"])
    yield not_run(_PACKAGE)


EXPORTER = Exporter(
    _NAME,
    f"{_PACKAGE}, decoder layers of every stage",
    (
        "import deepspeed, json; from planned_pipeline import FIRST_BLOCKS, PlannedPipelineModule",
        'module = PlannedPipelineModule(layers, num_stages=len(FIRST_BLOCKS), partition_method="type:BLOCK")',
        'deepspeed.initialize(model=module, config=json.load(open("ds_config.json")) | CONFIG)',
    ),
    _write,
    _check,
    trains=True,
)
