"""A program that assigns a Keras model's layers to pipeline stages, for TensorFlow on IPUs [keras-ipu].

The stages are those of ONNX operators. Their names are the paths of the layers that made them, as tf2onnx writes them,
and the program finds the layers of a model in these paths.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from autoauto.exporters.exporter import Check, Deployment, Exporter
from autoauto.exporters.graphcore.ipu_plan import (
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
from autoauto.records.errors import BadInput

RUNTIME = "TensorFlow for IPUs"
PROGRAM, ASSIGNMENT = "pipeline.py", "stage_assignment.py"


def write(deployment: Deployment, folder: Path) -> None:
    """Write the program, and the function by which it finds the stages of layers."""
    plan, knobs = ipu_plan(deployment, RUNTIME), deployment.knobs
    if knobs.training and len(plan.stages) > 1:
        n_stages, n_micro_batches = len(plan.stages), knobs.mode.n_micro_batches
        length, overlaps = 2 * n_stages, io_tiles(deployment, RUNTIME) > 0
        if overlaps and n_micro_batches < length + 2:
            raise BadInput(
                f"a grouped pipeline of {n_stages} stages with io tiles trains on {length + 2} micro-batches or more, "
                f"got {n_micro_batches}; try --n-micro-batches {length + 2}"
            )
        if not overlaps and n_micro_batches % length:
            raise BadInput(
                f"a grouped pipeline of {n_stages} stages trains on a multiple of {length} micro-batches, got "
                f"{n_micro_batches}; try --n-micro-batches {-(-n_micro_batches // length) * length}"
            )
    (folder / PROGRAM).write_text(_program(deployment), encoding="utf-8")
    text = Path(__file__).with_name(ASSIGNMENT).read_text(encoding="utf-8")
    (folder / ASSIGNMENT).write_text(text, encoding="utf-8")


def check(deployment: Deployment, folder: Path) -> Iterator[Check]:
    """Compile the program, and read the operators of the stages back."""
    for name in (PROGRAM, ASSIGNMENT):
        yield compiles(folder / name)
    operators = constant(folder / PROGRAM, "OPERATORS")
    same = operators == list(map(list, deployment.layer_names))
    counts = ", ".join(str(len(names)) for names in operators)
    yield Check("operators have the stages of the plan", same, f"operators of the stages: {counts}")
    yield from not_run(RUNTIME)


def _program(deployment: Deployment) -> str:
    text = "".join(f"    {list(names)!r},\n" for names in deployment.layer_names)
    constants = (
        "from stage_assignment import flat, stages_of_layers\n"
        "from tensorflow.python import ipu\n\n"
        f"BATCH_SIZE = {deployment.knobs.batch_size}  # samples of a micro-batch\n"
        f"OPERATORS = [\n{text}]\n"
        '"""The names of the operators of every stage."""\n'
    )
    config = function("ipu_config()", "Configure the IPUs with it before the model is made.", _config(deployment))
    pipeline = function(
        "set_pipeline(model)", "Assign layers to stages; call it in the strategy's scope.", _pipeline(deployment)
    )
    return header(deployment, "A pipeline of Keras layers") + constants + config + pipeline


def _config(deployment: Deployment) -> Iterator[str]:
    of_devices = proportions(deployment)
    if len(set(of_devices)) > 1:
        raise BadInput(
            f"--to tensorflow-ipu sets one memory proportion for all devices, got {', '.join(map(str, of_devices))}; "
            "try one --memory-proportion"
        )
    proportion = f'{{"availableMemoryProportion": "{of_devices[0]}"}}'
    yield "config = ipu.config.IPUConfig()"
    yield f"config.auto_select_ipus = {n_ipus(deployment)}"
    yield f"config.convolutions.poplar_options = {proportion}"
    yield f"config.matmuls.poplar_options = {proportion}"
    if n_io_tiles := io_tiles(deployment, RUNTIME):
        yield f"config.io_tiles.num_io_tiles = {n_io_tiles}"
        yield "config.io_tiles.place_ops_on_io_tiles = True"
    if deployment.knobs.training:
        yield f"config.allow_recompute = {deployment.recomputes}"
    yield "return config"


def _pipeline(deployment: Deployment) -> Iterator[str]:
    """Lines that assign stages and set the options of a pipeline; one stage is no pipeline."""
    knobs, n_stages = deployment.knobs, len(deployment.plan.stages)
    accumulated = f"gradient_accumulation_steps_per_replica={knobs.mode.n_micro_batches}"
    if n_stages == 1:
        if knobs.training:
            yield f"model.set_gradient_accumulation_options({accumulated})"
        else:
            yield "# one stage is no pipeline"
        yield "return model"
        return
    yield "assignments = model.get_pipeline_stage_assignment()"
    yield "layers = flat(assignments)"
    yield "operators = [(name, stage) for stage, names in enumerate(OPERATORS) for name in names]"
    yield "stages = stages_of_layers([path for path, _ in layers], operators)"
    yield "for (_, assignment), stage in zip(layers, stages):"
    yield "    assignment.pipeline_stage = stage"
    yield "model.set_pipeline_stage_assignment(assignments)"
    yield "model.set_pipelining_options("
    if knobs.training:
        yield f"    {accumulated},"
        yield "    recomputation_mode=ipu.pipelining_ops.RecomputationMode.RecomputeThenBackpropagate,"
        yield "    offload_weight_update_variables=False,"
        yield "    offload_activations=False,"
        yield "    offload_gradient_accumulation_buffers=False,"
    yield f"    device_mapping={[stage.device for stage in deployment.plan.stages]},"
    yield "    pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.Grouped,"
    yield ")"
    yield "return model"


EXPORTER = Exporter(
    name="tensorflow-ipu",
    summary="TensorFlow on IPUs, the pipeline stages of Keras layers",
    apply=(
        "# needs TensorFlow of Graphcore's Poplar SDK; layers must be called as in the paths of OPERATORS",
        "from pipeline import ipu_config, set_pipeline",
        "ipu_config().configure_ipu_system(); set_pipeline(model).print_pipeline_stage_assignment_summary()",
    ),
    write=write,
    check=check,
    trains=True,
    sets_recompute=True,
)
