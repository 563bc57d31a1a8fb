"""Forms as data, `Field`, and their markup: `fields`, `form`, `button`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from html import escape
from typing import NamedTuple
from urllib.parse import parse_qsl

from autoauto.records.errors import BadInput
from autoauto.report.style import tag, words

MAX_FIELDS = 100


class Kind(StrEnum):
    """The kinds of controls, by their names in HTML."""

    TEXT = "text"
    PASSWORD = "password"
    FILE = "file"
    CHECKBOX = "checkbox"
    HIDDEN = "hidden"
    LINES = "textarea"
    CHOICE = "select"


class Field(NamedTuple):
    """A field of a form.

    Attributes:
        choices: of which one is chosen: a value and how it is shown.
        autocomplete: what a browser may fill in, as HTML names it.
        suggestions: what it offers; something else may be written too.
    """

    name: str
    label: str
    kind: Kind = Kind.TEXT
    hint: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    autocomplete: str | None = "off"
    suggestions: tuple[str, ...] = ()


class Mistake(NamedTuple):
    """An error in a form, and the name of its field; empty where it is about no single field."""

    text: str
    name: str = ""


def form_values(body: bytes) -> dict[str, str]:
    """The values of a form that was sent as application/x-www-form-urlencoded; raises BadInput."""
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise BadInput(f"a form must be sent as a browser sends it: {error}") from error
    return unique(pairs)


def unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Fields by their names.

    Raises:
        BadInput: one is there twice, or has a null character.
    """
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values or "\0" in value:
            raise BadInput(f"a field of a form is sent once, without null characters, got {name!r:.60}; send one")
        values[name] = value
    return values


def mistake_in(form_fields: Iterable[Field], text: str) -> Mistake:
    """The field that an error is about: the one that it names first, as a key or as an option.

    >>> mistake_in([Field("batch_size", "batch size")], "space.batch_size: batch_size must be above 0").name
    'batch_size'
    """
    starts = []
    for each in form_fields:
        named = rf"(?<![\w-])(--)?{each.name.replace('_', '[_-]')}(?![\w-])"
        match = re.search(named, text)
        if match:
            starts.append((match.start(), each.name))
    if not starts:
        return Mistake(text)
    _, name = min(starts)
    return Mistake(text, name)


def form(action: str, *content: str, method: str = "post", encoding: str | None = None, name: str = "") -> str:
    """A form; `name` says what it does to readers of screens where no heading does. One that only reads is a row."""
    class_ = "row" if method == "get" else None
    return tag("form", *content, action=action, method=method, enctype=encoding, aria_label=name or None, class_=class_)


def button(name: str, *, is_main: bool = False) -> str:
    """A button that sends its form."""
    return tag("button", words(name), type="submit", class_="main" if is_main else None)


def summary(mistake: Mistake | None) -> str:
    """The error above a form, with a link to its field."""
    if mistake is None:
        return ""
    text = words(mistake.text)
    linked = tag("a", text, href=f"#{mistake.name}") if mistake.name else text
    return tag("p", linked, class_="error", role="alert")


def fields(form_fields: Iterable[Field], values: Mapping[str, str], mistake: Mistake | None = None) -> str:
    """Fields below each other with what was written in them, and what is wrong beside the field that it is about."""
    wrong = {mistake.name: mistake.text} if mistake else {}
    return "".join(_field(each, values.get(each.name, ""), wrong.get(each.name, "")) for each in form_fields)


def _field(field: Field, value: str, error: str) -> str:
    if field.kind is Kind.HIDDEN:
        return _control(field, value)
    about = []  # ids of the notes, by which readers of screens find them
    notes = ""
    for kind, text in (("error", error), ("hint", field.hint)):
        if text:
            about.append(f"{field.name}-{kind}")
            notes += tag("p", words(text), id=about[-1], class_=kind)
    label = tag("label", words(field.label), for_=field.name)
    control = _control(field, value, " ".join(about) or None, is_wrong=bool(error))
    parts = (control, label) if field.kind is Kind.CHECKBOX else (label, control)
    return tag("div", *parts, notes, class_=f"field {field.kind}")


def _control(field: Field, value: str, about: str | None = None, *, is_wrong: bool = False) -> str:
    common: dict[str, object] = {
        "id": field.name,
        "name_": field.name,
        "autocomplete": field.autocomplete,
        "aria_describedby": about,
        "aria_invalid": "true" if is_wrong else None,
    }
    if field.kind is Kind.LINES:
        # the first line break after the tag is not part of its text
        return tag("textarea", "\n" + escape(value), rows=4, spellcheck="false", **common)
    if field.kind is Kind.CHOICE:
        options = ""
        for each, shown in field.choices:
            selected = "selected" if each == value else None
            options += tag("option", words(shown), value=each, selected=selected)
        return tag("select", options, **common)
    if field.kind is Kind.CHECKBOX:
        return _input(type=field.kind, value="on", checked="checked" if value else None, **common)
    written = None if field.kind in (Kind.FILE, Kind.PASSWORD) else value  # a browser sends no file by itself
    if not field.suggestions:
        return _input(type=field.kind, value=written, spellcheck="false", **common)
    listed = f"{field.name}-known"
    known = (tag("option", value=each) for each in field.suggestions)
    control = _input(type=field.kind, value=written, spellcheck="false", list=listed, **common)
    return control + tag("datalist", *known, id=listed)


def _input(**attributes: object) -> str:
    return tag("input", **attributes).removesuffix("</input>")
