"""The list of searches, `searches_page`, and what it says of each: `name_of`, `best_text`, `moment_text`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from autoauto.records.units import format_number
from autoauto.report.style import shorten, tag, words
from autoauto.report.tables.table import Column, Table, TableCell, html_table
from autoauto.report.wording import counted
from autoauto.server.call import Answer, Call, Service
from autoauto.server.pages.forms import Field, Kind, button, fields, form
from autoauto.server.pages.frame import card, html, page
from autoauto.server.store import searches
from autoauto.server.store.searches import SearchState

_STATES = {"": "all"} | {str(state): str(state) for state in SearchState}
_FILTERS = (Field("state", "State", Kind.CHOICE, choices=tuple(_STATES.items())), Field("owner", "Owner"))
_COLUMNS = tuple(map(Column, ("search", "id", "objective", "state", "owner", "best so far", "asked for")))
_NAME_WIDTH = 40
ID_WIDTH = 6
"""Characters of an id that tell searches of one name apart."""


def searches_page(service: Service, call: Call) -> Answer:
    """The searches that a user may see, the newest first."""
    given = {}
    for name in ("state", "owner"):
        if call.query[name]:
            given[name] = call.query[name]
    state = SearchState(given["state"]) if "state" in given else None
    limit = call.query["limit"]
    shown = searches.list_searches(service.database, call.user, state, given.get("owner"), limit, call.query["before"])
    rows = tuple(map(_row, shown.searches))
    filters = form("/", fields(_FILTERS, given), button("Filter"), method="get", name="Filter searches")
    if rows:
        listed = html_table(Table(counted(len(rows), "search", "es"), _COLUMNS, rows))
    else:
        listed = tag("p", words("No search is like that." if given else "There is no search yet."))
    if shown.before is not None:
        older = urlencode({**given, "before": shown.before, "limit": limit})
        listed += tag("p", tag("a", "Older searches", href=f"/?{older}"))
    content = filters + card(listed)
    return html(page(call.user, "Searches", ("the newest first",), tag("section", content, id="searches"), here="/"))


def _row(search: Mapping[str, Any]) -> tuple[TableCell | str | None, ...]:
    return (
        TableCell(name_of(search), link=f"/searches/{search['id']}"),
        search["id"][:ID_WIDTH],
        search["objective"],
        search["state"],
        search["owner"],
        best_text(search),
        moment_text(search["created"]),
    )


def name_of(search: Mapping[str, Any]) -> str:
    """The model on the cluster, as people call them.

    >>> name_of({"model_name": "net.onnx", "cluster_name": "c600", "target": "ipu"})
    'net.onnx on c600, ipu'
    >>> name_of({"model_name": "resnet50", "cluster_name": "host", "target": "host"})
    'resnet50 on host'
    """
    model, cluster = (shorten(search[part], _NAME_WIDTH) for part in ("model_name", "cluster_name"))
    target = "" if cluster == search["target"] else f", {search['target']}"
    return f"{model} on {cluster}{target}"


def best_text(search: Mapping[str, Any]) -> str | None:
    """The throughput of the best so far, and how it came about; None without one."""
    best = search["best"]
    if not best:
        return None
    unit = "tokens/s" if best.get("output_tokens") else "samples/s"
    devices = counted(best["n_devices"], "device")
    origin = (search["progress"] or {}).get("origin") or "of unknown origin"
    return f"{format_number(best['samples_per_s'])} {unit} on {devices}, {origin}"


def moment_text(moment_s: float | None) -> str:
    """A moment in seconds since 1970, as a date and a time.

    >>> moment_text(0.0)
    '1970-01-01 00:00 UTC'
    """
    return "-" if moment_s is None else f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m-%d %H:%M} UTC"
