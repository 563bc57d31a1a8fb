"""A model of six blocks in twelve layers, and plans of it that are made by hand: `deployment`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec

from autoauto.exporters.exporter import Check, Deployment, Performance
from autoauto.exporters.registry import write_artifact
from autoauto.graph.cut import OnnxSource
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.layers import Block, LayerGraph, LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.target import Origin
from autoauto.records.units import Precision
from autoauto.schedule.orders.registry import chunks_of, stage_devices_of
from autoauto.schedule.times import timeline_of
from autoauto.space.knobs import Knobs

N_BLOCKS = 6
FORMATS_OF_BLOCKS = ("torch", "torchtitan", "megatron", "deepspeed")
MakeChain = Callable[..., LayerGraph]


def graph_of_blocks(chain: MakeChain, n_blocks: int = N_BLOCKS) -> LayerGraph:
    """Two layers a block: the first two are of layers.0 and the embedding, the last two of norm and head, too."""
    others = [("embedding",), *[()] * (n_blocks - 2), ("norm", "head")]
    blocks = [Block(f"layers.{i}", LayerRange(2 * i, 2 * i + 2), others[i]) for i in range(n_blocks)]
    return replace(chain(["a"] * 2 * n_blocks), blocks=tuple(blocks))


def deployment(graph: LayerGraph, partition: Sequence[int], **knobs: Any) -> Deployment:
    """A plan with these boundaries on as many devices as its order needs; its costs are of no interest."""
    n_stages = len(partition) - 1
    n_devices = knobs.get("n_ipu", n_stages // knobs.get("stages_per_device", 1))
    device, link = Device("small", 1e6, 1 << 20, 1, 1 << 20), Link(1e9, 0)
    configuration = Knobs(**({"n_ipu": n_devices, "memory_proportion": 0.6, "batch_size": 4} | knobs))
    devices = stage_devices_of(configuration.mode.order, n_devices, chunks_of(configuration.step))
    stages = (
        Stage(LayerRange(*ends), i, 1, 1 if configuration.training else 0, 0, 0, {"state": 1}, 2)
        for i, ends in zip(devices, pairwise(partition), strict=True)
    )
    plan = Plan(tuple(stages))
    return Deployment(
        graph=graph,
        source=cast("OnnxSource", None),  # these formats write no part of the model
        cluster=Cluster("line", "ipu", (device,) * n_devices, (link,) * n_devices, (link,) * n_devices),
        precision=Precision.FP16,
        knobs=configuration,
        plan=plan,
        schedule=timeline_of(configuration.step, plan).schedule,
        performance=Performance(100.0, Origin.ESTIMATED),
        profile=cast("Any", None),  # and none a profile
        planning_proportion=0.85,
    )


def written(made: Deployment, to: str, folder: Path) -> dict[str, str]:
    """The files of an artifact that passes its checks, by name."""
    checks = write_artifact(made, to, folder, check=True)
    assert_passed(checks)
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def assert_passed(checks: Sequence[Check]) -> None:
    """Nothing failed, and something was checked here."""
    assert [check for check in checks if check.passed is False] == []
    assert [check for check in checks if check.passed]


def stage_modules(files: dict[str, str]) -> list[list[str]]:
    """The blocks of every stage by the map in an artifact."""
    return [[block["module"] for block in blocks] for blocks in msgspec.json.decode(files["blocks.json"])["stages"]]
