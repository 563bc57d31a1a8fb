"""What a client submits, `Submission`: a request of a search that names no file of this machine, and its limits.

Equal submissions have one digest, by which they are one search, whoever sends them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from operator import itemgetter

import msgspec

from autoauto.graph.decoders.huggingface import bundled_names
from autoauto.records.costs.options import PlainSession
from autoauto.records.errors import BadInput, MissingExtra, did_you_mean
from autoauto.records.files.json import to_plain
from autoauto.records.files.uploads import UPLOADED
from autoauto.records.installation import DEFAULT_MODEL, builtin_models
from autoauto.records.layers import ModelInputs
from autoauto.space.constraint import Constraint
from autoauto.space.grid import Grid, default_values
from autoauto.space.objectives import MAX_MEASURED
from autoauto.space.requests.problem import FILE_OPTIONS, Problem, check_n_constraints, files_of, with_files
from autoauto.space.requests.request import KnobValues, MeasureConfig, SearchRequest
from autoauto.space.requests.target_choice import chosen_target
from autoauto.space.space import SearchSpace, check_n_configurations, in_order
from autoauto.space.table import TABLE
from autoauto.study.methods.registry import method_for
from autoauto.targets.clusters import builtin_clusters, load_cluster
from autoauto.targets.registry import DEFAULT_TARGET, TARGETS
from autoauto.targets.target import NamedTarget, TargetOption

MAX_LIMIT = 2**31 - 1
_DECODER = "Qwen/Qwen3-8B"
_OF_MACHINES = re.compile(r"FILE|FOLDER|PATH|DIR|HOST|URL|ADDRESS")
"""Matches the metavar of an option whose value is a file or an address of a machine, which no client may name."""


STARTS_ENGINES = {"engines": "started"}
"""The label of workers that start engines, which searches that measure ask for."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The budget of a search beside the seconds of its request; None is no limit.

    Attributes:
        measurements: configurations that are measured.
        trials: configurations that are tried, also those that do not fit.
    """

    measurements: int | None = None
    trials: int | None = None

    @staticmethod
    def of(given: object) -> SearchLimits:
        """Read limits; raises BadInput."""
        if not isinstance(given, Mapping):
            raise BadInput(f"limits are an object with measurements or trials, got {given!r:.60}")
        for name, value in given.items():
            if name not in _LIMITS:
                hint = did_you_mean(str(name), _LIMITS, f"limits are {' and '.join(_LIMITS)}")
                raise BadInput(f"there is no limit {name!r:.60}; {hint}")
            if value is not None and not (isinstance(value, int) and value is not True and 1 <= value <= MAX_LIMIT):
                raise BadInput(f"limit {name} must be a whole number from 1 to {MAX_LIMIT}, got {value!r:.60}")
        return SearchLimits(**given)


_LIMITS = ("measurements", "trials")


@dataclass(frozen=True, slots=True)
class Submission:
    """A search as the service keeps it.

    Attributes:
        request: its model and cluster are names that come with autoauto, or files that were uploaded.
        labels: what a worker must say of itself to run it, for example {"gpu": "h100"}.
    """

    request: SearchRequest
    limits: SearchLimits = SearchLimits()
    labels: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(request: SearchRequest, limits: object = None, labels: object = None) -> Submission:
        """A submission with the defaults of what its answer depends on; lists whose order says nothing are sorted.

        Raises:
            BadInput: it names a file or an address of a machine, an unknown cluster or an option of another target, or
                has more configurations than a search may; or what it says of workers is no text.
        """
        problem = _without_files(request.problem)
        study = request.study
        entry = TARGETS[problem.target]
        entry.read_options(problem.options)
        _check_cluster(str(problem.cluster), entry)
        check_n_constraints(len(problem.constraints) + len(study.space.constraints))
        # One form for what asks for the same, whatever the order in which it was given: its digest is that of all.
        inputs = _by_name(problem.model_inputs)
        problem = replace(problem, constraints=_by_text(problem.constraints), model_inputs=inputs)
        method = str(method_for(study.objectives, study.method))
        study = replace(study, space=_ordered(study.space, entry), method=method)
        seconds = study.time_budget_s
        if seconds is not None and not (isinstance(seconds, int | float) and isfinite(seconds) and seconds > 0):
            raise BadInput(f"a time budget must be a number of seconds above 0, got {seconds!r:.60}")
        said = read_labels(labels or {})
        if study.measure.n_most:
            said |= STARTS_ENGINES
        for count in (study.measure.n_most, study.measure.n_flips):
            if not 0 <= count <= MAX_MEASURED:
                raise BadInput(f"a search measures from 0 to {MAX_MEASURED} configurations on engines, got {count}")
        if study.measure != MeasureConfig(study.measure.n_most, n_flips=study.measure.n_flips):
            raise BadInput(
                "a worker decides how engines are started, and how long it waits; leave out --launch and others"
            )
        return Submission(SearchRequest(problem, study), SearchLimits.of(limits or {}), said)

    def to_json(self) -> str:
        """The submission in the one form of which the digest is made."""
        plain = {
            "request": {"problem": to_plain(self.request.problem), "study": self.request.study.plain},
            "limits": {name: getattr(self.limits, name) for name in _LIMITS},
            "labels": dict(self.labels),
        }
        return msgspec.json.encode(plain, order="sorted").decode()

    @staticmethod
    def from_json(text: str) -> Submission:
        """Read what `to_json` wrote; raises BadInput."""
        plain = msgspec.json.decode(text)
        request = SearchRequest.from_json(msgspec.json.encode(plain["request"]).decode())
        return Submission(request, SearchLimits(**plain["limits"]), plain["labels"])

    @property
    def digest(self) -> str:
        """A digest that is equal for equal submissions only."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @property
    def uploads(self) -> dict[str, str]:
        """The digests of its uploaded files, by what they are: "model", "cluster", or the name of an option."""
        digests = {}
        for what, name in files_of(self.request.problem).items():
            match = UPLOADED.fullmatch(name)
            if match:
                digests[what] = match[1]
        return digests

    def named_by(self, names: Mapping[str, str]) -> SearchRequest:
        """The request with names in place of the digests of uploaded files."""
        changed = {what: names[digest] for what, digest in self.uploads.items()}
        return replace(self.request, problem=with_files(self.request.problem, changed))


def read_labels(given: object) -> dict[str, str]:
    """Check labels: those of a worker, or those that a search asks of its worker.

    Raises:
        BadInput: it is no object of short texts.
    """
    if not isinstance(given, Mapping) or not all(map(_is_label, (*given.keys(), *given.values()))):
        raise BadInput(f'labels are texts by names, for example {{"gpu": "h100"}}, got {given!r:.60}')
    if len(given) > 20:
        raise BadInput(f"at most 20 labels, got {len(given)}")
    return dict(given)


def _is_label(part: object) -> bool:
    return isinstance(part, str) and 0 < len(part) <= 100


def check_options(problem: Problem) -> None:
    """Raise BadInput for options of the target that name an address of a machine, or a file that cannot be uploaded."""
    for option in TARGETS[problem.target].options:
        if option.name in problem.options and is_of_machine(option):
            raise BadInput(f"a server takes no {option.flag} from clients, since it is of a machine; leave it out")


def is_of_machine(option: TargetOption) -> bool:
    """True of an option that names an address of a machine, or a file that cannot be uploaded: no client may."""
    return option.name not in FILE_OPTIONS and bool(option.metavar and _OF_MACHINES.search(option.metavar))


def _without_files(problem: Problem) -> Problem:
    """A problem with its defaults, which names no file of this machine."""
    if problem.profile is not None:
        raise BadInput("a server does not read files of profiles, got profile; search without --server")
    if problem.target not in TARGETS:
        raise BadInput(f"target is one of {', '.join(TARGETS)}, got {problem.target!r:.60}")
    check_options(problem)
    for name in FILE_OPTIONS:
        given = problem.options.get(name)
        if given is not None and not UPLOADED.fullmatch(str(given)):
            raise BadInput(
                f"--{name} of a search on a server is an uploaded file, got {given!r:.100}; upload the file, POST "
                "/v1/models, and give sha256: and its digest"
            )
    entry = TARGETS[problem.target]
    model = problem.model or DEFAULT_MODEL
    cluster = problem.cluster or entry.default_cluster
    known = bundled_names() if entry.serves_decoders else tuple(builtin_models())
    if entry.serves_decoders and model not in known:
        if problem.model is None:
            raise BadInput(f"a search for --target {entry.name} needs a model, got none; try one such as {_DECODER}")
        hint = did_you_mean(model, known, f"`autoauto models --target {entry.name}` lists them")
        raise BadInput(f"a model of --target {entry.name} on a server is a built-in name, got {model!r:.100}; {hint}")
    if model not in known and not UPLOADED.fullmatch(model):
        hint = did_you_mean(model, known, "give its file, or upload it by POST /v1/models")
        raise BadInput(f"a model is a built-in name or an uploaded file, got {model!r:.100}; {hint}")
    # A built-in name is no path: else clients could read files of this machine.
    if not UPLOADED.fullmatch(cluster) and re.search(r"[/\\.\0]", cluster):
        raise BadInput(
            f"a cluster is a built-in name or an uploaded file, got {cluster!r:.100}; upload the file, "
            "POST /v1/models, and give sha256: and its digest"
        )
    return replace(problem, model=model, cluster=cluster)


def _check_cluster(name: str, entry: NamedTarget) -> None:
    if name == entry.default_cluster or UPLOADED.fullmatch(name):
        return
    target = chosen_target(None, name, reads_files=False)  # the default one where it is unknown
    if target != entry.name and (target != DEFAULT_TARGET or name in builtin_clusters()):
        raise BadInput(f"the cluster must be for --target {entry.name}, {name} is for {target}; try another")
    try:
        cluster = entry.cluster_named(name) or load_cluster(name, TARGETS)
    except MissingExtra:  # a worker may have it
        return
    if cluster.target != entry.name:
        raise BadInput(f"the cluster must be for --target {entry.name}, {name} is for {cluster.target}; try another")


def _by_text(constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    return tuple(sorted(set(constraints), key=lambda constraint: constraint.text))


def _by_name(said: ModelInputs) -> ModelInputs:
    return ModelInputs(
        tuple(sorted(said.shapes, key=itemgetter(0))),
        tuple(sorted(said.batch_axes, key=itemgetter(0))),
        tuple(sorted(said.states, key=itemgetter(0))),
    )


def _ordered(space: SearchSpace | KnobValues, entry: NamedTarget) -> SearchSpace | KnobValues:
    constraints = _by_text(space.constraints)
    if isinstance(space, SearchSpace):
        values = {name: in_order(space[name]) for name in space.given if name in TABLE}
        return space.with_values(constraints=constraints, **values)
    values = {name: in_order(each) for name, each in space.values.items()}
    every = {name: values.get(name, default_values(knob)[:1]) for name, knob in TABLE.items()}
    check_n_configurations(Grid(every, entry.sessions[0] if entry.sessions else PlainSession))
    return replace(space, values=values, constraints=constraints)
