"""Open a model and a cluster: of a `Problem`, `open_problem`, or of keywords and objects of Python, `load_flow`.

Clusters by name or file: `read_cluster`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from autoauto.evaluate.costs.forecasts import stored_graph
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.setting import Setting
from autoauto.graph.decoders.gguf import graph_of_file, is_gguf, read_gguf
from autoauto.graph.decoders.huggingface import decoder_of
from autoauto.graph.decoders.layers import graph_of
from autoauto.graph.load import load_graph
from autoauto.profile.cache import ProfileCache, cache_for
from autoauto.records.costs.correction import Estimator
from autoauto.records.costs.decoder import Decoder, DecoderFile
from autoauto.records.errors import BadInput
from autoauto.records.files.uploads import upload_title, uploaded_file
from autoauto.records.hardware import Cluster, Period
from autoauto.records.installation import DEFAULT_MODEL
from autoauto.records.layers import AS_IN_FILE, LayerGraph, OnnxModel, Source
from autoauto.records.model_inputs import model_inputs
from autoauto.records.plans.plan import CutAt
from autoauto.records.target import ServesDecoder, Target
from autoauto.records.units import Precision
from autoauto.space.constraint import Constraint
from autoauto.space.numbers import PERCENTILES
from autoauto.space.requests.problem import Planning, Problem, ProfileFiles, files_of, with_files
from autoauto.space.requests.target_choice import with_target
from autoauto.targets.clusters import load_cluster
from autoauto.targets.registry import DEFAULT_TARGET, TARGETS, target_named
from autoauto.targets.target import NamedTarget, OptionValues, Request

GGUF_RUNTIME = "llamacpp"
Word = TypeVar("Word", bound=StrEnum)


def load_flow(
    model: str | Path | OnnxModel | LayerGraph,
    cluster: str | Path | Mapping[str, object] | Cluster | None = None,
    target: str | Target | None = None,
    precision: str | None = None,
    planning_proportion: float | None = None,
    period: str | None = None,
    estimator: str = Estimator.REGRESSION,
    storage: str | None = None,
    constraints: tuple[Constraint, ...] = (),
    options: Mapping[str, object] | None = None,
    headroom: float = 0.0,
    cut_at: str = CutAt.LAYERS,
    shapes: Mapping[str, int | Sequence[int]] | None = None,
    batch_axes: Mapping[str, int | None] | None = None,
    states: Mapping[str, str] | None = None,
) -> Flow:
    """A model on a cluster, ready to be planned, measured or searched.

    Args:
        model: a built-in name, the path of an ONNX file, an ONNX model or a graph of layers.
        cluster: a built-in name, the path of a TOML file or of a JSON file, an IPUClusterInfo [auto-pipeline], or
            the cluster itself; by default "bow-2000", and this machine for the target "host".
        target: "ipu" for the cost model, "host" for processes of this machine, "gpu" for engines on GPUs, or a `Target`
            of your own; by default that of the cluster, else of the model.
        precision: "fp16", "fp32" or "fp8"; by default fp16, and fp32 on a host, which runs files in their own formats.
        planning_proportion, estimator, constraints: as in `Flow`.
        period: "barrier", "overlap", "serial" or "duplex" (`Period`); by default what the target's devices do.
        storage: the URL of a database on a server that caches compiled layers; by default a file of this machine does.
        options: those that only the target of this name has, for example `{"partials": "fp32"}` (`NamedTarget`).
        headroom: share of every device's memory that is left free.
        cut_at: "layers" or "blocks", where stages may begin (`CutAt`).
        shapes: lengths of axes that the file leaves open, by the name of an axis, `{"height": 320}`, or of an input,
            `{"images": (3, 320, 320)}`, then all but its batch axis.
        batch_axes: the axis of an input along which samples lie, None where it has none; by default it is looked for.
        states: inputs that an output feeds in the next call, with that output; by default those that names show.

    Raises:
        BadInput: no such model, cluster or target, one that cannot be read, a cluster or an option of another target,
            or a model without blocks where stages are to begin at them.
    """
    problem, objects = named(model, cluster, target)
    problem = replace(
        problem,
        headroom=headroom,
        precision=precision,
        planning=Planning(estimator, planning_proportion, period, cut_at),
        constraints=constraints,
        options=options or {},
        model_inputs=model_inputs(shapes, batch_axes, states),
    )
    return open_problem(problem, storage, objects)


class Objects(NamedTuple):
    """Objects that Python gives in place of names and files; None where a `Problem` has the name."""

    model: OnnxModel | LayerGraph | None = None
    cluster: Mapping[str, object] | Cluster | None = None
    target: Target | None = None

    @property
    def is_none(self) -> bool:
        """True if all are names, so that another process can open them."""
        return all(given is None for given in self)


NO_OBJECTS = Objects()


def named(
    model: str | Path | OnnxModel | LayerGraph,
    cluster: str | Path | Mapping[str, object] | Cluster | None = None,
    target: str | Target | None = None,
) -> tuple[Problem, Objects]:
    """The names and paths among what a caller gives, and the objects in place of the others.

    Raises BadInput if there is no such target.
    """
    own_target: Target | None = None
    name: object = target
    if target is not None and not isinstance(target, str) and hasattr(target, "compile"):
        own_target = target
        name = DEFAULT_TARGET
    chosen = with_target({"model": model, "cluster": cluster, "target": name})
    cluster = chosen["cluster"]
    names: dict[str, Any] = {"target": target_named(chosen["target"]).name, "model": None, "cluster": None}
    given: dict[str, Any] = {"target": own_target}
    if isinstance(model, OnnxModel | LayerGraph):
        given["model"] = model
    else:
        names["model"] = str(model)
    if isinstance(cluster, str | Path):
        names["cluster"] = str(cluster)
    else:
        given["cluster"] = cluster
    return Problem(**names), Objects(**given)


def open_problem(problem: Problem, storage: str | None = None, objects: Objects = NO_OBJECTS) -> Flow:
    """The model of a problem on its cluster; `objects` of Python stand in place of names; raises as `load_flow`."""
    if problem.profile is not None:
        return _open_profile(problem, problem.profile)
    title = upload_title(problem.model)
    problem = with_uploads(problem)
    entry = None if objects.target is not None else target_named(problem.target)
    period = _period(problem, entry)
    if entry is not None:
        options = entry.read_options(problem.options)
    elif problem.options:
        raise BadInput(f"options are for a target by name, got {', '.join(problem.options)}; give them to your target")
    else:
        options = {}
    cluster = problem.cluster if objects.cluster is None else objects.cluster
    devices = _devices(cluster, entry, options).with_headroom(problem.headroom)
    _check_no_speeds(devices)
    # The format of weights and activations is by default that of the target which the devices are for.
    owner = TARGETS.get(devices.target)
    default = Precision.FP16 if owner is None else owner.default_precision
    known_precisions = None if entry is None else entry.precisions
    precision = _word("precision", Precision, problem.precision or default, known_precisions)
    cache = cache_for(storage)
    # The model: a decoder of a GGUF file or of a config, else layers of a graph.
    decoder: Decoder | None = None
    file = _decoder_file(problem, objects, entry)
    if file is not None:
        decoder, graph = file.decoder, graph_of_file(file)
    elif entry is not None and entry.serves_decoders:
        decoder = _decoder(problem, objects)
        graph = graph_of(decoder)
    else:
        graph = _graph(problem, objects, cache)
    if title is not None:
        graph = replace(graph, name=title)  # all of them lie in files of one name
    target = objects.target
    if entry is not None:
        source = None
        if objects.model is None and decoder is None:
            source = partial(_source, problem)
        target, devices = entry.opened(Request(graph, source, devices, precision, options, decoder, file))
    if isinstance(target, ServesDecoder) and file is None:
        from autoauto.evaluate.serving.measured import with_measured_rows  # of extra gpu
        from autoauto.targets.gpu.target import GpuTarget

        assert isinstance(target, GpuTarget)
        path = options.get("measured")
        target = with_measured_rows(target, None if path is None else Path(path), decoder_of)
        # Percentiles over requests need arrivals: random ones, where none are given.
        if any(PERCENTILES.intersection(constraint.names) for constraint in problem.constraints):
            target = target.with_arrivals()
    assert target is not None
    return Flow(
        Setting(
            graph=graph,
            cluster=devices,
            target=target,
            precision=precision,
            planning_proportion=problem.planning.planning_proportion,
            period=period,
            cache=cache,
            estimator=_word("estimator", Estimator, problem.planning.estimator),
            cut_at=_word("cut_at", CutAt, problem.planning.cut_at),
            constraints=problem.constraints,
        )
    )


def with_uploads(problem: Problem) -> Problem:
    """A problem with the paths of its uploaded files on this machine. Raises BadInput if it does not have one."""
    return with_files(problem, {what: uploaded_file(what, name) for what, name in files_of(problem).items()})


def _open_profile(problem: Problem, profile: ProfileFiles) -> Flow:
    """The profile on its devices; sums of its layers are not corrected, since nothing can be compiled."""
    if problem.options or problem.target != DEFAULT_TARGET:
        given = ", ".join(problem.options) or f"--target {problem.target}"
        raise BadInput(f"with --profile nothing is compiled or run, got {given}; leave it out")
    from autoauto.evaluate.imported import profiled_devices, profiled_model

    devices = profiled_devices(profile)
    if (devices is None) == (problem.cluster is None):
        raise BadInput(
            "a profile needs its devices: --devices N --device-memory-gib GIB --link-gb-per-s RATE, or --cluster "
            "FILE.toml, one of the two"
        )
    precision = Precision(problem.precision or Precision.FP32)
    cluster = devices or read_cluster(str(problem.cluster))
    graph, target = profiled_model(profile, problem.model, precision, problem.model_inputs)
    planning = problem.planning
    return Flow(
        Setting(
            graph=graph,
            cluster=cluster.with_headroom(problem.headroom),
            target=target.on_devices(cluster),
            precision=precision,
            planning_proportion=planning.planning_proportion,
            period=None if planning.period is None else Period(planning.period),
            estimator=Estimator.SUM,
            cut_at=CutAt(planning.cut_at),
            constraints=problem.constraints,
        )
    )


def _period(problem: Problem, entry: NamedTarget | None) -> Period | None:
    """What devices do at the same time; None is what those of the target do."""
    given = problem.planning.period
    if given is None:
        return None
    period = _word("period", Period, given)
    if entry is not None and period not in entry.periods:
        raise BadInput(f"the period of --target {entry.name} is {', '.join(entry.periods)}, got {given}; leave it out")
    return period


def _decoder(problem: Problem, objects: Objects) -> Decoder:
    """The decoder of a folder with its config, or of a name."""
    if objects.model is not None or problem.model is None or problem.model_inputs != AS_IN_FILE:
        raise BadInput(
            f"--target {problem.target} serves a decoder, whose inputs are tokens; give the folder of its config.json, "
            "or its name on Hugging Face"
        )
    return decoder_of(problem.model)


def _decoder_file(problem: Problem, objects: Objects, entry: NamedTarget | None) -> DecoderFile | None:
    """The decoder of a GGUF file; None where the model is none."""
    if objects.model is not None or not is_gguf(problem.model):
        return None
    if entry is None or not any(kind.runtime == GGUF_RUNTIME for kind in entry.sessions):
        raise BadInput(f"a GGUF file is served on the host, got --target {problem.target}; try --target host")
    if problem.model_inputs != AS_IN_FILE:
        raise BadInput("the inputs of a GGUF file are tokens, got --shape, --batch-axis or --state; leave them out")
    return read_gguf(Path(str(problem.model)))


def _source(problem: Problem) -> Source:
    from autoauto.graph.cut import onnx_source

    return onnx_source(problem.model or DEFAULT_MODEL, problem.model_inputs)


def _graph(problem: Problem, objects: Objects, cache: ProfileCache) -> LayerGraph:
    if objects.model is None:
        return stored_graph(problem.model or DEFAULT_MODEL, problem.model_inputs, cache)
    if not isinstance(objects.model, LayerGraph):
        return load_graph(objects.model, problem.model_inputs)
    if problem.model_inputs != AS_IN_FILE:
        raise BadInput("shapes, batch axes and states are for a model file, got a graph; give them to load_graph")
    return objects.model


def read_cluster(name: str | Path, known_targets: Collection[str] = ()) -> Cluster:
    """A built-in cluster, "host" for this machine, a TOML file, or an IPUClusterInfo in a .json file [auto-pipeline].

    Where `known_targets` are given, a TOML file is for one of them, or for a profile. Raises BadInput if there is no
    such cluster, or it cannot be read.
    """
    for entry in TARGETS.values():
        if name == entry.default_cluster:
            return entry.devices(None, entry.read_options({}))
    if Path(name).suffix == ".json":
        from autoauto.profile.importers.auto_pipeline import cluster_from_auto_pipeline
        from autoauto.records.files.json import read_json

        return cluster_from_auto_pipeline(read_json(Path(name)), str(name))
    return load_cluster(str(name), known_targets)


def _check_no_speeds(cluster: Cluster) -> None:
    """Refuse speeds of kinds where each kind is compiled or measured by itself."""
    if given := [kind.device.name for kind in cluster.kinds if kind.speed is not None]:
        raise BadInput(
            f"a speed is for --profile FILE, whose times it divides, {cluster.name} has one of {', '.join(given)} and "
            f"layers that --target {cluster.target} times on each kind; leave it out"
        )


def _word(name: str, kind: type[Word], given: str, known: Iterable[Word] | None = None) -> Word:
    words = list(kind if known is None else known)
    if given not in words:
        raise BadInput(f"{name} is one of {', '.join(words)}, got {given!r}")
    return kind(given)


def _devices(
    cluster: str | Path | Mapping[str, object] | Cluster | None, entry: NamedTarget | None, options: OptionValues
) -> Cluster:
    """The cluster that was given, or the default of the target."""
    if entry is None and cluster is None:
        raise BadInput("a target of your own needs a cluster of its devices, got none; give `cluster`")
    if entry is not None and cluster in (None, entry.default_cluster):
        return entry.devices(None, options)
    if isinstance(cluster, Mapping):
        from autoauto.profile.importers.auto_pipeline import cluster_from_auto_pipeline

        cluster = cluster_from_auto_pipeline(cluster)
    if not isinstance(cluster, str | Path | Cluster):
        raise BadInput(f"a cluster is a name, a file, an IPUClusterInfo or a Cluster, got {cluster!r:.60}")
    if isinstance(cluster, str) and entry is not None:
        cluster = entry.cluster_named(cluster) or cluster
    if entry is None:
        return cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    devices = cluster if isinstance(cluster, Cluster) else read_cluster(cluster, TARGETS)
    if devices.target != entry.name:
        instead = f"--target {devices.target}" if devices.target in TARGETS else "--profile FILE"
        raise BadInput(
            f"the cluster must be for --target {entry.name}, {devices.name} is for {devices.target!r}; try {instead}"
        )
    return entry.devices(devices, options)
