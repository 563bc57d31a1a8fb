"""The form that starts a search, `start_page`; what it sends is the JSON of `POST /v1/searches`, `submission_of`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from autoauto.records.errors import BadInput
from autoauto.records.knob import Knob
from autoauto.report.style import tag, words
from autoauto.server.call import Answer, Call, Handler, Service
from autoauto.server.pages.forms import Field, Kind, Mistake, button, fields, form, mistake_in, summary
from autoauto.server.pages.frame import card, html, page
from autoauto.server.pages.multipart import Form, read_form
from autoauto.server.pages.search_fields import CHOSEN, FILES, LIMITS, SWITCHES, FieldGroup, search_fields
from autoauto.server.pages.uploads import upload_choices
from autoauto.server.store.models import store_model
from autoauto.space.table import TABLE
from autoauto.targets.registry import DEFAULT_TARGET, TARGETS
from autoauto.targets.target import NamedTarget

PATH = "/new"


def start_page(service: Service, call: Call) -> Answer:
    """The form that starts a search."""
    return html(_page(service, call, {"target": call.query["target"]}))


def starting(submit: Handler) -> Handler:
    """Make the handler of the form, which calls the handler of submissions with the JSON of a submission."""

    def start_by_page(service: Service, call: Call) -> Answer:
        """Start a search."""
        assert call.file is not None
        given = read_form(call.file)
        values = dict(given.values)
        try:
            for chosen, upload in _uploads(service, call, given):
                values[chosen] = upload  # one by one: the form shows it also where a later file is refused
            body = msgspec.json.encode(submission_of(_with_chosen(values)))
            search_id = submit(service, call._replace(body=body, file=None)).content["id"]
        except BadInput as error:
            return html(_page(service, call, values, str(error)), HTTPStatus.BAD_REQUEST)
        finally:
            for file in given.files.values():
                file.content.close()
        return Answer(303, None, f"/searches/{search_id}")

    return start_by_page


def _uploads(service: Service, call: Call, given: Form) -> Iterator[tuple[str, str]]:
    """Store the files of a form; yields the field by which each is chosen, as an earlier upload is, and its value."""
    for name, what in FILES.items():
        if name not in given.files:
            continue
        if given.values.get(what, "").strip():
            raise BadInput(f"{what} is a name or a file, got both; leave one out")
        file = given.files[name]
        stored = store_model(service.database, call.user, file.content, file.name, service.upload_quota_bytes)
        yield f"{what}_upload", f"sha256:{stored.digest}"


def _with_chosen(values: Mapping[str, str]) -> dict[str, str]:
    """The values with uploads that were chosen in place of names."""
    named = {name: text for name, text in values.items() if name not in CHOSEN}
    for field, what in CHOSEN.items():
        if not values.get(field):
            continue
        if named.get(what, "").strip():
            raise BadInput(f"{what} is a name or an uploaded file, got both; leave one out")
        named[what] = values[field]
    return named


def submission_of(values: Mapping[str, str]) -> dict[str, Any]:
    """The submission, as `POST /v1/searches` takes it, of what was written in the form; empty fields are left out.

    >>> submission_of({"model": "resnet50", "n_ipu": "1, 2", "batch_size": "1:8", "trials": "9", "priority": ""})
    {'model': 'resnet50', 'space': {'n_ipu': [1, 2], 'batch_size': {'from': 1, 'to': 8}}, 'limits': {'trials': 9}}

    Raises:
        BadInput: the further options are no TOML, or have an option a second time.
    """
    written = {name: text.strip() for name, text in values.items() if text.strip()}
    try:
        further = tomllib.loads(written.pop("further", ""))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"further options must be lines in TOML, as in a search file: {error}") from error
    if "knobs" in further:
        further["space"] = further.pop("knobs")
    space = {name: _values(TABLE[name], written.pop(name)) for name in TABLE if name in written}
    limits = {name: _scalar(written.pop(name)) for name in LIMITS if name in written}
    given: dict[str, Any] = {name: _option(name, text) for name, text in written.items()}
    if space:
        given["space"] = space
    if limits:
        given["limits"] = limits
    return _joined(given, further)


_OPTIONS = {option.name: option for entry in TARGETS.values() for option in entry.options}
_NUMBERS = ("time_budget", "priority", "gpus", "measure", "max_ttft_ms", "max_tpot_ms")


def _option(name: str, text: str) -> object:
    option = _OPTIONS.get(name)
    if name == "constraints":
        return [line.strip() for line in text.splitlines() if line.strip()]
    if name == "objective" and "," in text:
        return [part.strip() for part in text.split(",")]
    if name == "labels":
        pairs = [part.partition("=") for part in text.split(",")]
        return {key.strip(): value.strip() for key, _, value in pairs}
    if name in SWITCHES or (option and option.kind is bool):
        return True
    is_number = name in _NUMBERS or (option and option.kind in (int, float))
    return _scalar(text) if is_number else text


def _values(knob: Knob, text: str) -> object:
    """Values of a knob: a range, or a list; of a switch on and off, as options have them.

    >>> size, switch = TABLE["batch_size"], TABLE["stage_replicas"]
    >>> _values(size, "1:8"), _values(size, "2, 4"), _values(switch, "on,off")
    ({'from': 1, 'to': 8}, [2, 4], [True, False])
    """
    if knob.domain.kind is bool:
        switch = {"on": True, "off": False}
        return [switch.get(part, _scalar(part)) for part in map(str.strip, text.split(","))]
    first, colon, last = (part.strip() for part in text.partition(":"))
    if colon:
        return {"from": _scalar(first), "to": _scalar(last)}
    return [_scalar(part.strip()) for part in text.split(",")]


def _scalar(text: str) -> object:
    if re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", text, re.ASCII | re.IGNORECASE):
        return float(text)
    return {"true": True, "false": False}.get(text, text)


def _joined(given: dict[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    """Add the further options to the fields of the form; tables are merged."""
    for name, value in further.items():
        both = isinstance(value, Mapping) and isinstance(given.get(name), Mapping)
        if name in given and not both:
            raise BadInput(f"an option is given once, got {name!r:.60} in the further options too; leave one out")
        given[name] = _joined(given[name], value) if both else value
    return given


def _page(service: Service, call: Call, values: Mapping[str, str], error: str = "") -> str:
    name = values.get("target") or DEFAULT_TARGET
    entry = TARGETS[name if name in TARGETS else DEFAULT_TARGET]
    groups = search_fields(entry, upload_choices(service.database, call.user))
    written = [field for group in groups for field in group.every if field.kind is not Kind.FILE]
    shown = re.sub(r"^(?:space\.)?(\w+): (?=\1\b)", "", error)  # the field is named once
    mistake = mistake_in(written, shown) if error else None
    of_target = fields([Field("target", "", Kind.HIDDEN)], {"target": entry.name})
    sets = "".join(_fieldset(group, values, mistake) for group in groups)
    actions = tag("div", button("Start the search", is_main=True), class_="actions")
    whole = form(PATH, of_target, sets, actions, encoding="multipart/form-data", name="Start a search")
    content = tag("section", card(_targets(entry), whole))
    facts = ("an equal search that is known gives its answer at once",)
    return page(call.user, "New search", facts, summary(mistake), content, here=PATH)


def _targets(chosen: NamedTarget) -> str:
    links = ""
    for entry in TARGETS.values():
        current = "page" if entry is chosen else None
        link = tag("a", words(entry.name), href=f"{PATH}?target={quote(entry.name)}", aria_current=current)
        links += tag("li", link, f" {words(entry.summary)}")
    return tag("div", tag("ul", links), role="navigation", aria_label="Target", class_="targets")


def _fieldset(group: FieldGroup, values: Mapping[str, str], mistake: Mistake | None) -> str:
    """Fields below their title; those that a click shows are open where something is written in one, or is wrong."""
    shown = fields(group.typical, values, mistake)
    if group.others:
        wrong = mistake.name if mistake else ""
        is_open = any(values.get(field.name) or field.name == wrong for field in group.others)
        title = tag("summary", words(f"{len(group.others)} further"))
        inner = tag("div", fields(group.others, values, mistake), class_="fields")
        shown += tag("details", title, inner, open="open" if is_open else None)
    return tag("fieldset", tag("legend", words(group.title)), shown)
