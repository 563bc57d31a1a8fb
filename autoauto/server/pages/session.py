"""Who uses the pages: a token typed once, which the browser keeps in a cookie that no script reads.

Another site must not act for whoever is logged in here. The cookie is never sent with its requests (SameSite=Strict),
and `check_same_site` refuses what a page of another site sends, also where the server is open to its machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

from autoauto.server.store.searches import Forbidden

COOKIE = "autoauto_token"
LOGIN = "/login"
_READS = ("GET", "HEAD")


def token_in_cookie(headers: Mapping[str, str]) -> str:
    """The token that a browser keeps; empty without one."""
    try:
        morsel = SimpleCookie(headers.get("Cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def set_cookie(token: str, by_tls: bool) -> str:
    """The value of Set-Cookie that keeps a token until the browser ends; an empty one is forgotten.

    Args:
        by_tls: whether the browser has come by TLS; then it sends the cookie by TLS only.
    """
    ends = "" if token else "; Max-Age=0"
    return f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if by_tls else ''}{ends}"


def server_url(scheme: str, headers: Mapping[str, str]) -> str:
    """The URL by which a browser has come, also to a proxy before this server.

    It makes cookies Secure and is part of commands to copy; who gives a wrong one gives it to himself.

    >>> server_url("http", {"Host": "a.example", "X-Forwarded-Proto": "https"})
    'https://a.example'
    """
    by_tls = "https" in (scheme, headers.get("X-Forwarded-Proto", "").lower())
    return f"{'https' if by_tls else 'http'}://{headers.get('Host', '')}"


def check_same_site(method: str, headers: Mapping[str, str]) -> None:
    """Raise Forbidden for a change that a page of another site asks for; programs say nothing of sites."""
    site, origin = headers.get("Sec-Fetch-Site"), headers.get("Origin")
    if site is not None:
        is_own = site in ("same-origin", "none")
    else:
        try:
            is_own = origin is None or urlsplit(origin).netloc == headers.get("Host")
        except ValueError:  # brackets that hold no address
            is_own = False
    if method not in _READS and not is_own:
        raise Forbidden(
            f"a form must be sent by a page of this server, got one of {origin or site!r:.100}; open the page here"
        )


def wants_page(headers: Mapping[str, str]) -> bool:
    """True if the client is a browser, which accepts HTML."""
    return "text/html" in headers.get("Accept", "")


def login_path(wanted: str) -> str:
    """The path at which a token is typed, before a path that needs one."""
    return f"{LOGIN}?next={quote(wanted, safe='')}"


def path_after_login(wanted: str) -> str:
    """The path after a login: the wanted one if it is of this server, else the list of searches.

    >>> path_after_login("/searches/ab?x=1"), path_after_login("//evil.example"), path_after_login("/\\\\evil.example")
    ('/searches/ab?x=1', '/', '/')
    """
    is_local = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isprintable()
    return wanted if is_local else "/"
