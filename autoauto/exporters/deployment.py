"""What is exported, and what an exporter is: `Deployment`, `Exporter`, `Check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from autoauto.records.arrays import Array
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.knobs.knobs import Knobs
from autoauto.records.layers import LayerGraph, LayerRange, Port, Source, SubModel
from autoauto.records.plan import Plan
from autoauto.records.profile import ModelProfile
from autoauto.records.schedule import Schedule
from autoauto.records.target import Origin
from autoauto.records.units import Precision


class ModelFile(Source, Protocol):
    """A model file whose parts can be written as files."""

    def save(self, graph: LayerGraph, layers: LayerRange, batch_size: int, path: Path) -> SubModel:
        """Write what `cut` makes as a file, its weights beside it where they are too many for one.

        Returns:
            The sub-model without its content.
        """


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
        samples_per_s: the throughput of all replicas.
        origin: of the costs of `plan` and of the throughput.
        profile: profiles the layers at `knobs`, which may take time.
        planning_proportion: the share of a device's memory that a planned stage may fill by plain sums.
        inputs: arrays for inputs of the model, with which files are checked; None where they are to be made up.
    """

    graph: LayerGraph
    source: ModelFile
    cluster: Cluster
    precision: Precision
    knobs: Knobs
    plan: Plan
    schedule: Schedule
    samples_per_s: float
    origin: Origin
    profile: Callable[[], ModelProfile]
    planning_proportion: float
    inputs: Callable[[Sequence[Port]], Mapping[str, Array]] | None = None

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
        apply: the lines, three at most, by which one applies what was written; {runtime} stands for that of the plan.
        write: writes the files into an empty folder; raises `BadInput` for a plan that the format cannot express.
        check: puts what was written into force and reads it back, as far as this machine can.
        trains: whether the format has training.
        keeps_session: whether it says which runtime of the host runs the stages, in which format.
        notes: what one should know besides, for the README of an artifact.
    """

    name: str
    summary: str
    apply: tuple[str, ...]
    write: Callable[[Deployment, Path], None]
    check: Callable[[Deployment, Path], Iterator[Check]]
    trains: bool = False
    keeps_session: bool = False
    notes: str = ""
