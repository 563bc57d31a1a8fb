"""All formats by name, `FORMATS`, and the one way to write an artifact: `write_artifact`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from autoauto.exporters.deployment import Check, Deployment, Exporter
from autoauto.records.errors import BadInput
from autoauto.records.knobs.knobs import Knobs
from autoauto.records.profile import RuntimeOptions

FORMATS: Mapping[str, str] = {
    "onnx": "onnx_stages",
    "schedule-csv": "schedule_csv",
    "popart": "graphcore.popart",
    "poptorch": "graphcore.poptorch",
    "tensorflow-ipu": "graphcore.tensorflow_ipu",
    "auto-pipeline": "graphcore.auto_pipeline",
    "onnx-annotated": "onnx_annotated",
    "triton": "triton",
    "torch": "pytorch",
    "torchtitan": "pytorch",
    "megatron": "layer_lists",
    "vllm": "layer_lists",
    "sglang": "layer_lists",
    "tensorrt-llm": "layer_lists",
    "deepspeed": "layer_lists",
}
"""The file of this room that holds the exporter of every format; it is imported when the format is used."""


def exporter_named(name: str) -> Exporter:
    """The exporter of a format.

    Raises:
        BadInput: there is no such format.
    """
    if name not in FORMATS:
        raise BadInput(f"a format is one of {', '.join(FORMATS)}, got {name!r}")
    exporters: tuple[Exporter, ...] = import_module(f"autoauto.exporters.{FORMATS[name]}").EXPORTERS
    return next(exporter for exporter in exporters if exporter.name == name)


def write_artifact(
    deployment: Deployment,
    to: str,
    folder: Path,
    *,
    check: bool = False,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> list[Check]:
    """Write a plan in the format `to` into a new or empty folder, all files or none.

    Args:
        deployment: the model and its plan.
        to: the name of a format.
        folder: is created; a `README.md` in it says how its files are applied.
        check: whether what was written is put into force and read back.
        progress: called before each of the steps with the number of those done, of all, and what is done next.

    Returns:
        What was checked; nothing without `check`.

    Raises:
        BadInput: there is no such format, it cannot express the plan, or the folder holds something or cannot be made.
    """
    exporter = exporter_named(to)
    if deployment.knobs.training and not exporter.trains:
        raise BadInput(f"--to {to} is for inference, got a plan for training; try --mode inference")
    knobs, has_options = deployment.knobs, deployment.knobs.runtime_options != RuntimeOptions()
    if not exporter.keeps_session and (has_options or knobs.session != Knobs(1, 1.0, 1).session):
        session = " in ".join(knobs.session) + " with options" * has_options
        raise BadInput(f"--to {to} does not say what runs a stage, got a plan for {session}; try --to onnx")
    folder = folder.absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir() or (existing == folder and any(folder.iterdir())):
        raise BadInput(f"an artifact is written into a new or empty folder, {existing} is not one; try another")
    try:
        made = TemporaryDirectory(dir=existing, prefix=f".{folder.name}-", ignore_cleanup_errors=True)
    except OSError as error:
        raise BadInput(f"an artifact needs a folder that can be written, got {existing}; try another") from error
    with made as temporary:
        files = Path(temporary) / "files"
        files.mkdir()
        n_steps = 2 if check else 1
        progress(0, n_steps, "write the files")
        exporter.write(deployment, files)
        (files / "README.md").write_text(_read_me(deployment, exporter), encoding="utf-8")
        checks = []
        if check:
            progress(1, n_steps, "put them into force and read them back")
            checks = list(exporter.check(deployment, files))  # may raise, then nothing is written
        folder.mkdir(parents=True, exist_ok=True)
        for path in files.iterdir():
            path.rename(folder / path.name)
    return checks


def _read_me(deployment: Deployment, exporter: Exporter) -> str:
    """How the files are applied."""
    knobs, n_stages = deployment.knobs, len(deployment.plan.stages)
    stages = f"{n_stages} stages" if n_stages > 1 else "one stage"
    replicas = f", {knobs.replicas} replicas" if knobs.replicas > 1 else ""
    lines = "\n".join(exporter.apply).replace("{runtime}", deployment.knobs.session[0])
    return (
        f"# {deployment.graph.name} for {exporter.summary}\n\n"
        f"{stages}{replicas}, batch size {knobs.batch_size}, on {deployment.cluster.name}: "
        f"{deployment.samples_per_s:,.1f} samples/s ({deployment.origin}).\n\n```\n{lines}\n```\n"
        + (f"\n{exporter.notes}\n" if exporter.notes else "")
    )
