"""The pages of a server: who may read which."""

from __future__ import annotations

import pytest

from autoauto.server.pages.session import check_same_site, path_after_login, token_in_cookie
from autoauto.server.store.searches import Forbidden


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({"Host": "a.example"}, True),
        ({"Host": "a.example", "Origin": "http://a.example"}, True),
        ({"Host": "a.example", "Origin": "http://b.example"}, False),
        ({"Host": "a.example", "Origin": "null"}, False),
        ({"Host": "proxied", "Origin": "https://a.example", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Host": "a.example", "Origin": "http://a.example", "Sec-Fetch-Site": "same-site"}, False),
        ({"Host": "a.example", "Sec-Fetch-Site": "cross-site"}, False),
    ],
)
def test_what_another_site_sends_is_refused(headers: dict[str, str], is_own: bool) -> None:
    check_same_site("GET", headers)
    if is_own:
        check_same_site("POST", headers)
    else:
        with pytest.raises(Forbidden, match="a page of this server"):
            check_same_site("POST", headers)


@pytest.mark.parametrize("cookie", ["", "other=1", "autoauto_token", "\x00;;=,", 'autoauto_token="'])
def test_a_cookie_without_a_token_is_none(cookie: str) -> None:
    assert token_in_cookie({"Cookie": cookie}) in ("", '"')
    assert token_in_cookie({"Cookie": "a=1; autoauto_token=x-1; b=2"}) == "x-1"


@pytest.mark.parametrize("wanted", ["//evil.example", "/\\evil.example", "http://evil.example", "", "/a\r\nb", "x"])
def test_a_login_leads_nowhere_else(wanted: str) -> None:
    assert path_after_login(wanted) == "/"
