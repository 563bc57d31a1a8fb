"""The frame of every page, `page`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from importlib.util import find_spec

from autoauto.report.html import SCRIPT, framed
from autoauto.report.style import tag, words
from autoauto.server.call import Answer
from autoauto.server.pages.forms import button, form
from autoauto.server.store.users import LOCAL, Role, User

STYLE_PATH, SCRIPT_PATH = "/assets/pages.css", "/assets/pages.js"
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "style-src-attr 'unsafe-inline'; img-src data:; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "same-origin",
}
"""A page loads and runs files of this server only. Bars of tables have their widths as attributes."""
REPORT_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    f"script-src 'sha256-{b64encode(sha256(SCRIPT.read_bytes()).digest()).decode()}'; "
    "frame-ancestors 'none'; base-uri 'none'",
}
"""A report has its style sheet and its script inside, and runs no other."""
_SECTIONS: tuple[tuple[str, str, Role], ...] = (
    ("Searches", "/", Role.READER),
    ("New search", "/new", Role.SUBMITTER),
    ("Uploads", "/uploads", Role.SUBMITTER),
    ("Compare", "/compare", Role.READER),
)
if find_spec("optuna_dashboard"):
    _SECTIONS = (*_SECTIONS, ("Dashboard", "/dashboard", Role.READER))


def page(
    user: User | None, title: str, facts: Iterable[str], *content: str, here: str = "", refresh_s: int | None = None
) -> str:
    """A page of HTML.

    Args:
        user: who reads it; None before the login.
        here: the path of its place in the navigation.
        refresh_s: after how long a browser without scripts loads it again; None for never.
    """
    head = f'<link rel="icon" href="data:,"><link rel="stylesheet" href="{STYLE_PATH}">'
    head += f'<script src="{SCRIPT_PATH}" defer></script>'
    if refresh_s is not None:
        head += tag("noscript", _refresh(refresh_s))
    above = tag("a", "To the content", href="#content", class_="skip") + _navigation(user, here)
    inner = tag("div", *content, id="content", tabindex="-1")
    return framed(f"{title} – autoauto", title, facts, inner, head=head, above=above)


def _navigation(user: User | None, here: str) -> str:
    if user is None:
        return tag("nav", tag("strong", "autoauto"), aria_label="autoauto")
    links = ""
    for name, path, role in _SECTIONS:
        if user.role.includes(role):
            current = "page" if path == here else None
            links += tag("li", tag("a", name, href=path, aria_current=current))
    who = tag("span", words(f"{user.name}, {user.role}"), class_="muted")
    leave = "" if user == LOCAL else form("/logout", button("Log out"))
    return tag("nav", tag("strong", "autoauto"), tag("ul", links), who, leave, aria_label="autoauto")


def card(*content: str) -> str:
    """A part of a page in a frame."""
    return tag("div", *content, class_="card")


def html(text: str, status: int = 200) -> Answer:
    """The answer that a page is."""
    return Answer(status, None, raw=(text.encode(), "text/html; charset=utf-8"), headers=PAGE_HEADERS)


def problem_page(status: int, title: str, detail: str, request_id: str) -> Answer:
    """The page of an error: what must hold, what was given, what to try."""
    about = card(tag("p", words(detail), class_="error"))
    back = tag("p", tag("a", "All searches", href="/"))
    return html(page(None, title, (f"{status}", f"request {request_id}"), tag("section", about), back), status)


def again_page(path: str) -> Answer:
    """A page that asks for a path again: a browser that came from another site sends its cookie only then."""
    link = tag("p", tag("a", "Go on", href=path))
    return html(page(None, "One moment", (), link).replace("</head>", f"{_refresh(0, path)}</head>", 1))


def _refresh(seconds: int, path: str = "") -> str:
    content = f"{seconds};url={path}" if path else seconds
    return tag("meta", http_equiv="refresh", content=content).removesuffix("</meta>")
