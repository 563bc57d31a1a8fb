"""A plan to export, `Deployment`, a format to write it in, `Exporter`, and what was checked of the files, `Check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple, Protocol

from autoauto.records.costs.decoder import NO_SPECULATION, Decoder, Speculation
from autoauto.records.costs.options import DeviceSession, Session, SessionOptions
from autoauto.records.costs.profile import ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerGraph, LayerRange, Port, Source, SubModel
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.schedule import Schedule
from autoauto.records.target import Origin
from autoauto.records.units import Array, Precision, digits, format_number
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.registry import requirements

if TYPE_CHECKING:  # space/ loads all targets, and a package may have a target and an exporter in one file
    from autoauto.space.knobs import Knobs
    from autoauto.space.modes.generation import Generation
    from autoauto.space.numbers import TokenResult

TEMPORARY = "autoauto-export-"
"""The beginning of the names of temporary folders."""


class ModelFile(Source, Protocol):
    """A model file whose parts can be written as files."""

    def save(self, graph: LayerGraph, layers: LayerRange, batch_size: int, path: Path) -> SubModel:
        """Write what `cut` makes, weights beside it where one file is too small; returns it without its content."""


class DecoderModel(NamedTuple):
    """A decoder that serving engines load themselves: a `ModelFile` out of which nothing is cut.

    Its name is one of Hugging Face, or the path of a folder or a `config.json`.
    """

    name: str
    decoder: Decoder
    speculation: Speculation = NO_SPECULATION
    cached_share: float = 0.0  # of a prompt, in the prefix cache

    @property
    def served_name(self) -> str:
        """The name, or the folder as an absolute path."""
        path = Path(self.name)
        if not path.exists():
            return self.name
        folder = path if path.is_dir() else path.parent
        return str(folder.absolute())

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
        return BadInput(f"parts are cut out of an ONNX file, got the config of {self.name}; give an ONNX file")


class Performance(NamedTuple):
    """Throughput and latency of all replicas together."""

    samples_per_s: float  # tokens of answers where text is generated
    origin: Origin  # of the throughput, and of the costs of the plan
    tokens: TokenResult | None = None  # rates and latencies where text is generated

    def __str__(self) -> str:
        tokens = self.tokens
        if tokens is None:
            return f"{format_number(self.samples_per_s)} samples/s ({self.origin})"
        text = f"{format_number(tokens.tokens_per_s, 0)} tokens/s"
        text += f", {digits(1e3 * tokens.ttft_s)} ms to the first token (TTFT)"
        if tokens.tpot_s:
            text += f", {digits(tokens.tpot_s * 1e3)} ms between two tokens (TPOT)"
        return f"{text} ({self.origin})"


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
        """The session that computes a stage of one of the plans; 0 threads where the device is not of this machine."""
        if self.devices:
            # Replicas of one plan have devices of the same kinds, so those of the first one stand for all.
            number = plan.placement[0][stage.device].device if plan.placement else stage.device
            return self.devices[number].session
        session = self.knobs.session
        if session.runtime is None:
            return SessionOptions(0, OnnxRuntimeSession())
        return SessionOptions(session.group_size, session)

    @property
    def recomputes(self) -> bool:
        """True if any stage computes its forward pass again for the backward pass."""
        return self.knobs.mode.recomputes_all or any(stage.recomputes for stage in self.plan.stages)

    @property
    def packages(self) -> str:
        """The packages that pip installs for the runtimes of all stages, quoted for a shell."""
        sessions: list[Session] = []
        for plan in self.plan.plans:
            sessions += [self.session(plan, stage).session for stage in plan.stages]
        return " ".join(map(quote, requirements(sessions)))

    @property
    def layer_names(self) -> tuple[tuple[str, ...], ...]:
        """The names of the layers of every stage."""
        names: list[tuple[str, ...]] = []
        for stage in self.plan.stages:
            layers = self.graph.layers[slice(*stage.layers)]
            names.append(tuple(layer.name for layer in layers))
        return tuple(names)

    @property
    def stage_of_tensors(self) -> dict[str, int]:
        """The stage that computes each tensor of a layer."""
        stages: dict[str, int] = {}
        for number, stage in enumerate(self.plan.stages):
            for layer in self.graph.layers[slice(*stage.layers)]:
                stages.update({self.graph.tensors[index].name: number for index in layer.outputs})
        return stages

    def one_plan(self) -> Plan:
        """The plan of all replicas; raises `BadInput` where replicas on unlike devices have plans of their own."""
        if self.plan.other_plans:
            raise BadInput(
                f"this format has one plan for all replicas, got {len(self.plan.plans)} different ones; try --to onnx"
            )
        return self.plan


def generation(deployment: Deployment) -> Generation:
    """The requests of a deployment that generates text."""
    from autoauto.space.modes.generation import Generation

    mode = deployment.knobs.mode
    assert isinstance(mode, Generation)
    return mode


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
        serves_decoders: True if it writes configurations of engines that generate text, else plans of layers.
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
    serves_decoders: bool = False
