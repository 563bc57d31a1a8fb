"""The form that starts a search, `start_page`; what it sends is the JSON of `POST /v1/searches`, `submission_of`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import msgspec

from autoauto.graph.decoders.huggingface import bundled_names
from autoauto.graph.load import builtin_models
from autoauto.records.errors import BadInput
from autoauto.records.installation import DEFAULT_MODEL
from autoauto.report.style import tag, words
from autoauto.server.call import Answer, Call, Service
from autoauto.server.pages.forms import (
    Field,
    Kind,
    Mistake,
    button,
    fields,
    form,
    mistake_in,
    summary,
)
from autoauto.server.pages.frame import html, page
from autoauto.server.pages.multipart import Form, read_form
from autoauto.server.pages.uploads import upload_choices
from autoauto.server.store.models import store_model
from autoauto.space.objectives import Objective
from autoauto.targets.clusters import builtin_clusters
from autoauto.targets.registry import TARGETS

PATH = "/new"
Handler = Callable[[Service, Call], Answer]
Choices = tuple[tuple[str, str], ...]
_OBJECTIVES = (*map(str, Objective), f"{Objective.THROUGHPUT},{Objective.LATENCY}")
_SEVERAL = "one value, several with commas, or FROM:TO; empty: as the devices allow"
_FILES = {"model_file": "model", "cluster_file": "cluster"}
_KNOBS = ("n_ipu", "replicas", "batch_size", "memory_proportion", "precision")
_LIMITS = ("measurements", "trials")
_SWITCHES = ("shared", "share_weights")
_CHOSEN = {f"{what}_upload": what for what in _FILES.values()}
"""Fields in which an upload is chosen, by what it is."""


def _groups(uploads: Mapping[str, Choices] = MappingProxyType({})) -> tuple[tuple[str, tuple[Field, ...]], ...]:
    """The fields of the form, by what they are about; uploads of the user are by what they are."""
    models, clusters = (*builtin_models(), *bundled_names()), tuple(builtin_clusters())
    targets = tuple((name, f"{name}: {entry.summary}") for name, entry in TARGETS.items())
    return (
        (
            "Model and cluster",
            (
                Field(
                    "model",
                    "Model",
                    hint=f"a name, offered while you write; empty: {DEFAULT_MODEL}",
                    suggestions=models,
                ),
                *_chosen("model", uploads),
                Field("model_file", "or an ONNX file", Kind.FILE, "one file, with its weights"),
                Field("target", "Target", Kind.CHOICE, choices=targets),
                Field(
                    "cluster",
                    "Cluster",
                    hint="a name, for example bow-pod16; empty: that of the target",
                    suggestions=clusters,
                ),
                *_chosen("cluster", uploads),
                Field("cluster_file", "or a cluster in TOML", Kind.FILE, "as `autoauto clusters --detect` writes it"),
                Field("mode", "Mode", Kind.CHOICE, choices=tuple((each,) * 2 for each in ("inference", "training"))),
            ),
        ),
        (
            "What may vary",
            (
                Field("n_ipu", "Devices in a pipeline (n_ipu)", hint=_SEVERAL),
                Field("replicas", "Pipelines side by side (replicas)", hint=_SEVERAL),
                Field("batch_size", "Samples in a micro-batch (batch_size)", hint=_SEVERAL),
                Field("memory_proportion", "Share of memory (memory_proportion)", hint="of IPUs, for example 0.3, 0.6"),
                Field("precision", "Precision", hint="for example fp16; empty: that of the target"),
            ),
        ),
        (
            "What is best",
            (
                Field("objective", "Objective", Kind.CHOICE, choices=tuple((each, each) for each in _OBJECTIVES)),
                Field("constraints", "Bounds", Kind.LINES, "one a line, for example latency_s <= 0.002"),
            ),
        ),
        (
            "Budget and queue",
            (
                Field("time_budget", "Seconds", hint="after which nothing further is tried; empty: no bound"),
                Field("measurements", "Measurements", hint="at most"),
                Field("trials", "Trials", hint="at most"),
                Field("priority", "Priority", hint="-100 to 100, among your own searches; empty: 0"),
                Field("labels", "Labels of its worker", hint="for example gpu=h100"),
                Field("shared", "All users may see it", Kind.CHECKBOX),
                Field("share_weights", "and export it, with the weights of an uploaded model", Kind.CHECKBOX),
            ),
        ),
        (
            "All else",
            (Field("further", "Further options", Kind.LINES, "lines of a search file in TOML; knobs under [knobs]"),),
        ),
    )


def _chosen(what: str, uploads: Mapping[str, Choices]) -> Iterator[Field]:
    """The field in which one of the uploads is chosen; none where there are none."""
    if choices := uploads.get(what):
        yield Field(f"{what}_upload", "or an uploaded one", Kind.CHOICE, choices=(("", "none"), *choices))


FIELDS = (*(field.name for _, some in _groups() for field in some), *_CHOSEN)
"""The names of all fields."""


def start_page(service: Service, call: Call) -> Answer:
    """The empty form."""
    return html(_page(service, call, {}))


def starting(submit: Handler) -> Handler:
    """What takes the form: it makes the JSON of a submission and gives it to the handler of submissions."""

    def start_by_page(service: Service, call: Call) -> Answer:
        assert call.file is not None
        given = read_form(call.file)
        values = dict(given.values)
        try:
            values |= _uploaded(service, call, given)
            body = msgspec.json.encode(submission_of(_with_chosen(values)))
            search_id = submit(service, call._replace(body=body, file=None)).content["id"]
        except BadInput as error:
            return html(_page(service, call, values, _mistake(str(error))), HTTPStatus.BAD_REQUEST)
        finally:
            for file in given.files.values():
                file.content.close()
        return Answer(303, None, f"/searches/{search_id}")

    return start_by_page


def _uploaded(service: Service, call: Call, given: Form) -> Iterator[tuple[str, str]]:
    """Keep the files of a form; each is chosen then, as an earlier upload is.

    Raises:
        BadInput: a name is given beside the file.
    """
    for name, what in _FILES.items():
        if file := given.files.get(name):
            if given.values.get(what, "").strip():
                raise BadInput(f"{what} is a name or a file, got both; leave one out")
            quota_bytes = service.upload_quota_bytes
            stored = store_model(service.database, call.user, file.content, file.name, quota_bytes)
            yield f"{what}_upload", f"sha256:{stored.digest}"


def _with_chosen(values: Mapping[str, str]) -> dict[str, str]:
    """The values with uploads that were chosen in place of names.

    Raises:
        BadInput: a name is given beside one.
    """
    named = {name: text for name, text in values.items() if name not in _CHOSEN}
    for field, what in _CHOSEN.items():
        if chosen := values.get(field):
            if named.get(what, "").strip():
                raise BadInput(f"{what} is a name or an uploaded file, got both; leave one out")
            named[what] = chosen
    return named


def submission_of(values: Mapping[str, str]) -> dict[str, Any]:
    """The submission, as `POST /v1/searches` takes it, of what was written in the form; empty fields are left out.

    >>> submission_of({"model": "resnet50", "n_ipu": "1, 2", "batch_size": "1:8", "trials": "9", "priority": ""})
    {'model': 'resnet50', 'space': {'n_ipu': [1, 2], 'batch_size': {'from': 1, 'to': 8}}, 'limits': {'trials': 9}}

    Raises:
        BadInput: the further options are no TOML, or have an option a second time.
    """
    written = {name: text.strip() for name, text in values.items() if text.strip()}
    further = _further(written.pop("further", ""))
    space = {name: _values(written.pop(name)) for name in _KNOBS if name in written}
    limits = {name: _scalar(written.pop(name)) for name in _LIMITS if name in written}
    given: dict[str, Any] = {name: _option(name, text) for name, text in written.items()}
    given |= {name: some for name, some in (("space", space), ("limits", limits)) if some}
    return _joined(given, further)


def _option(name: str, text: str) -> object:
    if name == "constraints":
        return [line.strip() for line in text.splitlines() if line.strip()]
    if name == "objective" and "," in text:
        return [part.strip() for part in text.split(",")]
    if name == "labels":
        pairs = [part.partition("=") for part in text.split(",")]
        return {key.strip(): value.strip() for key, _, value in pairs}
    if name in _SWITCHES:
        return True
    return _scalar(text) if name in ("time_budget", "priority") else text


def _values(text: str) -> object:
    """Values of a knob: a range, or a list.

    >>> _values("1:8"), _values("0.3, 0.6"), _values("fp16")
    ({'from': 1, 'to': 8}, [0.3, 0.6], ['fp16'])
    """
    first, colon, last = (part.strip() for part in text.partition(":"))
    if colon:
        return {"from": _scalar(first), "to": _scalar(last)}
    return [_scalar(part.strip()) for part in text.split(",")]


def _scalar(text: str) -> object:
    """A number or a switch where the text is one."""
    if re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", text, re.ASCII | re.IGNORECASE):
        return float(text)
    return {"true": True, "false": False}.get(text, text)


def _further(text: str) -> dict[str, Any]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"further options must be lines in TOML, as in a search file: {error}") from error
    if "knobs" in table:
        table["space"] = table.pop("knobs")
    return table


def _joined(given: dict[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    """Both together.

    Raises:
        BadInput: an option is in both.
    """
    for name, value in further.items():
        both = isinstance(value, Mapping) and isinstance(given.get(name), Mapping)
        if name in given and not both:
            raise BadInput(f"an option is given once, got {name!r:.60} in the further options too; leave one out")
        given[name] = _joined(given[name], value) if both else value
    return given


def _mistake(text: str) -> Mistake:
    every = [field for _, some in _groups() for field in some if field.name not in _FILES]
    return mistake_in(every, text)


def _page(service: Service, call: Call, values: Mapping[str, str], mistake: Mistake | None = None) -> str:
    uploads = upload_choices(service.database, call.user)
    groups = "".join(
        tag("fieldset", tag("legend", words(name)), fields(some, values, mistake)) for name, some in _groups(uploads)
    )
    actions = tag("div", button("Start the search", is_main=True), class_="actions")
    whole = form(PATH, groups, actions, encoding="multipart/form-data", name="Start a search")
    card = tag("section", tag("div", whole, class_="card"))
    facts = ("an equal search that is known gives its answer at once",)
    return page(call.user, "New search", facts, summary(mistake), card, here=PATH)
