"""A program that begins a block at the first module of every stage, for PopTorch [poptorch].

PopTorch puts all that runs after the begin of a block into it, until the next block begins. So a stage can begin at a
module whose first operator is the stage's first layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from autoauto.exporters.exporter import Check, Deployment, Exporter
from autoauto.exporters.graphcore.ipu_plan import (
    batches_per_step,
    compiles,
    constant,
    function,
    header,
    io_tiles,
    ipu_plan,
    n_ipus,
    not_run,
    proportions,
)
from autoauto.graph.blocks import module_of_scopes
from autoauto.records.costs.stash import stash_of
from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerRange
from autoauto.records.units import Precision
from autoauto.space.knobs import compile_options

PROGRAM = "blocks.py"
RUNTIME = "PopTorch"
MAX_IO_TILES = 192
RECOMPUTE_NOTHING, RECOMPUTE_STAGES, RECOMPUTE_ALL = 0, 3, 4
"""Numbers of popart.RecomputationType: None, Pipeline and RecomputeAll."""


def write(deployment: Deployment, folder: Path) -> None:
    """Write the program."""
    plan = ipu_plan(deployment, RUNTIME)
    if io_tiles(deployment, RUNTIME, MAX_IO_TILES) and len(plan.stages) > 1:
        raise BadInput(
            f"PopTorch overlaps transfers with the host without a pipeline only, got {len(plan.stages)} stages; try "
            "--io-tiles 0, or --to popart"
        )
    names = [layer.name for layer in deployment.graph.layers]
    # The first stage has all that comes before a block, so it begins none.
    blocks = [first_module(names, stage.layers) for stage in plan.stages[1:]]
    (folder / PROGRAM).write_text(_program(deployment, blocks), encoding="utf-8")


def module_path(name: str) -> tuple[str, ...]:
    """The module of an operator by the name that an exporter of PyTorch gave it; empty where it has none.

    A name is the path of the module and the operator, with dots or with slashes.

    >>> module_path("bert.encoder.layer.0.output.dense.MatMul")
    ('bert', 'encoder', 'layer', '0', 'output', 'dense')
    >>> module_path("/layer1/layer1.0/conv1/Conv"), module_path("Cast")
    (('layer1', '0', 'conv1'), ())
    """
    if "/" not in name:
        return tuple(name.split(".")[:-1])
    path = module_of_scopes(name)
    return tuple(path.split(".")) if path else ()


def module_paths(names: Sequence[str]) -> list[tuple[str, ...]]:
    """The modules of all operators; exporters call a module that runs again "relu_1", it is "relu" here.

    >>> module_paths(["/b/relu/Relu", "/b/relu_1/Relu", "/b/fc_1/Gemm"])
    [('b', 'relu'), ('b', 'relu'), ('b', 'fc_1')]
    """
    paths = [module_path(name) for name in names]
    known: set[tuple[str, ...]] = set()
    for path in paths:
        known.update(path[:depth] for depth in range(len(path) + 1))
    first_calls: list[tuple[str, ...]] = []
    for path in paths:
        first: tuple[str, ...] = ()
        for name in path:
            again = (*first, re.sub(r"_\d+$", "", name))
            first = again if again in known else (*first, name)
        first_calls.append(first)
    return first_calls


def prefixes(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The modules around an operator, the outermost first; lists of modules are left out, they are not called.

    >>> list(prefixes(("net", "layers", "0", "act")))
    [('net',), ('net', 'layers', '0'), ('net', 'layers', '0', 'act')]
    """
    for depth in range(1, len(path)):
        if not path[depth].isdigit():  # a list is the module before an index
            yield path[:depth]
    if path:
        yield path


def first_module(names: Sequence[str], layers: LayerRange) -> str:
    """The outermost module that begins with the first of `layers` and has no operator outside of them.

    Raises BadInput if there is none.
    """
    paths = module_paths(names)
    start = names[layers.start]
    for module in prefixes(paths[layers.start]):
        inside = [index for index, path in enumerate(paths) if path[: len(module)] == module]
        if inside[0] == layers.start and inside[-1] < layers.stop:
            return ".".join(module)
    if not any(paths):
        raise BadInput(f"names of layers must contain PyTorch's modules, got {start!r}; try --to popart")
    raise BadInput(f"a block of PopTorch begins with a module, a stage begins inside one, at {start}; try --to popart")


def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Compile the program, read its blocks back, and assign the layers as PopTorch does."""
    yield compiles(folder / PROGRAM)
    blocks = constant(folder / PROGRAM, "BLOCKS")
    begins = {module: number for number, module in enumerate(blocks, 1)}
    stages, stage = [], 0
    for path in module_paths([layer.name for layer in deployment.graph.layers]):
        # A block lasts until another one begins. Of modules around each other, the last one that begins a block counts.
        numbers = [begins[name] for name in map(".".join, prefixes(path)) if name in begins]
        if numbers:
            stage = max(numbers)
        stages.append(stage)
    planned: list[int] = []
    for number, names in enumerate(deployment.layer_names):
        planned += [number] * len(names)
    right = sum(stage == other for stage, other in zip(stages, planned, strict=True))
    yield Check("blocks have the layers of the stages", right == len(planned), f"{right} of {len(planned)} layers")
    ipus = list(blocks.values())
    wanted = [each.device for each in deployment.plan.stages[1:]]
    yield Check("blocks are on the IPUs of the plan", ipus == wanted, f"IPUs {', '.join(map(str, [0, *ipus]))}")
    yield from not_run(RUNTIME)


def _checkpoints(deployment: Deployment) -> list[str]:
    """The modules that end where a stage that recomputes has a checkpoint; one inside a module is left out."""
    graph, options = deployment.graph, compile_options(deployment.knobs, deployment.precision)
    paths = module_paths([layer.name for layer in graph.layers])
    last: dict[tuple[str, ...], int] = {}  # the last layer in every module
    for index, path in enumerate(paths):
        for depth in range(1, len(path) + 1):
            last[path[:depth]] = index
    ends: list[str] = []
    for boundary in stash_of(graph, options).checkpoints:
        module = paths[boundary - 1]
        if last.get(module) == boundary - 1:
            ends.append(".".join(module))
    return ends


def _program(deployment: Deployment, blocks: Sequence[str]) -> str:
    knobs = deployment.knobs
    ipus = (stage.device for stage in deployment.plan.stages[1:])
    entries = "".join(f"    {module!r}: {ipu},\n" for module, ipu in zip(blocks, ipus, strict=True))
    constants = (
        "import poptorch\n\n"
        f"BATCH_SIZE = {knobs.batch_size}  # samples of a micro-batch, for poptorch.DataLoader\n"
        f"BLOCKS = {{\n{entries}}}\n"
        '"""The IPU of a module and of all that runs after it; what comes before is on IPU 0."""\n'
    )
    if knobs.mode.may_recompute:
        constants += (
            f"CHECKPOINTS = {_checkpoints(deployment)}\n"
            '"""Modules whose outputs are stashed; the backward pass computes again from each to the next."""\n'
        )
    docstring = "The options that go with the blocks."
    options = function("ipu_options()", docstring, _options(deployment))
    return header(deployment, "PopTorch's blocks") + constants + options + _functions(deployment)


def _options(deployment: Deployment) -> Iterator[str]:
    knobs, stages = deployment.knobs, deployment.plan.stages
    n_ipu = deployment.plan.n_devices
    yield "options = poptorch.Options()"
    yield f"options.replicationFactor({knobs.replicas})"
    by_ipu = {f"IPU{ipu}": proportion for ipu, proportion in enumerate(proportions(deployment))}
    yield f"options.setAvailableMemoryProportion({by_ipu})"
    if len(stages) > 1:
        numbered = "SameAsIpu" if len(stages) == n_ipu else "AutoIncrement"  # a stage for every block
        yield f"options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.{numbered}))"
    if n_io_tiles := io_tiles(deployment, RUNTIME, MAX_IO_TILES):
        yield f"options.TensorLocations.numIOTiles({n_io_tiles})"
        yield "options.setExecutionStrategy(poptorch.ShardedExecution())"
    if knobs.training:
        yield f"options.Training.gradientAccumulation({knobs.mode.n_micro_batches})"
        recomputation = RECOMPUTE_NOTHING
        if deployment.recomputes:
            recomputation = RECOMPUTE_STAGES if len(stages) > 1 else RECOMPUTE_ALL
        yield f'options._Popart.set("autoRecomputation", {recomputation})'
    else:
        yield f"options.deviceIterations({batches_per_step(deployment)})"
    if n_ipus(deployment).bit_count() > 1:
        yield "options.autoRoundNumIPUs(True)  # IPUs are reserved in powers of 2"
    yield "return options"


_STASH_OUTPUTS = (
    "def stash(module, inputs, output):",
    "    if isinstance(output, tuple):",
    "        return tuple(map(poptorch.recomputationCheckpoint, output))",
    "    return poptorch.recomputationCheckpoint(output)",
    "",
    "for name in CHECKPOINTS:",
    "    model.get_submodule(name).register_forward_hook(stash)",
)


_BEGIN_BLOCKS = (
    "for name, ipu in BLOCKS.items():",
    '    owner, _, child = name.rpartition(".")',
    "    owner = model.get_submodule(owner)",
    "    setattr(owner, child, poptorch.BeginBlock(getattr(owner, child), ipu_id=ipu))",
    "return model",
)


def _functions(deployment: Deployment) -> str:
    training = deployment.knobs.training
    lines: list[str] = []
    if deployment.knobs.mode.may_recompute:
        lines += _STASH_OUTPUTS
    if io_tiles(deployment, RUNTIME, MAX_IO_TILES):
        # Inputs and outputs are copied while other micro-batches are computed.
        loop = "OverlapAccumulationLoop" if training else "OverlapDeviceIterationLoop"
        lines += [
            f"overlap = poptorch.OverlapMode.{loop}",
            "model.register_forward_pre_hook(lambda _, inputs: poptorch.set_overlap_for_input(inputs, overlap))",
            "model.register_forward_hook(lambda _, __, output: poptorch.set_overlap_for_output(output, overlap))",
        ]
    lines += _BEGIN_BLOCKS
    half = ".half()" if deployment.precision is Precision.FP16 else ""
    if training:
        head = "ipu_model(model, optimizer)"
        made = f"return poptorch.trainingModel(begin_blocks(model{half}), ipu_options(), optimizer)"
    else:
        head = "ipu_model(model)"
        made = f"return poptorch.inferenceModel(begin_blocks(model.eval(){half}), ipu_options())"
    begin_blocks = function("begin_blocks(model)", "Begin a block at the first module of every stage.", lines)
    return begin_blocks + function(head, "The model on IPUs.", [made])


EXPORTER = Exporter(
    name="poptorch",
    summary="PopTorch, blocks that begin with modules",
    apply=(
        "# needs Graphcore's Poplar SDK with PopTorch; the names in BLOCKS must be modules of your model",
        "from blocks import ipu_model",
        "ipu_model(model)  # for training: ipu_model(model, optimizer)",
    ),
    write=write,
    check=check,
    trains=True,
    sets_recompute=True,
)
