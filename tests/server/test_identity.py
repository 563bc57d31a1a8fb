"""Who sends a request: tokens, and the header of a proxy, which counts only from an address that is trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import ip_network
from pathlib import Path

import pytest
from multidict import CIMultiDict

from autoauto.server.rest.identity import ServiceOptions, Unauthorised, UserProxy, sender_of
from autoauto.server.store.tables import ServiceDatabase
from autoauto.server.store.users import Role, User, create_token

HEADER = "X-Forwarded-User"
Sender = Callable[[CIMultiDict[str], str], User]


def sent(*headers: tuple[str, str]) -> CIMultiDict[str]:
    return CIMultiDict(headers)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    opened = ServiceDatabase(f"sqlite:///{tmp_path}/server.db")
    yield opened
    opened.close()


@pytest.fixture
def behind_a_proxy(database: ServiceDatabase) -> Sender:
    networks = (ip_network("10.0.0.0/24"), ip_network("127.0.0.1"))
    return partial(sender_of, database, ServiceOptions(proxy=UserProxy(HEADER, networks)))


def test_a_proxy_that_is_named_names_users(behind_a_proxy: Sender) -> None:
    for address in ("10.0.0.7", "127.0.0.1", "::ffff:10.0.0.7"):
        assert behind_a_proxy(sent((HEADER, "mary")), address) == ("mary", Role.SUBMITTER)


@pytest.mark.parametrize("address", ["10.0.1.7", "::1", "", "unix"])
def test_the_header_of_others_counts_for_nothing(behind_a_proxy: Sender, address: str) -> None:
    with pytest.raises(Unauthorised):
        behind_a_proxy(sent((HEADER, "mary")), address)


def test_a_header_counts_for_nothing_unless_it_was_said(database: ServiceDatabase) -> None:
    with pytest.raises(Unauthorised):
        sender_of(database, ServiceOptions(), sent((HEADER, "mary")), "127.0.0.1")


@pytest.mark.parametrize("name", ["", "mary smith", "mary\n", "x" * 100])
def test_a_header_that_names_nobody_is_refused(behind_a_proxy: Sender, name: str) -> None:
    with pytest.raises(Unauthorised, match="must be a user's name"):
        behind_a_proxy(sent((HEADER, name)), "10.0.0.7")


def test_a_header_that_comes_twice_is_refused(behind_a_proxy: Sender, database: ServiceDatabase) -> None:
    token = create_token(database, "root", Role.ADMIN)
    for name, value in ((HEADER, "mary"), ("Authorization", f"Bearer {token}")):
        with pytest.raises(Unauthorised, match="must come once"):
            behind_a_proxy(sent((name, value), (name.lower(), value)), "10.0.0.7")


def test_bytes_that_are_no_utf8_are_no_token(database: ServiceDatabase) -> None:
    with pytest.raises(Unauthorised):
        sender_of(database, ServiceOptions(), sent(("Authorization", "Bearer \udcff\udcfe")), "127.0.0.1")


def test_a_token_counts_where_the_proxy_names_nobody(behind_a_proxy: Sender, database: ServiceDatabase) -> None:
    token = create_token(database, "root", Role.ADMIN)
    assert behind_a_proxy(sent(("Authorization", f"Bearer {token}")), "10.0.0.7") == ("root", Role.ADMIN)


def test_a_worker_is_no_reader_and_a_submitter_no_worker() -> None:
    """What each role may do, in the order reader, submitter, worker, admin."""
    allowed = {role: "".join("-+"[role.includes(other)] for other in Role) for role in Role}
    assert list(allowed.values()) == ["+---", "++--", "--+-", "++++"]
