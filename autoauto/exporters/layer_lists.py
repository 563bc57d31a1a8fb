"""How many blocks every stage has, in the spelling of vLLM, SGLang, TensorRT-LLM and DeepSpeed.

The blocks of a plan's stages, for runtimes whose stages are whole blocks: `blocks_of_stages`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Collection, Iterator
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec

from autoauto.exporters.graphcore.ipu_plan import batches_per_step
from autoauto.exporters.registry import Check, Deployment, Exporter
from autoauto.exporters.serving import engines
from autoauto.exporters.serving.engines import ServingProgram
from autoauto.exporters.serving.exporter import serving_exporter
from autoauto.exporters.towers import list_name, towers_beside
from autoauto.records.errors import BadInput
from autoauto.records.layers import Block
from autoauto.records.schedule import Order, Schedule
from autoauto.schedule.orders.registry import make_schedule

MAP_FILE = "blocks.json"
BATCH_FILE = "ds_config.json"
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
    expected, blocks = list(map(len, _between_cuts(deployment))), deployment.graph.blocks
    shown = " + ".join(map(str, counts))
    detail = f"{shown} = {sum(counts)} of {len(blocks)} blocks, {list_name(blocks)}"
    return Check("the file has the blocks of every stage", counts == expected, detail)


def require_order(deployment: Deployment, runtime: str, orders: Collection[Order]) -> None:
    """Refuse a plan that trains in an order which a runtime does not have.

    Raises:
        BadInput: it does.
    """
    order = deployment.knobs.mode.order
    if deployment.knobs.training and order not in orders:
        raise BadInput(f"{runtime} trains in the order {' or '.join(orders)}, got {order}; try --schedule 1f1b")


def require_one_list(deployment: Deployment, to: str, *, first_stage: bool) -> None:
    """Refuse a model of several towers where a runtime would count the blocks of another one than the plan does.

    Args:
        deployment: the plan.
        to: the format.
        first_stage: whether the runtime has an encoder that only the first decoder layer reads in its first stage.

    Raises:
        BadInput: it does.
    """
    for tower in towers_beside(deployment.graph):
        if not first_stage or not tower.is_before or tower.reaches_far:
            raise BadInput(
                f"--to {to} counts the decoder layers of a model with one list of them, got "
                f"{list_name(deployment.graph.blocks)} beside {tower.name}; try --to onnx, or --to torch to train"
            )


def check_devices(deployment: Deployment, n_devices: int, n_micro_batches: int, n_chunks: int = 1) -> Check:
    """Whether every device has the stages of the plan and, in training, runs their actions in the order of the plan.

    Args:
        deployment: the plan.
        n_devices, n_micro_batches, n_chunks: as the files say them; several chunks are interleaved, one is in 1F1B.
    """
    stages = f"{n_devices} devices with {n_chunks} stage{'s' * (n_chunks > 1)} each"
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


WriteCounts = Callable[[Deployment, list[int], Path], None]
"""Writes the files of a format into a folder, from the numbers of blocks of all stages."""
ReadCounts = Callable[[Path], list[int]]
"""Reads these numbers again, as the runtime reads the files."""


def _exporter(
    name: str,
    package: str,
    apply: tuple[str, ...],
    write_counts: WriteCounts,
    read_counts: ReadCounts,
    *,
    trains: bool = False,
    serves: ServingProgram | None = None,
) -> Exporter:
    def write(deployment: Deployment, folder: Path) -> None:
        require_order(deployment, package, [Order.ONE_F_ONE_B])
        stages = blocks_of_stages(deployment, name)
        require_one_list(deployment, name, first_stage=True)
        write_counts(deployment, list(map(len, stages)), folder)
        write_blocks(deployment, stages, folder)

    def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
        counts = read_counts(folder)
        yield check_counts(deployment, counts)
        n_micro_batches = _micro_batches(folder) if trains else 1
        yield check_devices(deployment, len(counts), n_micro_batches)
        yield not_run(package)

    return Exporter(
        name,
        f"{package}, decoder layers of every stage",
        apply,
        write,
        check,
        trains,
        generation=None if serves is None else serving_exporter(serves),
    )


def _write_environment(prefix: str) -> WriteCounts:
    def write(_: Deployment, counts: list[int], folder: Path) -> None:
        partition = ",".join(map(str, counts))
        text = f"{prefix}_PP_LAYER_PARTITION={partition}\nPIPELINE_PARALLEL_SIZE={len(counts)}\n"
        (folder / "pipeline.env").write_text(text, encoding="utf-8")

    return write


def _read_environment(prefix: str) -> ReadCounts:
    """vLLM and SGLang split the variable at commas, and want a number for every stage [vllm-pp], [sglang-pp]."""

    def read(folder: Path) -> list[int]:
        lines = (folder / "pipeline.env").read_text(encoding="utf-8").splitlines()
        variables = dict(line.split("=") for line in lines)
        counts = list(map(int, variables[f"{prefix}_PP_LAYER_PARTITION"].split(",")))
        return counts if len(counts) == int(variables["PIPELINE_PARALLEL_SIZE"]) else []

    return read


def _write_tensorrt(_: Deployment, counts: list[int], folder: Path) -> None:
    text = f"pipeline_parallel_size: {len(counts)}\npp_partition: {counts}\n"
    (folder / "llm_api.yaml").write_text(text, encoding="utf-8")


def _read_tensorrt(folder: Path) -> list[int]:
    """The partition must have a number for every stage [tensorrt-llm-pp]."""
    lines = (folder / "llm_api.yaml").read_text(encoding="utf-8").splitlines()
    options = {key: ast.literal_eval(value.strip()) for key, value in (line.split(":") for line in lines)}
    counts: list[int] = options["pp_partition"]
    return counts if len(counts) == options["pipeline_parallel_size"] else []


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


def _write_deepspeed(deployment: Deployment, counts: list[int], folder: Path) -> None:
    knobs = deployment.knobs
    first_blocks = list(accumulate(counts[:-1], initial=0))
    program = _PLANNED_PIPELINE.format(first_blocks=first_blocks, n_blocks=sum(counts))
    (folder / "planned_pipeline.py").write_text(program, encoding="utf-8")
    steps = knobs.mode.n_micro_batches if knobs.training else batches_per_step(deployment)
    batch = {"train_micro_batch_size_per_gpu": knobs.batch_size, "gradient_accumulation_steps": steps}
    (folder / BATCH_FILE).write_text(json.dumps(batch, indent=1) + "\n", encoding="utf-8")


def _micro_batches(folder: Path) -> int:
    """The micro-batches of a step of DeepSpeed."""
    steps: int = json.loads((folder / BATCH_FILE).read_text(encoding="utf-8"))["gradient_accumulation_steps"]
    return steps


def _read_deepspeed(folder: Path) -> list[int]:
    tree = ast.parse((folder / "planned_pipeline.py").read_text(encoding="utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    first_blocks, n_blocks = (ast.literal_eval(node.value) for node in assigned)
    return [stop - start for start, stop in pairwise([*first_blocks, n_blocks])]


_SOURCE = "set -a; . ./pipeline.env; set +a"
VLLM = _exporter(
    "vllm",
    "vLLM",
    (_SOURCE, 'vllm serve MODEL --pipeline-parallel-size "$PIPELINE_PARALLEL_SIZE"'),
    _write_environment("VLLM"),
    _read_environment("VLLM"),
    serves=engines.VLLM,
)
SGLANG = _exporter(
    "sglang",
    "SGLang",
    (_SOURCE, 'python -m sglang.launch_server --model-path MODEL --pp-size "$PIPELINE_PARALLEL_SIZE"'),
    _write_environment("SGLANG"),
    _read_environment("SGLANG"),
    serves=engines.SGLANG,
)
TENSORRT_LLM = _exporter(
    "tensorrt-llm",
    "TensorRT-LLM",
    ("trtllm-serve MODEL --extra_llm_api_options llm_api.yaml",),
    _write_tensorrt,
    _read_tensorrt,
    serves=engines.TENSORRT_LLM,
)
DEEPSPEED = _exporter(
    "deepspeed",
    "DeepSpeed",
    (
        "import deepspeed, json; from planned_pipeline import FIRST_BLOCKS, PlannedPipelineModule",
        'module = PlannedPipelineModule(layers, num_stages=len(FIRST_BLOCKS), partition_method="type:BLOCK")',
        'deepspeed.initialize(model=module, config=json.load(open("ds_config.json")) | CONFIG)',
    ),
    _write_deepspeed,
    _read_deepspeed,
    trains=True,
)
