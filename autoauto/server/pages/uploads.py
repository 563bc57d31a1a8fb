"""The files that a user has uploaded: their list, `uploads_page`, and what a form offers of them, `upload_choices`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import urlencode

from autoauto.records.units import format_bytes
from autoauto.report.style import tag, words
from autoauto.server.call import Answer, Call, Service
from autoauto.server.pages.forms import button, form
from autoauto.server.pages.frame import card, html, page
from autoauto.server.pages.listing import moment_text
from autoauto.server.store.models import delete_model, list_models, used_bytes
from autoauto.server.store.tables import ServiceDatabase
from autoauto.server.store.users import Role, User

PATH = "/uploads"
N_OFFERED = 200
_TABLES = ("trace", "measured")
_KINDS = {".toml": ("cluster",), ".npz": ("inputs",), ".csv": _TABLES, ".gz": _TABLES, ".jsonl": _TABLES}
"""What a file may be, by the ending of its name; another is a model."""


def uploads_page(service: Service, call: Call) -> Answer:
    """The files that you have uploaded."""
    shown = list_models(service.database, call.user, call.query["limit"], call.query["before"])
    if shown.entries:
        heads = (tag("th", name, scope="col") for name in ("file", "size", "uploaded", "owner", "SHA-256", ""))
        rows = (_row(call, each) for each in shown.entries)
        listed = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    else:
        listed = tag("p", "Nothing is uploaded. A file is uploaded where a search is started.")
    if shown.more is not None:
        older = urlencode({"before": shown.more, "limit": call.query["limit"]})
        listed += tag("p", tag("a", "Older uploads", href=f"{PATH}?{older}"))
    used = format_bytes(used_bytes(service.database, call.user))
    facts = (f"you use {used} of {format_bytes(service.upload_quota_bytes)}", "nobody else may use your files")
    return html(page(call.user, "Uploads", facts, tag("section", card(listed)), here=PATH))


def _row(call: Call, upload: Mapping[str, Any]) -> str:
    deletes = form(f"{PATH}/{upload['digest']}/delete", button("Delete"), name=f"Delete {upload['name']}")
    may_delete = call.user.role is Role.ADMIN or upload["owner"] == call.user.name
    cells = (
        words(upload["name"]),
        words(format_bytes(upload["n_bytes"])),
        words(moment_text(upload["created"])),
        words(upload["owner"]),
        tag("code", upload["digest"][:8], title=upload["digest"]),
        deletes if may_delete else "",
    )
    return tag("tr", *(tag("td", cell) for cell in cells))


def delete_by_page(service: Service, call: Call) -> Answer:
    """Forget a file, by its page."""
    delete_model(service.database, call.user, call.digest)
    return Answer(303, None, PATH)


def upload_choices(database: ServiceDatabase, user: User) -> dict[str, tuple[tuple[str, str], ...]]:
    """The newest uploads of a user as choices of a form, by what they may be: "model", "cluster", or an option."""
    choices: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for each in list_models(database, user, N_OFFERED).entries:
        shown = f"{each['name']}, {format_bytes(each['n_bytes'])}, {each['digest'][:8]}"
        for what in _KINDS.get(PurePath(each["name"]).suffix, ("model",)):
            choices[what].append((each["model"], shown))
    return {what: tuple(some) for what, some in choices.items()}
