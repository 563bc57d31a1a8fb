"""All formats by name, `FORMATS`, and the one way to write an artifact: `write_artifact`.

What is exported, and what an exporter is: `Deployment`, `Exporter`, `Check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple, Protocol

from autoauto.plugins import Registry
from autoauto.processes.folders import temporary_folder
from autoauto.records.costs.decoder import Decoder
from autoauto.records.costs.options import DeviceSession, SessionOptions
from autoauto.records.costs.profile import ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerGraph, LayerRange, Port, Source, SubModel
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.schedule import Schedule
from autoauto.records.target import Origin
from autoauto.records.units import Array, Precision
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.registry import requirements
from autoauto.targets.host.runtimes.session import HostSession

if TYPE_CHECKING:  # space/ loads all targets, and a package may have a target and an exporter in one file
    from autoauto.space.knobs import Knobs
    from autoauto.space.numbers import TokenResult

TEMPORARY = "autoauto-export-"
"""The beginning of the names of temporary folders."""
_FILES = "files"


class ModelFile(Source, Protocol):
    """A model file whose parts can be written as files."""

    def save(self, graph: LayerGraph, layers: LayerRange, batch_size: int, path: Path) -> SubModel:
        """Write what `cut` makes as a file, its weights beside it where they are too many for one.

        Returns:
            The sub-model without its content.
        """


class DecoderModel(NamedTuple):
    """A decoder that serving engines load themselves: a `ModelFile` out of which nothing is cut.

    Attributes:
        name: on Hugging Face, or the path of a folder or a `config.json`.
        decoder: what its config says.
    """

    name: str
    decoder: Decoder

    @property
    def served_name(self) -> str:
        """The name, or the folder as an absolute path."""
        path = Path(self.name)
        if not path.exists():
            return self.name
        return str((path if path.is_dir() else path.parent).absolute())

    def cut(self, graph: LayerGraph, layers: LayerRange, batch_size: int) -> SubModel:
        """Implements `Source`; raises `BadInput`."""
        raise self._refusal()

    def carried(self, graph: LayerGraph, cut: int, batch_size: int) -> tuple[Port, ...]:
        """Implements `Source`; raises `BadInput`."""
        raise self._refusal()

    def save(self, graph: LayerGraph, layers: LayerRange, batch_size: int, path: Path) -> SubModel:
        """Implements `ModelFile`; raises `BadInput`."""
        raise self._refusal()

    def _refusal(self) -> BadInput:
        return BadInput(f"parts are cut out of an ONNX file, got the config of {self.name}; try --to vllm")


class Performance(NamedTuple):
    """Throughput of all replicas of a deployment, and latencies of generated text.

    Attributes:
        samples_per_s: throughput; tokens of answers where text is generated.
        origin: of the throughput, and of the costs of the plan.
        tokens: rates and latencies where text is generated.
    """

    samples_per_s: float
    origin: Origin
    tokens: TokenResult | None = None

    def __str__(self) -> str:
        if self.tokens is None:
            return f"{self.samples_per_s:,.1f} samples/s ({self.origin})"
        return (
            f"{self.tokens.tokens_per_s:,.0f} tokens/s, {self.tokens.ttft_s:.3g} s to the first token (TTFT), "
            f"{self.tokens.tpot_s * 1e3:.3g} ms between two tokens (TPOT) ({self.origin})"
        )


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model and the plan by which it is to run.

    Attributes:
        graph: the model.
        source: cuts ranges of layers out of the model's file.
        cluster: the devices that `plan` counts.
        precision: the format of weights and activations that the plan is for.
        knobs: the configuration.
        plan: its stages.
        schedule: the order in which a replica runs its micro-batches.
        performance: what all replicas give.
        profile: profiles the layers at `knobs`, which may take time.
        planning_proportion: the share of a device's memory that a planned stage may fill by plain sums.
        inputs: arrays for inputs of the model, with which files are checked; None where they are to be made up.
        devices: those of this machine, where they are GPUs or unlike; empty where they are not.
    """

    graph: LayerGraph
    source: ModelFile
    cluster: Cluster
    precision: Precision
    knobs: Knobs
    plan: Plan
    schedule: Schedule
    performance: Performance
    profile: Callable[[], ModelProfile]
    planning_proportion: float
    inputs: Callable[[Sequence[Port]], Mapping[str, Array]] | None = None
    devices: tuple[DeviceSession, ...] = ()

    def session(self, plan: Plan, stage: Stage) -> SessionOptions:
        """The session of a stage of one of the plans; 0 threads if its device is not of this machine."""
        if self.devices:
            number = plan.placement[0][stage.device].device if plan.placement else stage.device
            return self.devices[number].session
        session = self.knobs.session
        if session.runtime is None:
            return SessionOptions(0, OnnxRuntimeSession())
        return SessionOptions(session.cores_per_device, session)

    @property
    def packages(self) -> str:
        """The packages that pip installs for the runtimes of all stages."""
        options = [self.session(plan, stage) for plan in self.plan.plans for stage in plan.stages]
        return " ".join(map(quote, requirements([each.session for each in options])))

    @property
    def layer_names(self) -> tuple[tuple[str, ...], ...]:
        """The names of the layers of every stage."""
        layers = self.graph.layers
        return tuple(tuple(layer.name for layer in layers[slice(*stage.layers)]) for stage in self.plan.stages)

    def one_plan(self) -> Plan:
        """The plan that all replicas have.

        Raises:
            BadInput: replicas on unlike devices have plans of their own.
        """
        if self.plan.other_plans:
            raise BadInput(
                f"this format has one plan for all replicas, got {len(self.plan.plans)} different ones; try --to onnx"
            )
        return self.plan


class Check(NamedTuple):
    """One thing that was to be checked of an artifact.

    Attributes:
        what: in a few words, what must be true.
        passed: whether it is; None where this machine cannot tell.
        detail: what was seen, or why nothing was.
    """

    what: str
    passed: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class Exporter:
    """A format in which a plan is written.

    Attributes:
        name: of the format.
        summary: what reads it, in a few words.
        apply: the lines, three at most, by which one applies what was written; {packages} stands for those that run it.
        write: writes the files into an empty folder; raises `BadInput` for a plan that the format cannot express.
        check: puts what was written into force and reads it back, as far as this machine can.
        trains: whether the format has training.
        keeps_session: whether it says which runtime of the host runs the stages, in which format.
        notes: what one should know besides, for the README of an artifact.
        sets_recompute: whether its files switch recomputation on where stages of a plan for training recompute.
        describe: what the README says of a deployment besides.
        generation: what writes configurations that generate text under the same name; None where nothing does.
    """

    name: str
    summary: str
    apply: tuple[str, ...]
    write: Callable[[Deployment, Path], None]
    check: Callable[[Deployment, Path], Iterator[Check]]
    trains: bool = False
    keeps_session: bool = False
    notes: str = ""
    sets_recompute: bool = False
    describe: Callable[[Deployment], str] = lambda _: ""
    generation: Exporter | None = None

    def of(self, deployment: Deployment) -> Exporter:
        """The exporter of a deployment: this one, or its `generation` for a model that generates text.

        Raises:
            BadInput: the format has none.
        """
        if not isinstance(deployment.source, DecoderModel):
            return self
        if self.generation is None:
            names = [exporter.name for exporter in FORMATS.values() if exporter.generation]
            raise BadInput(f"--to {self.name} is not for text that decoders generate; try --to {' or '.join(names)}")
        return self.generation


FORMATS = Registry("exporter", Exporter)


def exporter_named(name: str) -> Exporter:
    """The exporter of a format.

    Raises:
        BadInput: there is no such format.
    """
    return FORMATS.named(name, "a format")


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
    exporter = exporter_named(to).of(deployment)
    if deployment.knobs.training and not exporter.trains:
        raise BadInput(f"--to {to} is for inference, got a plan for training; try --mode inference")
    session, has_devices = deployment.knobs.session, bool(deployment.devices)
    plain = OnnxRuntimeSession(cores_per_device=session.cores_per_device)
    is_plain = session.runtime is None or (session == plain and not has_devices)
    if not is_plain and not exporter.keeps_session:
        where = f" on {', '.join(device.name for device in deployment.devices)}" if has_devices else ""
        options = " with options" * (isinstance(session, HostSession) and session != session.plain)
        raise BadInput(
            f"--to {to} does not say what runs a stage, got a plan for {session.runtime} in "
            f"{session.computes_in}{options}{where}; try --to onnx"
        )
    folder = folder.absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir() or (existing == folder and any(folder.iterdir())):
        raise BadInput(f"an artifact is written into a new or empty folder, {existing} is not one; try another")
    with ExitStack() as at_end:
        try:
            made = temporary_folder(f".{folder.name}-autoauto-", _holds_files_only, existing)
            files = at_end.enter_context(made) / _FILES
            files.mkdir()
        except OSError as error:
            raise BadInput(f"an artifact needs a folder that can be written, got {existing}; try another") from error
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


def _holds_files_only(folder: Path) -> bool:
    """True if the folder is a temporary one of an export, not a folder of the user with such a name."""
    return all(path.name == _FILES for path in folder.iterdir())


def _read_me(deployment: Deployment, exporter: Exporter) -> str:
    """The text of README.md in an artifact: how its files are applied."""
    knobs, n_stages = deployment.knobs, len(deployment.plan.stages)
    stages = f"{n_stages} stages" if n_stages > 1 else "one stage"
    replicas = f", {knobs.replicas} replicas" if knobs.replicas > 1 else ""
    lines = "\n".join(exporter.apply).replace("{packages}", deployment.packages)
    step = (
        f", {knobs.mode.n_micro_batches} micro-batches a step in the order {knobs.mode.order}" if knobs.training else ""
    )
    assumed = "; ".join(deployment.graph.notes)
    return (
        f"# {deployment.graph.name} for {exporter.summary}\n\n"
        f"{stages}{replicas}, batch size {knobs.batch_size}{step}, on {deployment.cluster.name}: "
        f"{deployment.performance}.\n\n```\n{lines}\n```\n"
        + (f"\nThe plan and its files assume of the model: {assumed}.\n" if assumed else "")
        + "".join(f"\n{text}\n" for text in (exporter.describe(deployment), exporter.notes) if text)
        + "".join(f"\n{line}\n" for line in _not_in_the_files(deployment, exporter))
    )


def _not_in_the_files(deployment: Deployment, exporter: Exporter) -> Iterator[str]:
    """What one sets in the runtime by hand, so that a plan for training is met."""
    knobs = deployment.knobs
    if not knobs.training:
        return
    update = knobs.weight_update
    master, sharded = ", with a copy of weights in fp32" * update.master_weights, ", sharded" * (update.n_shards > 1)
    states = update._replace(streams=False).state_bytes(1, deployment.precision)
    on_chip = not states or any(state in stage.memory_bytes for stage in deployment.plan.stages for state in states)
    location = "" if on_chip else ", with its state in streaming memory"
    optimizer = f"{update.optimizer}{master}{sharded}{location}"
    yield f"The plan counts the memory of the optimizer {optimizer}, which the files do not set."
    recomputes = knobs.mode.recompute is True or any(stage.recomputes for stage in deployment.plan.stages)
    if recomputes and not exporter.sets_recompute:
        yield (
            "Stages of the plan compute activations again in the backward pass. The files do not say so: switch it on\n"
            "in the runtime, or stages need more memory than planned."
        )
