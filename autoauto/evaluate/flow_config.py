"""The arguments of a `Flow` as plain values, which a study stores and another process opens again: `FlowConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.imported import ProfileFiles
from autoauto.evaluate.load import load_flow, read_cluster
from autoauto.evaluate.setting import Setting
from autoauto.records.costs.correction import Estimator
from autoauto.records.errors import BadInput
from autoauto.records.files.fields import stored_form
from autoauto.records.files.json import from_json, from_plain, to_json
from autoauto.records.hardware import Period
from autoauto.records.installation import DEFAULT_MODEL
from autoauto.records.layers import ModelInputs
from autoauto.records.model_inputs import read_model_inputs
from autoauto.records.plans.plan import CutAt
from autoauto.records.units import GIB, MAX_MIB, MIB, Precision
from autoauto.space.constraint import Constraint
from autoauto.targets.host.entry import HOST
from autoauto.targets.registry import DEFAULT_TARGET, default_options, precisions_of


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """The names, files and options that make a `Flow`.

    Attributes:
        model: a built-in name or the path of an ONNX file; None is the default, or with a profile no file.
        target: the name of a target.
        cluster: a built-in name or a file; None is the target's default.
        headroom: share of every device's memory that is left free.
        precision, estimator, planning_proportion, period, cut_at: as in `load_flow`; None is the default.
        constraints: expressions that must hold, over knobs or over results; None is none.
        max_latency_s: the same as the constraint "latency_s <= S"; None is no bound.
        options: those that only one target has and that differ from their defaults. As JSON they stand beside the other
            fields, all of them.
        shape, batch_axis, state: what is said of the model's inputs, NAME=VALUE each (`read_model_inputs`).
        profile: files that another tool recorded, in place of a target. As JSON its fields stand beside the others.
    """

    model: str | None
    target: str = DEFAULT_TARGET
    cluster: str | None = None
    headroom: float = 0.0
    precision: str | None = None
    estimator: str = Estimator.REGRESSION
    planning_proportion: float | None = None
    period: str | None = None
    constraints: tuple[str, ...] | None = None
    max_latency_s: float | None = None
    cut_at: str = CutAt.LAYERS
    shape: tuple[str, ...] | None = None
    batch_axis: tuple[str, ...] | None = None
    state: tuple[str, ...] | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    profile: ProfileFiles | None = None

    @staticmethod
    def of(values: Mapping[str, object]) -> FlowConfig:
        """A config from values by name, for example parsed arguments; names of no field and no option are ignored.

        "overlap" is another name of the period "overlap". Without a profile, "device_memory_gib" is the option
        "device_memory_mib" of the host, which has whole MiB.

        Raises:
            BadInput: there are two periods, or two sizes of memory, or memory of devices that have theirs.
        """
        values = _with_precision(_with_memory(_with_period(values)))
        known = {name: values[name] for name in _FIELDS if name in values}
        profile = _profile_files(values, "the options of a profile")
        return FlowConfig(**known, options=_changed_options(values), profile=profile)  # type: ignore[arg-type]

    @staticmethod
    def from_json(text: str, **changes: object) -> FlowConfig:
        """Read what `to_json` wrote, with some fields changed.

        Raises:
            BadInput: a field is missing or wrong.
        """
        values = {**_OPTIONAL, **from_json(dict[str, Any], text, _WHERE), **changes}
        if missing := [name for name in _FIELDS if name not in values]:
            raise BadInput(f"{_WHERE} must hold {', '.join(missing)}; search anew by another name")
        known = {name: values[name] for name in _FIELDS} | {"options": _changed_options(values), "profile": None}
        return replace(from_plain(FlowConfig, known, _WHERE, form=_STORED), profile=_profile_files(values, _WHERE))

    def to_json(self) -> str:
        """All fields and the options of all targets as JSON, with files by their absolute paths.

        Fields of `_OPTIONAL` are left out where they have their defaults.
        """
        values = {name: getattr(self, name) for name in _FIELDS}
        for name, default in _OPTIONAL.items():
            if values[name] == default:
                del values[name]
        values |= default_options() | dict(self.options)
        for name in ("model", "cluster", "inputs"):
            if values[name] is not None and Path(values[name]).is_file():
                values[name] = str(Path(values[name]).resolve())
        profile = {} if self.profile is None else asdict(self.profile.resolved())
        return to_json(values | profile).decode()

    def open(self, storage: str | None = None) -> Flow:
        """The model on the cluster.

        Args:
            storage: as in `load_flow`.

        Raises:
            BadInput: no such model or cluster, one that cannot be read, or an option of another target.
        """
        if self.profile is not None:
            return self._open_profile(self.profile)
        inputs = self._model_inputs
        return load_flow(
            self.model or DEFAULT_MODEL,
            self.cluster,
            self.target,
            self.precision,
            self.planning_proportion,
            self.period,
            self.estimator,
            storage,
            self._result_constraints,
            self.options,
            self.headroom,
            self.cut_at,
            dict(inputs.shapes),
            dict(inputs.batch_axes),
            dict(inputs.states),
        )

    def _open_profile(self, profile: ProfileFiles) -> Flow:
        """The profile on its devices; sums of its layers are not corrected, since nothing can be compiled."""
        if self.options or self.target != DEFAULT_TARGET:
            given = ", ".join(self.options) or f"--target {self.target}"
            raise BadInput(f"with --profile nothing is compiled or run, got {given}; leave it out")
        devices = profile.cluster()
        if (devices is None) == (self.cluster is None):
            raise BadInput(
                "a profile needs its devices: --devices N --device-memory-gib GIB --link-gb-per-s RATE, or --cluster "
                "FILE.toml, one of the two"
            )
        precision = Precision(self.precision or Precision.FP32)
        cluster = devices or read_cluster(str(self.cluster))
        graph, target = profile.model(self.model, precision, self._model_inputs)
        return Flow(
            Setting(
                graph=graph,
                cluster=cluster.with_headroom(self.headroom),
                target=target.on_devices(cluster),
                precision=precision,
                planning_proportion=self.planning_proportion,
                period=None if self.period is None else Period(self.period),
                estimator=Estimator.SUM,
                cut_at=CutAt(self.cut_at),
                constraints=self._result_constraints,
            )
        )

    @property
    def _model_inputs(self) -> ModelInputs:
        return read_model_inputs(self.shape, self.batch_axis, self.state)

    @property
    def _result_constraints(self) -> tuple[Constraint, ...]:
        return tuple(constraint for constraint in self.all_constraints if not constraint.over_knobs)

    @property
    def all_constraints(self) -> tuple[Constraint, ...]:
        """The constraints and the bound on latency, each once.

        A `Flow` checks those over results; those over knobs belong to the `SearchSpace`.
        """
        texts = list(self.constraints or ())
        if self.max_latency_s is not None:
            texts.append(f"latency_s <= {self.max_latency_s!r}")
        return tuple(dict.fromkeys(map(Constraint, texts)))


def _changed_options(values: Mapping[str, object]) -> dict[str, object]:
    """The options of targets that differ from their defaults."""
    return {name: values[name] for name, value in default_options().items() if values.get(name, value) != value}


def _profile_files(values: Mapping[str, object], where: str) -> ProfileFiles | None:
    """The profile among values by name.

    Raises:
        BadInput: some of its options are missing, or are given without it.
    """
    given = {name: values[name] for name in _PROFILE_FIELDS if values.get(name) not in (None, [], ())}
    if not given:
        return None
    if "profile" not in given or "profile_format" not in given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise BadInput(f"--profile and --profile-format go together, got {names}; give both")
    return from_plain(ProfileFiles, given, where)


def _with_period(values: Mapping[str, object]) -> Mapping[str, object]:
    """The values with the period that `overlap` is another name of."""
    if not values.get("overlap"):
        return values
    if values.get("period") not in (None, Period.OVERLAP):
        raise BadInput(f"--overlap is --period overlap, got --period {values['period']} too; leave one out")
    return {**values, "period": str(Period.OVERLAP)}


def _with_precision(values: Mapping[str, object]) -> Mapping[str, object]:
    """The values with one precision: none where the formats in which devices compute are a knob.

    Raises:
        BadInput: there are several.
    """
    given, target = values.get("precision"), values.get("target", DEFAULT_TARGET)
    if not isinstance(given, tuple):
        return values
    if of_sessions := precisions_of(str(target)):
        if wrong := [word for word in given if word not in of_sessions]:
            raise BadInput(
                f"on the host a model runs in the formats of its file, got --precision {wrong[0]}, or its runtime "
                f"computes in one of {', '.join(of_sessions)}"
            )
        return {**values, "precision": None}
    if len(given) > 1:
        raise BadInput(f"--target {target} has one --precision, got {', '.join(given)}; leave the others out")
    return {**values, "precision": str(given[0])}


def _with_memory(values: Mapping[str, object]) -> Mapping[str, object]:
    """The values with the memory of a device where it belongs: to a profile, or to the host."""
    gib = values.get("device_memory_gib")
    others = (name for name in _PROFILE_FIELDS if name != "device_memory_gib")
    if not isinstance(gib, float | int) or any(values.get(name) for name in others):
        return values
    if values.get("target") != HOST.name:
        raise BadInput("--device-memory-gib is for --target host or --profile; leave it out, or try another --cluster")
    if values.get("device_memory_mib") is not None:
        raise BadInput("--device-memory-mib is --device-memory-gib in other units, got both; leave one out")
    mib = max(1, round(min(gib * GIB / MIB, MAX_MIB)))
    return {**values, "device_memory_gib": None, "device_memory_mib": mib}


_OPTIONAL: Mapping[str, object] = {"cut_at": CutAt.LAYERS, "shape": None, "batch_axis": None, "state": None}
"""Fields that texts have only where they differ from these defaults."""
_WHERE = "the configuration of a flow"
_STORED = stored_form(FlowConfig, options=dict[str, Any])
_FIELDS = tuple(field.name for field in fields(FlowConfig) if field.name not in ("options", "profile"))
_PROFILE_FIELDS = tuple(field.name for field in fields(ProfileFiles))
