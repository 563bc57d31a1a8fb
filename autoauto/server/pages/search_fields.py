"""The fields of the form that starts a search, by its target: `search_fields`, and which names they have: `FIELDS`.

Knobs and options of a target are those that the table of knobs and the target have, with the texts of their options.
The typical ones come first, as in the short help of `autoauto search`; the others are below each other in a part that a
click opens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from autoauto.graph.decoders.huggingface import bundled_names
from autoauto.records.errors import MissingExtra
from autoauto.records.installation import DEFAULT_MODEL, builtin_models
from autoauto.records.knob import Knob
from autoauto.server.pages.forms import Field, Kind
from autoauto.server.store.submission import is_of_machine
from autoauto.space.objectives import Objective
from autoauto.space.requests.problem import FILE_OPTIONS
from autoauto.space.requests.typical import typical_options, unused_options
from autoauto.space.table import KNOBS
from autoauto.targets.clusters import builtin_clusters, target_of_file
from autoauto.targets.gpu import systems
from autoauto.targets.registry import TARGETS
from autoauto.targets.target import NamedTarget, TargetOption

Choices = tuple[tuple[str, str], ...]
FILES = {f"{what}_file": what for what in ("model", "cluster", *FILE_OPTIONS)}
"""Names of the fields that take a file, each with what the file is."""
CHOSEN = {f"{what}_upload": what for what in FILES.values()}
"""Names of the fields that choose an upload, each with what the upload is."""
LIMITS = ("measurements", "trials")
SWITCHES = ("shared", "share_weights")
_OBJECTIVES = (*map(str, Objective), f"{Objective.THROUGHPUT},{Objective.LATENCY}")
_OF_ENGINES = {"n_ipu": "pipeline stages", "batch_size": "sequences of a micro-batch"}
"""The meaning of knobs of all targets where engines serve decoders."""
_LONG = 50
"""The maximum length of the help of a knob as its label; a longer one is its hint."""


class FieldGroup(NamedTuple):
    """Fields that are about one thing.

    Attributes:
        typical: those that are shown at once.
        others: those that a click shows.
    """

    title: str
    typical: tuple[Field, ...]
    others: tuple[Field, ...] = ()

    @property
    def every(self) -> tuple[Field, ...]:
        """All of them."""
        return self.typical + self.others


def search_fields(entry: NamedTarget, uploads: Mapping[str, Choices] = MappingProxyType({})) -> tuple[FieldGroup, ...]:
    """The fields of the form for a target; uploads of the user are by what they are."""
    return (
        FieldGroup("Model and cluster", tuple(_model_and_cluster(entry, uploads))),
        _varying(entry, uploads),
        FieldGroup("What is best", tuple(_objective(entry))),
        FieldGroup("Budget and queue", tuple(_budget(entry))),
        FieldGroup(
            "All else",
            (Field("further", "Further options", Kind.LINES, "lines of a search file in TOML; knobs under [knobs]"),),
        ),
    )


def _model_and_cluster(entry: NamedTarget, uploads: Mapping[str, Choices]) -> Iterator[Field]:
    if entry.serves_decoders:
        hint = "a decoder of Hugging Face, for example Qwen/Qwen3-8B; names are offered while you write"
        yield Field("model", "Model", hint=hint, suggestions=bundled_names())
    else:
        hint = f"a name, offered while you write; empty: {DEFAULT_MODEL}"
        yield Field("model", "Model", hint=hint, suggestions=tuple(builtin_models()))
        yield from _chosen("model", uploads)
        yield Field("model_file", "or an ONNX file", Kind.FILE, "one file, with its weights")
    typical = typical_options(entry)
    written = "a name, offered while you write"
    if entry.name == systems.TARGET:
        written = "GPUs and how many, for example h100_sxm-8 or 8xH100"
    hint = f"{written}; empty: {entry.default_cluster}"
    yield Field("cluster", "Cluster", hint=hint, suggestions=_cluster_names(entry.name))
    if "gpus" in typical:
        yield Field("gpus", "GPUs", hint="so many of the system that Cluster names, in place of a number there")
    yield from _chosen("cluster", uploads)
    yield Field("cluster_file", "or a cluster in TOML", Kind.FILE, "one file")
    if "mode" in typical:
        modes = (("inference", "inference"), ("training", "training"))
        yield Field("mode", "Mode", Kind.CHOICE, choices=modes)


def _chosen(what: str, uploads: Mapping[str, Choices]) -> Iterator[Field]:
    """The field in which one of the uploads is chosen; none where there are none."""
    if uploads.get(what):
        label = "or an uploaded one" if what in ("model", "cluster") else f"or an uploaded {what}"
        yield Field(f"{what}_upload", label, Kind.CHOICE, choices=(("", "none"), *uploads[what]))


@cache
def _cluster_names(target: str) -> tuple[str, ...]:
    if target == systems.TARGET:
        try:
            nodes = map(systems.system_named, systems.system_names())
            return tuple(f"{each.name}-{each.n_gpus_per_node}" for each in nodes)
        except MissingExtra:  # a worker may have it
            return (TARGETS[target].default_cluster,)
    names = {TARGETS[target].default_cluster: None}  # the default first, and once
    for name, path in builtin_clusters().items():
        if target_of_file(path) == target:
            names[name] = None
    return tuple(names)


def _varying(entry: NamedTarget, uploads: Mapping[str, Choices]) -> FieldGroup:
    """The knobs of a target, and the options that only it has; options of a machine are no client's."""
    unused = unused_options(entry)
    # Targets may have knobs of their own by one name; of several sessions with one name the first says what it is.
    own: dict[str, Knob] = {}
    for session in reversed(entry.sessions):
        own |= {knob.name: knob for knob in session.knobs}
    shown: list[Field] = []
    for knob in KNOBS:
        if knob.name not in unused and (knob.name in own or knob.name != "precision"):
            shown.append(_knob_field(own.get(knob.name, knob), entry))
    if "precision" not in own:
        choices = {"": f"that of the target, {entry.default_precision}"}
        choices |= {str(precision): str(precision) for precision in entry.precisions}
        shown.append(Field("precision", "Precision", Kind.CHOICE, choices=tuple(choices.items())))
    for option in entry.options:
        if not option.help or is_of_machine(option):
            continue
        if option.name in FILE_OPTIONS:  # one field uploads the file, the other chooses an earlier upload
            label = f"{option.name.capitalize()}, a file ({option.name})"
            shown.append(Field(f"{option.name}_file", label, Kind.FILE, _as_names(option.help)))
            shown += _chosen(option.name, uploads)
        else:
            shown.append(_option_field(option))
    typical = typical_options(entry)
    return FieldGroup(
        "What may vary",
        tuple(field for field in shown if field.name in typical),
        tuple(field for field in shown if field.name not in typical),
    )


def _knob_field(knob: Knob, entry: NamedTarget) -> Field:
    """The field for values of a knob; the help of the knob is the label, or where it is long the hint."""
    text = knob.help
    if entry.serves_decoders:
        text = _OF_ENGINES.get(knob.name, text)
    label = text
    hint = f"empty: {knob.default_help[1]}"
    example = knob.metavar
    if "," in example or "|" in example or any(map(str.isdigit, example)):  # else it is a name, as of a unit
        hint = f"for example {example}; {hint}"
    if len(text) > _LONG:
        label = knob.label or knob.name.replace("_", " ")
        hint = f"{text}; {hint}"
    return Field(knob.name, f"{label[0].upper()}{label[1:]} ({knob.name})", hint=_as_names(hint))


def _option_field(option: TargetOption) -> Field:
    label = f"{option.name.replace('_', ' ').capitalize()} ({option.name})"
    if option.kind is bool:
        return Field(option.name, label, Kind.CHECKBOX, _as_names(option.help))
    if option.choices:
        choices = {"": "the default"} | {str(each): str(each) for each in option.choices}
        return Field(option.name, label, Kind.CHOICE, _as_names(option.help), choices=tuple(choices.items()))
    return Field(option.name, label, hint=_as_names(option.help))


def _as_names(text: str) -> str:
    """A text about options with the names of fields.

    >>> _as_names("as --n-ipu, or more")
    'as n_ipu, or more'
    """
    return re.sub(r"--([a-z][a-z-]*)", lambda match: match[1].replace("-", "_"), text)


def _objective(entry: NamedTarget) -> Iterator[Field]:
    yield Field("objective", "Objective", Kind.CHOICE, choices=tuple((each, each) for each in _OBJECTIVES))
    typical = typical_options(entry)
    if "max_ttft_ms" in typical:
        yield Field("max_ttft_ms", "TTFT at most, ms", hint="time to the first token of an answer; empty: no bound")
        yield Field("max_tpot_ms", "TPOT at most, ms", hint="time between tokens of an answer; empty: no bound")
    bound = "tpot < 50ms" if entry.serves_decoders else "latency_s <= 0.002"
    yield Field("constraints", "Bounds", Kind.LINES, f"one a line, for example {bound}")


def _budget(entry: NamedTarget) -> Iterator[Field]:
    yield Field("time_budget", "Seconds", hint="after which nothing further is tried; empty: no bound")
    if entry.serves_decoders:
        hint = "so many of the best are started and measured; needs a worker with --launch; empty: forecasts alone"
        yield Field("measure", "Measured on engines", hint=hint)
    else:
        yield Field("measurements", "Measurements", hint="at most")
    yield Field("trials", "Trials", hint="at most")
    yield Field("priority", "Priority", hint="-100 to 100, among your own searches; empty: 0")
    yield Field("labels", "Labels of its worker", hint="for example gpu=h100")
    yield Field("shared", "All users may see it", Kind.CHECKBOX)
    if not entry.serves_decoders:
        yield Field("share_weights", "and export it, with the weights of an uploaded model", Kind.CHECKBOX)


def _names() -> Iterator[str]:
    for entry in TARGETS.values():
        for group in search_fields(entry):
            for field in group.every:
                yield field.name


FIELDS = tuple(dict.fromkeys(("target", *_names(), *CHOSEN)))
"""The names of all fields, for all targets."""
