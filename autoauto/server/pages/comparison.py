"""Two searches side by side, `comparison_page`: what each gave, which knobs differ, what was asked for otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autoauto.report.html import section, table_section
from autoauto.report.style import difference_percent, format_difference, format_value, tag
from autoauto.report.tables.table import Column, Table, Value
from autoauto.server.call import Answer, Call, Service
from autoauto.server.pages.asked import asked_texts
from autoauto.server.pages.forms import Field, Kind, button, fields, form
from autoauto.server.pages.frame import html, page
from autoauto.server.pages.listing import moment_text, name_of
from autoauto.server.store import searches
from autoauto.server.store.asked import names_of, read_submission
from autoauto.space.numbers import NUMBERS, TrialNumber
from autoauto.space.table import TABLE

PATH = "/compare"
N_OFFERED = 200
_TITLES = {"samples_per_s": "samples/s", "estimated_samples_per_s": "samples/s, estimated", "latency_s": "latency"}


def comparison_page(service: Service, call: Call) -> Answer:
    """Two searches, of those that a user may see."""
    chosen = {name: search_id for name in ("search", "other") if (search_id := call.query.get(name))}
    offered = searches.list_searches(service.database, call.user, limit=N_OFFERED).searches
    pair = [searches.read_search(service.database, call.user, search_id) for search_id in chosen.values()]
    card = tag("section", tag("div", _choice(offered, chosen), class_="card"))
    tables = _tables(service, *pair) if len(pair) == 2 else ""
    named = zip(("first", "second"), pair, strict=False)
    facts = [f"{which}: {name_of(search)} ({search['id'][:6]})" for which, search in named]
    return html(page(call.user, "Compare two searches", facts, card, tables, here=PATH))


def _choice(offered: list[dict[str, Any]], chosen: Mapping[str, str]) -> str:
    names = {each: each for each in chosen.values()}  # also where it is older than those on offer
    names |= {search["id"]: f"{name_of(search)}, {moment_text(search['created'])}" for search in offered}
    known = (("", "choose one"), *names.items())
    labels = {"search": "First search", "other": "Second search"}
    selects = (Field(name, label, Kind.CHOICE, choices=known) for name, label in labels.items())
    return form(PATH, fields(selects, chosen), button("Compare"), method="get", name="Searches to compare")


def _tables(service: Service, first: dict[str, Any], second: dict[str, Any]) -> str:
    pair = first, second
    knobs = [{name: str(value) for name in TABLE if (value := _best(each).get(name)) is not None} for each in pair]
    asked = [_asked(service, each) for each in pair]
    results = _table("What each gave", _results(*pair), "difference")
    differing = _table("Knobs of the best that differ", _different(*knobs)) if all(knobs) else ""
    return results + differing + _table("What was asked for otherwise", _different(*asked))


def _asked(service: Service, search: Mapping[str, Any]) -> dict[str, str]:
    submission = read_submission(service.database, search["id"])
    return asked_texts(submission, names_of(search, submission))


def _best(search: Mapping[str, Any]) -> Mapping[str, Any]:
    """The best of a search; of several objectives the best by the first; empty where there is none yet."""
    front = (search["answer"] or {}).get("front") or [{}]
    best: Mapping[str, Any] = search["best"] or front[0]
    return best


def _table(title: str, rows: Iterable[tuple[Value, ...]], *heads: str) -> str:
    columns = tuple(map(Column, ("what", "first", "second", *heads)))
    table, name = Table(title, columns, tuple(rows)), title.lower().replace(" ", "-")
    if not table.rows:
        return section(title, tag("p", "Nothing: it is the same."), name)
    return table_section(table, name)


def _results(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[tuple[Value, ...]]:
    """What the best of both gave, and how much more the second one gave."""
    bests = _best(first), _best(second)
    yield "state", first["state"], second["state"], ""
    yield "origin of its numbers", *((each["progress"] or {}).get("origin") for each in (first, second)), ""
    for number in NUMBERS:
        values = [best.get(number.name) for best in bests]
        if (title := number.title or _TITLES.get(number.name)) and values != [None, None]:
            shown = [None if value is None else _text(number, value) for value in values]
            yield title, *shown, _difference(*values)
    yield "devices", *(str(best.get("n_devices", "-")) for best in bests), ""
    yield "trials", *(f"{each['n_trials']:,}" for each in (first, second)), ""
    yield "work", *(f"{each['used_s']:,.1f} s" for each in (first, second)), ""


def _text(number: TrialNumber, value: float) -> str:
    return number.text(value) if number.title else format_value(number.name, value)


def _difference(first: float | None, second: float | None) -> str:
    """How much more the second is, in percent of the first."""
    return "" if first is None or second is None else format_difference(difference_percent(second, first))


def _different(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[tuple[Value, ...]]:
    for name in dict.fromkeys((*first, *second)):
        if first.get(name) != second.get(name):
            yield name, first.get(name), second.get(name)
