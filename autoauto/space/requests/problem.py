"""A model on a cluster as names, files and options, which another process opens again: `Problem`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from autoauto.records.costs.correction import Estimator
from autoauto.records.errors import BadInput
from autoauto.records.files.fields import stored_form
from autoauto.records.files.json import from_plain, to_plain
from autoauto.records.hardware import Period
from autoauto.records.layers import AS_IN_FILE, ModelInputs
from autoauto.records.model_inputs import read_model_inputs, texts_of
from autoauto.records.plans.plan import CutAt
from autoauto.records.units import GIB, MAX_MIB, MIB
from autoauto.space.constraint import MAX_CONSTRAINTS, Constraint
from autoauto.space.requests.target_choice import with_target
from autoauto.targets.host.entry import HOST
from autoauto.targets.registry import DEFAULT_TARGET, default_options, precisions_of


@dataclass(frozen=True, slots=True)
class ProfileFiles:
    """A profile that another tool recorded, and the devices that it is of, as they are named on the command line.

    Attributes:
        profile: paths, each alone or after its batch size, for example "8=FILE"; where devices are of several kinds,
            after the name of the kind, too: "fast:8=FILE", or "fast=FILE" for a file with batch sizes of its own.
        profile_format: the name of an importer.
        profile_details: second files of the same kinds and batch sizes.
        devices: so many equal devices; None where a cluster is named.
        link_gb_per_s: 10**9 bytes a second that each receives from its neighbour or the host, or sends there.
    """

    profile: tuple[str, ...]
    profile_format: str
    profile_details: tuple[str, ...] = ()
    devices: int | None = None
    device_memory_gib: float | None = None
    link_gb_per_s: float | None = None

    def __post_init__(self) -> None:
        devices = (self.devices, self.device_memory_gib, self.link_gb_per_s)
        if None in devices and devices != (None, None, None):
            raise BadInput("--devices, --device-memory-gib and --link-gb-per-s go together; give all three")

    def with_paths(self, change: Callable[[Path], str]) -> ProfileFiles:
        """The profile with every path changed."""
        profile = tuple(named_file(text).with_path(change) for text in self.profile)
        details = tuple(named_file(text).with_path(change) for text in self.profile_details)
        return replace(self, profile=profile, profile_details=details)


FILE_OPTIONS = ("inputs", "measured", "trace")
"""Options of targets that are paths of one file each."""


class NamedFile(NamedTuple):
    """A path, with the kind of devices and the batch size that are written before it."""

    kind: str | None
    batch_size: int | None
    path: Path

    def with_path(self, change: Callable[[Path], str]) -> str:
        """The text with another path."""
        head = ":".join(str(each) for each in (self.kind, self.batch_size) if each is not None)
        return f"{head}={change(self.path)}" if head else change(self.path)


def named_file(text: str) -> NamedFile:
    """Read what is written before a path. A file of the whole name, "a=b", is a path.

    >>> [tuple(named_file(text))[:2] for text in ("8=trace", "fast:8=trace", "fast=table.csv", "table.csv", "./a=b")]
    [(None, 8), ('fast', 8), ('fast', None), (None, None), (None, None)]
    """
    head, equals, path = text.partition("=")
    if not equals or (not _is_size(head) and Path(text).is_file()):
        return NamedFile(None, None, Path(text))
    if _is_size(head):
        return NamedFile(None, int(head), Path(path))
    kind, colon, size = head.rpartition(":")
    if colon and _is_size(size):
        return NamedFile(kind, int(size), Path(path))
    if "/" in head:  # no kind of device: a path with "=" in it
        return NamedFile(None, None, Path(text))
    return NamedFile(head, None, Path(path))


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < len(text) < 10 and int(text) > 0


@dataclass(frozen=True, slots=True)
class Planning:
    """Settings of the estimate of costs, and restrictions of plans.

    Attributes:
        estimator: whether sums of layers are corrected, an `Estimator` or its name.
        planning_proportion: share of a device's memory that a planned stage may fill; None is the estimator's.
        period: what devices do at the same time, a `Period` or its name; None is what the target's devices do.
        cut_at: where stages may begin, a `CutAt` or its name.
    """

    estimator: str = Estimator.REGRESSION
    planning_proportion: float | None = None
    period: str | None = None
    cut_at: str = CutAt.LAYERS


@dataclass(frozen=True, slots=True)
class Problem:
    """A model on a cluster: everything that is not searched, and that results depend on.

    Options of commands, keys of search files and keywords of Python are its flat view: `Problem.of` reads them,
    `values` has them.

    Attributes:
        model: a built-in name or the path of an ONNX file; None is the default, or with a profile no file.
        cluster: a built-in name or a file; None is the target's default.
        headroom: share of every device's memory that is left free.
        precision: of weights and activations; None is the target's default.
        planning: how costs are estimated, and what plans may be.
        options: those that only the target has, and that differ from their defaults.
        profile: files that another tool recorded, in place of a target.
    """

    model: str | None = None
    target: str = DEFAULT_TARGET
    cluster: str | None = None
    headroom: float = 0.0
    precision: str | None = None
    planning: Planning = Planning()
    constraints: tuple[Constraint, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    model_inputs: ModelInputs = AS_IN_FILE
    profile: ProfileFiles | None = None

    @staticmethod
    def of(values: Mapping[str, object]) -> Problem:
        """A problem from values by the names of options, for example parsed arguments; other names are ignored.

        "overlap" is another name of the period "overlap", and "max_latency_s" of a constraint. Without a profile,
        "device_memory_gib" is the option "device_memory_mib" of the host, which has whole MiB. Without a target it is
        the one of the cluster, or of the model.

        Raises:
            BadInput: there are two periods, batch sizes and how many are in flight, or memory of devices that have
                theirs; or as `with_target`.
        """
        values = _with_precision(_with_memory(_with_period(with_target(values))))
        if values.get("concurrency") and values.get("batch_size"):
            raise BadInput("--concurrency says how large batches are, got --batch-size too; leave one out")
        own = {name: values[name] for name in _OWN if name in values}
        planning = {name: values[name] for name in _PLANNING if name in values}
        inputs = [values.get(name) for name in _INPUTS]
        options: dict[str, object] = {}
        for name, default in default_options().items():
            if values.get(name, default) != default:
                options[name] = values[name]
        return Problem(
            **own,  # type: ignore[arg-type]
            planning=Planning(**planning),  # type: ignore[arg-type]
            constraints=tuple(each for each in constraints_of(values) if not each.over_knobs),
            options=options,
            model_inputs=read_model_inputs(*inputs),  # type: ignore[arg-type]
            profile=_profile_files(values),
        )

    @property
    def values(self) -> dict[str, Any]:
        """The flat view: all values by the names of options, and of every target's options those that are not None."""
        values = {name: getattr(self, name) for name in _OWN}
        values |= asdict(self.planning)
        values["constraints"] = [constraint.text for constraint in self.constraints]
        values |= dict.fromkeys(_INPUTS)
        values |= texts_of(self.model_inputs)
        values |= default_options()
        values |= self.options
        if self.profile is not None:
            values |= asdict(self.profile)
        return values

    def with_values(self, **changes: object) -> Problem:
        """The problem with other values, by the names of options."""
        return Problem.of(self.values | changes)

    def with_paths(self, change: Callable[[Path], str]) -> Problem:
        """The problem with other paths of its files: of a model, cluster or inputs that are there, and of a profile."""

        def changed(given: object) -> Any:
            path = Path(str(given))
            # A folder of a model has a file as Hugging Face writes it; others are built-in names.
            is_there = path.is_file() or (path / "config.json").is_file()
            return change(path) if given is not None and is_there else given

        options = {name: changed(given) if name in FILE_OPTIONS else given for name, given in self.options.items()}
        profile = None if self.profile is None else self.profile.with_paths(change)
        model, cluster = changed(self.model), changed(self.cluster)
        return replace(self, model=model, cluster=cluster, options=options, profile=profile)

    @property
    def plain(self) -> dict[str, Any]:
        """All fields as JSON has them, with files by their absolute paths."""
        absolute = self.with_paths(lambda path: str(path.resolve()))
        plain: dict[str, Any] = to_plain(absolute)
        return plain

    @staticmethod
    def read(plain: object, where: str) -> Problem:
        """Read what `plain` wrote; the message of a BadInput begins with `where`."""
        return from_plain(Problem, plain, where, form=_STORED)


def check_n_constraints(n: int) -> None:
    """Raise BadInput for more constraints than a search may have."""
    if n > MAX_CONSTRAINTS:
        raise BadInput(f"a search has at most {MAX_CONSTRAINTS} constraints, got {n:,}; join some of them by `and`")


def constraints_of(values: Mapping[str, Any]) -> tuple[Constraint, ...]:
    """The constraints and the bounds on latencies among values by the names of options, each once.

    Raises:
        BadInput: there are more than a search may have, or one is none.
    """
    texts = list(values.get("constraints") or ())
    check_n_constraints(len(texts))
    for option, (name, seconds) in _BOUNDS.items():
        if values.get(option) is not None:
            texts.append(f"{name} <= {values[option] * seconds!r}")
    return tuple(dict.fromkeys(map(Constraint, texts)))


def _profile_files(values: Mapping[str, object]) -> ProfileFiles | None:
    """The profile among values by name."""
    given = {name: values[name] for name in _PROFILE if values.get(name) not in (None, [], ())}
    if not given:
        return None
    if "profile" not in given or "profile_format" not in given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise BadInput(f"--profile and --profile-format go together, got {names}; give both")
    return from_plain(ProfileFiles, given, "the options of a profile")


def _with_period(values: Mapping[str, object]) -> Mapping[str, object]:
    """The values with the period that `overlap` is another name of."""
    if not values.get("overlap"):
        return values
    if values.get("period") not in (None, Period.OVERLAP):
        raise BadInput(f"--overlap is --period overlap, got --period {values['period']} too; leave one out")
    return {**values, "period": str(Period.OVERLAP)}


def _with_precision(values: Mapping[str, object]) -> Mapping[str, object]:
    """The values with one precision; None where the formats in which devices compute are a knob."""
    given, target = values.get("precision"), str(values["target"])
    if not isinstance(given, tuple):
        return values
    if of_sessions := precisions_of(target):
        if wrong := [word for word in given if word not in of_sessions]:
            raise BadInput(
                f"--target {target} runs a model in the formats of its file, or computes in one of "
                f"{', '.join(of_sessions)}, got --precision {wrong[0]}; leave it out, or try one of those"
            )
        return {**values, "precision": None}
    if len(given) > 1:
        raise BadInput(f"--target {target} has one --precision, got {', '.join(given)}; leave the others out")
    return {**values, "precision": str(given[0])}


def _with_memory(values: Mapping[str, object]) -> Mapping[str, object]:
    """The values with the memory of a device where it belongs: to a profile, or to the host."""
    gib = values.get("device_memory_gib")
    others = (name for name in _PROFILE if name != "device_memory_gib")
    if not isinstance(gib, float | int) or any(values.get(name) for name in others):
        return values
    if values.get("target") != HOST.name:
        raise BadInput("--device-memory-gib is for --target host or --profile; leave it out, or try another --cluster")
    mib = max(1, round(min(gib * GIB / MIB, MAX_MIB)))
    return {**values, "device_memory_gib": None, "device_memory_mib": mib}


def files_of(problem: Problem) -> dict[str, str]:
    """The names of the model, the cluster and the files of options, by what they are."""
    named: dict[str, object] = {"model": problem.model, "cluster": problem.cluster}
    named |= {name: given for name, given in problem.options.items() if name in FILE_OPTIONS}
    return {what: str(name) for what, name in named.items() if name is not None}


def with_files(problem: Problem, names: Mapping[str, str]) -> Problem:
    """The problem with other names of its files, by what they are."""
    of_options = {what: name for what, name in names.items() if what in FILE_OPTIONS}
    own = {what: name for what, name in names.items() if what not in FILE_OPTIONS}
    return replace(problem, **own, options={**problem.options, **of_options})  # type: ignore[arg-type]


_BOUNDS = {"max_latency_s": ("latency_s", 1), "max_ttft_ms": ("ttft_s", 1e-3), "max_tpot_ms": ("tpot_s", 1e-3)}
"""The number of a result that an option bounds, and the seconds of its unit."""
_OWN = ("model", "target", "cluster", "headroom", "precision")
_PLANNING = tuple(entry.name for entry in fields(Planning))
_INPUTS = ("shape", "batch_axis", "state")
_PROFILE = tuple(entry.name for entry in fields(ProfileFiles))
_STORED = stored_form(
    Problem, options=dict[str, Any], constraints=Annotated[tuple[Constraint, ...], Meta(max_length=MAX_CONSTRAINTS)]
)
