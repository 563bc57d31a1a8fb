"""Shared by exporters for Graphcore's runtimes: the plans that these can run, and the text of programs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from autoauto.exporters.exporter import Check, Deployment
from autoauto.records.errors import BadInput
from autoauto.records.knob import numbers_by_device
from autoauto.records.plans.plan import Plan
from autoauto.records.schedule import Order
from autoauto.records.units import Precision
from autoauto.space.table import flat_value
from autoauto.targets.ipu.session import MAX_IO_TILES

FILLS_A_STEP = 16
"""Micro-batches that an inference step has for every stage; filling the pipeline then takes at most 6 % of a step."""
MIN_IO_TILES = 32
"""Of PopART, which takes even numbers only [popart]."""


def ipu_plan(deployment: Deployment, runtime: str) -> Plan:
    """The plan, one stage an IPU, the same for all replicas, trained in PopART's order.

    In training the last stage may also be on the first IPU. Raises BadInput if `runtime` cannot run the plan.
    """
    plan, knobs = deployment.one_plan(), deployment.knobs
    if deployment.cluster.target != "ipu":
        raise BadInput(f"{runtime} runs on IPUs, got a plan for {deployment.cluster.target}; try --to onnx")
    if deployment.precision is Precision.FP8:
        raise BadInput(f"{runtime} has no option for products in fp8; try --precision fp16")
    if any(stage.device_kind for stage in plan.stages):
        raise BadInput(f"{runtime} runs on IPUs of one kind, {deployment.cluster.name} has several; try one kind")
    if any(stage.n_replicas > 1 for stage in plan.stages):
        raise BadInput(f"{runtime} has one stage an IPU, the plan has others; try it without --stage-replicas")
    if knobs.training and knobs.mode.order not in (Order.POPART, Order.POPART_RING):
        raise BadInput(f"{runtime} trains in the order of PopART, got {knobs.mode.order}; try --schedule popart")
    return plan


def n_ipus(deployment: Deployment) -> int:
    """The IPUs of all replicas."""
    return deployment.plan.n_devices * deployment.knobs.replicas


def proportions(deployment: Deployment) -> tuple[float, ...]:
    """The memory proportion of every device of the pipeline."""
    of_devices = numbers_by_device(flat_value(deployment.knobs, "memory_proportion"))
    if len(of_devices) == 1:  # one number is that of all devices
        return of_devices * deployment.plan.n_devices
    return of_devices


def io_tiles(deployment: Deployment, runtime: str, most: int = MAX_IO_TILES) -> int:
    """The tiles of every device that exchange with the host while the others compute; 0 where none do.

    Raises BadInput for a number that `runtime` does not take.
    """
    n: int = flat_value(deployment.knobs, "io_tiles")
    if n and not (MIN_IO_TILES <= n <= most and n % 2 == 0):
        raise BadInput(f"{runtime} takes an even number of io tiles from {MIN_IO_TILES} to {most}, got {n}")
    return n


def batches_per_step(deployment: Deployment) -> int:
    """Micro-batches of an inference step of one replica; a pipeline takes at least as many as it has stages."""
    return FILLS_A_STEP * len(deployment.plan.stages)


def header(deployment: Deployment, what: str) -> str:
    """The docstring of a program."""
    n_stages, knobs = len(deployment.plan.stages), deployment.knobs
    stages = f"{n_stages} stages" if n_stages > 1 else "one stage"
    purpose = "training" if knobs.training else "inference"
    return f'"""{what}: {purpose} in {stages}, {knobs.batch_size} samples a micro-batch, {deployment.precision}."""\n\n'


def function(head: str, docstring: str, lines: Iterable[str]) -> str:
    """The text of a function."""
    body = "".join(f"    {line}\n" for line in lines)
    return f'\n\ndef {head}:\n    """{docstring}"""\n{body}'


def compiles(path: Path) -> Check:
    """Whether a program is Python."""
    what = f"{path.name} is a Python program"
    try:
        compile(path.read_text(encoding="utf-8"), path.name, "exec")
    except SyntaxError as error:
        return Check(what, False, str(error))
    return Check(what, True, "it compiles")


def constant(path: Path, name: str) -> Any:
    """The literal that a program assigns to a name; raises StopIteration if it assigns none."""
    assigned = (each for each in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(each, ast.Assign))
    value = next(each.value for each in assigned if ast.unparse(each.targets[0]) == name)
    return ast.literal_eval(value)


def not_run(runtime: str, besides: str = "") -> Iterator[Check]:
    """The check that says that nothing was run: Graphcore's SDK is in no package registry."""
    detail = f"{runtime} comes with Graphcore's Poplar SDK{besides}"
    yield Check(f"{runtime} runs the plan", None, detail)
