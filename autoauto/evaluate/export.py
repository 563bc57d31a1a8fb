"""A configuration as files that put it into force: `export`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import named, open_problem
from autoauto.exporters.exporter import Check, DecoderModel, Deployment, ModelFile, Performance
from autoauto.exporters.registry import write_artifact
from autoauto.graph.cut import onnx_source
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.model_inputs import model_inputs
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import FileRunner
from autoauto.records.target import Origin, ServesDecoder
from autoauto.space.knobs import DEFAULT_PLANNING_PROPORTION
from autoauto.space.numbers import TokenResult
from autoauto.space.trial import Trial


def export(
    model: str | Path,
    trial: Trial,
    to: str,
    folder: str | Path,
    cluster: str | Path | Cluster | None = None,
    target: str | None = None,
    precision: str | None = None,
    options: Mapping[str, object] | None = None,
    *,
    check: bool = False,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    batch_axes: Mapping[str, int | None] | None = None,
    states: Mapping[str, str] | None = None,
) -> list[Check]:
    """Write what puts the plan of a trial into force in another runtime.

    Args:
        model, cluster, target, precision, options, shapes, batch_axes, states: those of the search that made the
            trial, as in `load_flow`.
        trial: a configuration that runs, for example the result of `autoauto.search`.
        to: the name of a format, as `autoauto export --help` lists them.
        folder: is created; nothing may be in it.
        check: whether the files are put into force and read back, as far as this machine can.

    Returns:
        What was checked; nothing without `check`.

    Raises:
        BadInput: the trial does not run, the format cannot express its plan, or the folder holds something.
    """
    if not trial.runs:
        raise BadInput(f"a configuration must run to be exported, this one does not: {trial.reason}")
    problem, objects = named(model, cluster, target)
    given = model_inputs(shapes, batch_axes, states)
    problem = replace(problem, precision=precision, options=options or {}, model_inputs=given)
    flow = open_problem(problem, objects=objects)
    return write_artifact(deployment(flow, str(model), trial), to, Path(folder), check=check)


def deployment(flow: Flow, model: str, trial: Trial) -> Deployment:
    """The deployment of a trial that runs; its numbers are estimates if nothing was measured (`Flow.expect`).

    Raises BadInput if the plan is one of phases, of another model or precision, or for another cluster.
    """
    plan = trial.plan
    if not isinstance(plan, Plan):
        raise BadInput("an artifact holds the stages of a pipeline, got phases; try --strategy pipeline")
    if plan.stages[-1].layers.stop != len(flow.graph):
        raise BadInput(
            f"the plan must be of {model} with {len(flow.graph)} layers, got one of {plan.stages[-1].layers.stop}"
        )
    cluster = flow.setting.cluster
    if trial.knobs.n_devices > len(cluster):
        raise BadInput(
            f"the plan must be for devices of {cluster.name}, which are {len(cluster)}, got one for "
            f"{trial.knobs.n_devices}; try the cluster of the search"
        )
    for (what, name, digest), made_for in zip(flow.made_for, trial.made_for, strict=False):
        if made_for.name != name or made_for.digest != digest:
            given = f"another {name}" if made_for.name == name else made_for.name
            raise BadInput(f"the plan must be for the {what} {name}, got one for {given}; try the {what} of the search")
    runner = flow.target if isinstance(flow.target, FileRunner) else None
    return Deployment(
        graph=flow.graph,
        source=_source(flow, model),
        cluster=flow.setting.hardware(trial.knobs.session),
        precision=flow.setting.precision,
        knobs=trial.knobs,
        plan=plan,
        schedule=flow.timeline(trial.knobs, plan).schedule,
        performance=_performance(flow, trial),
        profile=partial(flow.profile, flow.options(trial.knobs)),
        planning_proportion=flow.setting.planning_proportion or DEFAULT_PLANNING_PROPORTION,
        inputs=runner.given_inputs if runner else None,
        devices=runner.device_sessions(flow.options(trial.knobs)) if runner else (),
    )


def _source(flow: Flow, model: str) -> ModelFile:
    if isinstance(flow.target, ServesDecoder):
        from autoauto.targets.gpu.target import GpuTarget  # of extra gpu

        served = DecoderModel(model, flow.target.decoder)
        if isinstance(flow.target, GpuTarget):
            return served._replace(speculation=flow.target.speculation, cached_share=flow.target.cached_share)
        return served
    return onnx_source(model, flow.graph.inputs)


def _performance(flow: Flow, trial: Trial) -> Performance:
    """What the replicas of a trial give; tokens are modelled, forecast or not, unless servers of this machine ran."""
    tokens = trial.result.of_mode
    if isinstance(tokens, TokenResult):
        of_trial = trial.origin if flow.traits.origin is Origin.MEASURED else None
        return Performance(trial.samples_per_s, of_trial or flow.traits.origin, tokens)
    origin = Origin.ESTIMATED if trial.measured is trial.estimate else flow.traits.origin
    return Performance(trial.samples_per_s, origin)
