"""Two searches side by side, `comparison_page`: what each gave, which knobs differ, what was asked for otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoauto.report.html import section, table_section
from autoauto.report.style import tag
from autoauto.report.tables.table import Table
from autoauto.report.tables.two_searches import ComparedSearch, comparison_tables
from autoauto.server.call import Answer, Call, Service
from autoauto.server.pages.forms import Field, Kind, button, fields, form
from autoauto.server.pages.frame import card, html, page
from autoauto.server.pages.listing import ID_WIDTH, best_text, moment_text, name_of
from autoauto.server.store import searches
from autoauto.server.store.asked import asked_texts, names_of, read_submission
from autoauto.server.store.tables import DatabaseAway
from autoauto.server.store.trials import summary_of

PATH = "/compare"
N_OFFERED = 200


def comparison_page(service: Service, call: Call) -> Answer:
    """Two searches side by side."""
    chosen = {}
    for name in ("search", "other"):
        if call.query.get(name):
            chosen[name] = call.query[name]
    offered = searches.list_searches(service.database, call.user, limit=N_OFFERED).entries
    pair = [searches.read_search(service.database, call.user, search_id) for search_id in chosen.values()]
    choice = tag("section", card(_choice(offered, chosen)))
    tables = ""
    if len(pair) == 2:
        for table in _tables(service, *pair):
            name = table.title.lower().replace(" ", "-")
            if table.rows:
                tables += table_section(table, name)
            else:
                tables += section(table.title, tag("p", "Nothing: it is the same."), name)
    facts = [f"{which}: {_distinct_name(search)}" for which, search in zip(("first", "second"), pair, strict=False)]
    return html(page(call.user, "Compare two searches", facts, choice, tables, here=PATH))


def _distinct_name(search: Mapping[str, Any]) -> str:
    """The name of a search with its id, date and owner, which differ between searches of one model and cluster."""
    owner = f", {search['owner']}" if search["owner"] else ""
    return f"{name_of(search)}, {search['id'][:ID_WIDTH]}, {moment_text(search['created'])}{owner}"


def _choice(offered: list[dict[str, Any]], chosen: Mapping[str, str]) -> str:
    names = {"": "choose one"}
    names |= {search_id: search_id for search_id in chosen.values()}  # also where it is older than those on offer
    names |= {search["id"]: _distinct_name(search) for search in offered}
    choices = tuple(names.items())
    selects = (
        Field("search", "First search", Kind.CHOICE, choices=choices),
        Field("other", "Second search", Kind.CHOICE, choices=choices),
    )
    return form(PATH, fields(selects, chosen), button("Compare"), method="get", name="Searches to compare")


def _tables(service: Service, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Table]:
    """The tables of both; where trials of one cannot be read, with the best so far as its worker has reported it."""
    try:
        return comparison_tables(*(_compared(service, each, reads_trials=True) for each in (first, second)))
    except DatabaseAway:
        raise
    except Exception:  # noqa: BLE001 (whatever lies in the database, the page shows all else)
        return comparison_tables(*(_compared(service, each, reads_trials=False) for each in (first, second)))


def _compared(service: Service, search: Mapping[str, Any], *, reads_trials: bool) -> ComparedSearch:
    submission = read_submission(service.database, search["id"])
    about = {
        "state": search["state"],
        "trials": f"{search['n_trials']:,}",
        "work": f"{search['used_s']:,.1f} s",
    }
    asked = asked_texts(submission, names_of(search, submission))
    summary = None
    if not reads_trials:
        about["best so far"] = best_text(search) or "-"
    elif search["n_trials"]:
        summary = summary_of(service.database.storage, search["id"])
    return ComparedSearch(summary, about, asked)
