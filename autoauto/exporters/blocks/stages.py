"""The blocks of a plan's stages, for runtimes whose stages are whole blocks: `blocks_of_stages`."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from pathlib import Path

import msgspec

from autoauto.exporters.blocks.towers import list_name, towers_beside
from autoauto.exporters.exporter import Check, Deployment
from autoauto.records.errors import BadInput
from autoauto.records.layers import Block
from autoauto.records.schedule import Order, Schedule
from autoauto.schedule.orders.registry import make_schedule

MAP_FILE = "blocks.json"
StageBlocks = tuple[Block, ...]


def blocks_of_stages(deployment: Deployment, to: str) -> tuple[StageBlocks, ...]:
    """The blocks of every stage in order, at least one each; raises BadInput if `to` cannot express the plan."""
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
    stages: list[StageBlocks] = []
    for start, stop in pairwise(deployment.plan.partition):
        stages.append(tuple(block for block in deployment.graph.blocks if start <= block.layers.start < stop))
    return tuple(stages)


def write_blocks(deployment: Deployment, stages: tuple[StageBlocks, ...], folder: Path) -> None:
    """Write which layers of our model are which block of which stage."""
    layers = deployment.graph.layers

    def row(block: Block) -> dict[str, object]:
        return {
            "module": block.module,
            "layers": block.layers,
            "first_layer": layers[block.layers.start].name,
            "last_layer": layers[block.layers.stop - 1].name,
            "other_modules": block.others,
        }

    table = [list(map(row, blocks)) for blocks in stages]
    content = {"schema": 1, "model": deployment.graph.name, "stages": table}
    (folder / MAP_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))


def check_counts(deployment: Deployment, counts: list[int]) -> Check:
    """Whether blocks of stages, as a file says them, are those of the plan."""
    expected, blocks = list(map(len, _between_cuts(deployment))), deployment.graph.blocks
    shown = " + ".join(map(str, counts))
    detail = f"{shown} = {sum(counts)} of {len(blocks)} blocks, {list_name(blocks)}"
    return Check("the file has the blocks of every stage", counts == expected, detail)


def require_order(deployment: Deployment, runtime: str, orders: Collection[Order]) -> None:
    """Raise BadInput for a plan that trains in an order which a runtime does not have."""
    order = deployment.knobs.mode.order
    if deployment.knobs.training and order not in orders:
        raise BadInput(f"{runtime} trains in the order {' or '.join(orders)}, got {order}; try --schedule 1f1b")


def require_one_list(deployment: Deployment, to: str, *, first_stage: bool) -> None:
    """Raise BadInput for a model of several towers where a runtime would count other blocks than the plan does.

    With `first_stage` the runtime has in its first stage an encoder that only the first decoder layer reads.
    """
    for tower in towers_beside(deployment.graph):
        if not first_stage or not tower.is_before or tower.reaches_far:
            raise BadInput(
                f"--to {to} counts the decoder layers of a model with one list of them, got "
                f"{list_name(deployment.graph.blocks)} beside {tower.name}; try --to onnx, or --to torch to train"
            )


def check_devices(deployment: Deployment, n_devices: int, n_micro_batches: int, n_chunks: int = 1) -> Check:
    """Whether every device has the stages of the plan and, in training, runs their actions in the order of the plan.

    The numbers are those of the files; several chunks are interleaved, one is in 1F1B.
    """
    stages = f"{n_devices} devices with {n_chunks} {'stages' if n_chunks > 1 else 'stage'} each"
    if not deployment.knobs.training:
        devices = [stage.device for stage in deployment.plan.stages]
        return Check("every device has the stages of the plan", devices == list(range(n_devices)) * n_chunks, stages)
    order = Order.INTERLEAVED if n_chunks > 1 else Order.ONE_F_ONE_B
    schedule = make_schedule(order, n_devices, n_micro_batches, n_chunks=n_chunks)
    same = _actions(schedule) == _actions(deployment.schedule)
    what = "every device runs the stages and the micro-batches of the plan in its order"
    return Check(what, same, f"{order} of {n_micro_batches} micro-batches on {stages}")


def _actions(schedule: Schedule) -> list[list[str]]:
    return [list(map(str, schedule.actions(device))) for device in range(schedule.n_devices)]


def not_run(package: str) -> Check:
    """The check that says what was not run, since it needs the runtime and the module with its weights."""
    return Check(f"{package} runs the stages", None, f"that needs {package} and the module with its weights")
