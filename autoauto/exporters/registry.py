"""All formats by name, `FORMATS`, and the one way to write an artifact: `write_artifact`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from autoauto.engines.registry import ENGINES
from autoauto.exporters.exporter import Check, DecoderModel, Deployment, Exporter
from autoauto.exporters.serving.exporter import serving_exporter
from autoauto.plugins import Registry
from autoauto.processes.folders import temporary_folder
from autoauto.records.errors import BadInput
from autoauto.space.modes.training import SCHEDULE
from autoauto.targets.host.runtimes.llamacpp.session import LlamaCppSession
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.session import HostSession

_FILES, _PREFERRED = "files", "onnx"
NO_ORDER = SCHEDULE.absent
"""The order of a configuration that does not train."""


FORMATS = Registry(
    "exporter",
    Exporter,
    own=lambda: {engine.launcher.to: serving_exporter(engine) for engine in ENGINES.values()},
)
"""Those with an entry point, and one for every serving engine."""


def exporter_named(name: str) -> Exporter:
    """The exporter of a format; raises `BadInput` if there is no such format."""
    return FORMATS.named(name, "a format")


def formats_for(values: Mapping[str, object]) -> list[str]:
    """The formats that may write a configuration, given by its knobs as JSON has them, the preferred one first.

    >>> formats_for({"n_ipu": 2})[:2]
    ['onnx', 'auto-pipeline']
    """
    engine = str(values.get("engine"))
    if engine in ENGINES:
        return [ENGINES[engine].launcher.to]
    serves = values.get("runtime") == LlamaCppSession.runtime
    trains = values.get("schedule", NO_ORDER) != NO_ORDER
    names: list[str] = []
    for name in sorted(FORMATS, key=lambda name: (name != _PREFERRED, name)):
        exporter = FORMATS[name]
        if exporter.serves_decoders != serves or (trains and not exporter.trains):
            continue
        if serves and not exporter.keeps_session:  # starts another engine
            continue
        names.append(name)
    return names


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
        deployment, to: the model and its plan, and the name of a format.
        folder: is created; a `README.md` in it says how its files are applied.
        check: whether what was written is put into force and read back.
        progress: called before each of the steps with the number of those done, of all, and what is done next.

    Returns:
        What was checked; nothing without `check`.

    Raises:
        BadInput: there is no such format, it cannot express the plan, or the folder holds something or cannot be made.
    """
    exporter = exporter_named(to)
    _check_model(deployment, exporter)
    _check_plan(deployment, exporter)
    folder = folder.absolute()
    # Files are made beside the folder and moved there at the end, so that an artifact is whole or not there.
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir() or (existing == folder and any(folder.iterdir())):
        raise BadInput(f"an artifact is written into a new or empty folder, {existing} is not one; try another")
    with ExitStack() as at_end:
        try:
            # A folder of the user with such a name has other files.
            made = temporary_folder(
                f".{folder.name}-autoauto-", lambda old: all(path.name == _FILES for path in old.iterdir()), existing
            )
            files = at_end.enter_context(made) / _FILES
            files.mkdir()
        except OSError as error:
            raise BadInput(f"an artifact needs a folder that can be written, got {existing}; try another") from error
        n_steps = 1 + check
        progress(0, n_steps, "write the files")
        exporter.write(deployment, files)
        (files / "README.md").write_text(_read_me(deployment, exporter), encoding="utf-8")
        checks: list[Check] = []
        if check:
            progress(1, n_steps, "put them into force and read them back")
            for done in exporter.check(deployment, files):  # may raise, then nothing is written
                checks.append(done)
                n_steps += 1
                progress(n_steps - 1, n_steps, f"checked: {done.what}")
        folder.mkdir(parents=True, exist_ok=True)
        for path in files.iterdir():
            path.rename(folder / path.name)
    return checks


def _check_plan(deployment: Deployment, exporter: Exporter) -> None:
    if deployment.knobs.training and not exporter.trains:
        raise BadInput(f"--to {exporter.name} is for inference, got a plan for training; try --mode inference")
    session = deployment.knobs.session
    if session.runtime is None or exporter.keeps_session:
        return
    plain = OnnxRuntimeSession(cores_per_device=session.group_size)
    if session == plain and not deployment.devices:
        return
    if not isinstance(session, HostSession):
        raise BadInput(f"--to {exporter.name} starts another engine, got a configuration for {session.runtime}")
    got = f"{session.runtime} in {session.computes_in}"
    if session != session.plain:
        got += " with options"
    if deployment.devices:
        got += f" on {', '.join(device.name for device in deployment.devices)}"
    raise BadInput(f"--to {exporter.name} does not say what runs a stage, got a plan for {got}; try --to onnx")


def _check_model(deployment: Deployment, exporter: Exporter) -> None:
    is_decoder = isinstance(deployment.source, DecoderModel)
    if is_decoder and not exporter.serves_decoders:
        of_host = deployment.knobs.session.runtime is not None
        names = [name for name, each in FORMATS.items() if each.serves_decoders and each.keeps_session is of_host]
        raise BadInput(f"--to {exporter.name} is not for text that decoders generate; try --to {' or '.join(names)}")
    if exporter.serves_decoders and not is_decoder:
        raise BadInput(
            f"--to {exporter.name} starts an engine that loads a decoder by its config.json, got the layers of "
            f"{deployment.graph.name}; try the decoder's name or folder with --target gpu, or --to onnx"
        )


def _read_me(deployment: Deployment, exporter: Exporter) -> str:
    knobs, n_stages = deployment.knobs, len(deployment.plan.stages)
    configuration = [f"{n_stages} stages" if n_stages > 1 else "one stage"]
    if knobs.replicas > 1:
        configuration.append(f"{knobs.replicas} replicas")
    configuration.append(f"batch size {knobs.batch_size}")
    if knobs.training:
        configuration.append(f"{knobs.mode.n_micro_batches} micro-batches a step in the order {knobs.mode.order}")
    configuration.append(f"on {deployment.cluster.name}: {deployment.performance}.")
    lines = "\n".join(exporter.apply).replace("{packages}", deployment.packages)
    paragraphs = [
        f"# {deployment.graph.name} for {exporter.summary}",
        ", ".join(configuration),
        f"```\n{lines}\n```",
    ]
    if deployment.graph.notes:
        paragraphs.append(f"The plan and its files assume of the model: {'; '.join(deployment.graph.notes)}.")
    paragraphs += filter(None, (exporter.describe(deployment), exporter.notes))
    paragraphs += _not_in_the_files(deployment, exporter)
    return "\n\n".join(paragraphs) + "\n"


def _not_in_the_files(deployment: Deployment, exporter: Exporter) -> Iterator[str]:
    """Sentences on settings of a plan for training that a user makes in the runtime by hand."""
    knobs = deployment.knobs
    if not knobs.training:
        return
    update = knobs.weight_update
    optimizer = str(update.optimizer)
    if update.master_weights:
        optimizer += ", with a copy of weights in fp32"
    if update.n_shards > 1:
        optimizer += ", sharded"
    # The memory of a stage names the states of the optimizer only where they are on the chip.
    states = update._replace(streams=False).state_bytes(1, deployment.precision)
    on_chip = any(not stage.memory_bytes.keys().isdisjoint(states) for stage in deployment.plan.stages)
    if states and not on_chip:
        optimizer += ", with its state in streaming memory"
    yield f"The plan counts the memory of the optimizer {optimizer}, which the files do not set."
    if deployment.recomputes and not exporter.sets_recompute:
        yield (
            "Stages of the plan compute activations again in the backward pass. The files do not say so: switch it on\n"
            "in the runtime, or stages need more memory than planned."
        )
