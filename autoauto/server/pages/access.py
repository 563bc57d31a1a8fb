"""The pages that need no login, and what they load: `login_page`, `login`, `logout`, `styles`, `scripts`."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from autoauto.report.charts.svg import STYLE
from autoauto.report.html import SCRIPT, section
from autoauto.report.style import tag
from autoauto.server.call import Answer, Call, Service
from autoauto.server.pages.forms import Field, Kind, Mistake, button, fields, form, form_values, summary
from autoauto.server.pages.frame import card, html, page
from autoauto.server.pages.session import LOGIN, path_after_login, set_cookie
from autoauto.server.store.users import user_of

_HERE = Path(__file__).parent

_HINT = "as `autoauto server token create NAME` prints it; this browser keeps it until it is closed, or you log out"
_FIELDS = (
    Field("token", "Token", Kind.PASSWORD, _HINT, autocomplete="current-password"),
    Field("next", "", Kind.HIDDEN),
)


def styles(service: Service, call: Call) -> Answer:
    """The style sheet of the pages."""
    own = STYLE.read_bytes() + (_HERE / "pages.css").read_bytes()  # of the report, and of forms
    return Answer(200, None, raw=(own, "text/css; charset=utf-8"))


def scripts(service: Service, call: Call) -> Answer:
    """The script of the pages."""
    own = SCRIPT.read_bytes() + (_HERE / "pages.js").read_bytes()  # of the report, and what refreshes a page
    return Answer(200, None, raw=(own, "text/javascript; charset=utf-8"))


def login_page(service: Service, call: Call) -> Answer:
    """The page with a form for a token."""
    return html(_login_form(call.query["next"] or ""))


def login(service: Service, call: Call) -> Answer:
    """Keep a token in the browser."""
    values = form_values(call.body)
    token = values.get("token", "").strip()
    wanted = values.get("next", "")
    if user_of(service.database, token) is None:
        text = f"a token must be in force, got {'another one' if token else 'none'}; ask an administrator for one"
        return html(_login_form(wanted, Mistake(text, "token")), HTTPStatus.BAD_REQUEST)
    return Answer(303, None, path_after_login(wanted), cookie=set_cookie(token, call.server.startswith("https:")))


def logout(service: Service, call: Call) -> Answer:
    """Forget the token that the browser keeps."""
    return Answer(303, None, LOGIN, cookie=set_cookie("", call.server.startswith("https:")))


def _login_form(wanted: str, mistake: Mistake | None = None) -> str:
    inner = fields(_FIELDS, {"next": wanted}, mistake) + tag("div", button("Log in", is_main=True), class_="actions")
    login_section = section("Log in", card(form(LOGIN, inner)), "login")
    return page(None, "Searches as a service", (), summary(mistake), login_section)
