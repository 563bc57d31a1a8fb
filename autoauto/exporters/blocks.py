"""The blocks of every stage of a plan, for runtimes that have stages of whole blocks: `blocks_of_stages`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec

from autoauto.exporters.deployment import Check, Deployment
from autoauto.records.errors import BadInput
from autoauto.records.layers import Block

MAP_FILE = "blocks.json"
StageBlocks = tuple[Block, ...]


def blocks_of_stages(deployment: Deployment, to: str) -> tuple[StageBlocks, ...]:
    """The blocks of every stage in order, at least one each.

    Raises:
        BadInput: the format `to` cannot express the plan: it has a cut inside a block, several devices for a stage, or
            different replicas; or no module of the model is repeated.
    """
    plan, graph = deployment.one_plan(), deployment.graph
    if not graph.blocks:
        raise BadInput(
            f"--to {to} needs a model with repeated modules like layers.0, {graph.name} has none; try --to onnx"
        )
    if any(stage.n_replicas > 1 for stage in plan.stages):
        raise BadInput(f"--to {to} has one device for a stage, got several; try --stage-replicas off")
    for cut in plan.partition[1:-1]:
        block = next(block for block in graph.blocks if cut < block.layers.stop)
        if cut != block.layers.start:
            layer = graph.layers[cut].name
            raise BadInput(f"the cut before layer {layer} lies inside block {block.module}; try --cut-at blocks")
    return _between_cuts(deployment)


def _between_cuts(deployment: Deployment) -> tuple[StageBlocks, ...]:
    return tuple(
        tuple(block for block in deployment.graph.blocks if start <= block.layers.start < stop)
        for start, stop in pairwise(deployment.plan.partition)
    )


def write_blocks(deployment: Deployment, stages: tuple[StageBlocks, ...], folder: Path) -> None:
    """Write which layers of our model are which block of which stage."""
    layers = deployment.graph.layers
    table = [
        [
            {
                "module": block.module,
                "layers": block.layers,
                "first_layer": layers[block.layers.start].name,
                "last_layer": layers[block.layers.stop - 1].name,
                "other_modules": block.others,
            }
            for block in blocks
        ]
        for blocks in stages
    ]
    content = {"schema": 1, "model": deployment.graph.name, "stages": table}
    (folder / MAP_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))


def check_counts(deployment: Deployment, counts: list[int]) -> Check:
    """Whether blocks of stages, as a file says them, are those of the plan."""
    expected = list(map(len, _between_cuts(deployment)))
    shown = " + ".join(map(str, counts))
    detail = f"{shown} = {sum(counts)} of {len(deployment.graph.blocks)} blocks"
    return Check("the file has the blocks of every stage", counts == expected, detail)


def not_run(package: str) -> Check:
    """What only a machine with the runtime and the module can tell."""
    return Check(f"{package} runs the stages", None, f"that needs {package} and the module with its weights")
