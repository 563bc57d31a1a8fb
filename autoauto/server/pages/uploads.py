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
from autoauto.server.pages.frame import html, page
from autoauto.server.pages.listing import moment_text
from autoauto.server.store.models import delete_model, list_models, used_bytes
from autoauto.server.store.tables import ServiceDatabase
from autoauto.server.store.users import Role, User

PATH = "/uploads"
N_OFFERED = 200
_KINDS = {".toml": ("cluster",), ".npz": ("inputs",), **dict.fromkeys((".csv", ".gz", ".jsonl"), ("trace", "measured"))}
"""What a file may be, by the ending of its name; another is a model."""


def uploads_page(service: Service, call: Call) -> Answer:
    """The files that a user has uploaded, the newest first, each with a button that deletes it."""
    shown = list_models(service.database, call.user, call.query["limit"], call.query["before"])
    rows = (_row(call, each) for each in shown.models)
    heads = (tag("th", name, scope="col") for name in ("file", "size", "uploaded", "owner", "SHA-256", ""))
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    content = table if shown.models else tag("p", "Nothing is uploaded. A file is uploaded where a search is started.")
    older = urlencode({"before": shown.before, "limit": call.query["limit"]})
    more = "" if shown.before is None else tag("p", tag("a", "Older uploads", href=f"{PATH}?{older}"))
    used = format_bytes(used_bytes(service.database, call.user))
    facts = (f"you use {used} of {format_bytes(service.upload_quota_bytes)}", "nobody else may use your files")
    return html(page(call.user, "Uploads", facts, tag("section", tag("div", content, more, class_="card")), here=PATH))


def _row(call: Call, upload: Mapping[str, Any]) -> str:
    deletes = form(f"{PATH}/{upload['digest']}/delete", button("Delete"), name=f"Delete {upload['name']}")
    texts = upload["name"], format_bytes(upload["n_bytes"]), moment_text(upload["created"]), upload["owner"]
    digest = tag("td", tag("code", upload["digest"][:8], title=upload["digest"]))
    may_delete = call.user.role is Role.ADMIN or upload["owner"] == call.user.name
    return tag("tr", *(tag("td", words(text)) for text in texts), digest, tag("td", deletes if may_delete else ""))


def delete_by_page(service: Service, call: Call) -> Answer:
    """Forget a file, and show the others."""
    delete_model(service.database, call.user, call.digest)
    return Answer(303, None, PATH)


def upload_choices(database: ServiceDatabase, user: User) -> dict[str, tuple[tuple[str, str], ...]]:
    """The newest uploads of a user as choices of a form, by what they may be: "model", "cluster", or an option."""
    choices: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for each in list_models(database, user, N_OFFERED).models:
        shown = f"{each['name']}, {format_bytes(each['n_bytes'])}, {each['digest'][:8]}"
        for what in _KINDS.get(PurePath(each["name"]).suffix, ("model",)):
            choices[what].append((each["model"], shown))
    return {what: tuple(some) for what, some in choices.items()}
