"""Who sends a request, `sender_of`: by a token, by the header of a trusted proxy, or by being on this machine.

A header that names a user counts only from the addresses of the proxy that the options name; everybody else
could write it, too.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import TYPE_CHECKING

from autoauto.records.errors import AutoautoError, BadInput
from autoauto.server.pages.session import token_in_cookie
from autoauto.server.store.tables import ServiceDatabase
from autoauto.server.store.users import LOCAL, Role, User, is_user_name, user_of

if TYPE_CHECKING:
    from multidict import MultiMapping

Network = IPv4Network | IPv6Network


class Unauthorised(AutoautoError):
    """The request comes from nobody who is known."""


@dataclass(frozen=True, slots=True)
class UserProxy:
    """A proxy that knows who its clients are, and says so in a header.

    Attributes:
        header: its name, for example X-Forwarded-User.
        networks: addresses from which it is believed.
    """

    header: str
    networks: tuple[Network, ...]
    role: Role = Role.SUBMITTER

    def user(self, headers: MultiMapping[str], address: str) -> User | None:
        """The user that the proxy names; None where the request does not come from it, or it names nobody.

        Raises:
            Unauthorised: the header is no name of a user, or comes twice.
        """
        if not _is_among(address, self.networks):
            return None
        name = _only(headers, self.header)
        if name is None:
            return None
        if not is_user_name(name):
            raise Unauthorised(f"the header {self.header} must be a user's name, got {name!r:.100}; see the proxy")
        return User(name, self.role)


def _only(headers: MultiMapping[str], name: str) -> str | None:
    """The value of a header that says who somebody is; None without one."""
    values = headers.getall(name, [])
    if len(values) > 1:
        raise Unauthorised(f"the header {name} must come once, got it {len(values)} times; see the proxy")
    return values[0] if values else None


def _is_among(address: str, networks: tuple[Network, ...]) -> bool:
    with suppress(ValueError):
        sender = ip_address(address)
        known = getattr(sender, "ipv4_mapped", None) or sender
        return any(known in network for network in networks)
    return False


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Options of the service.

    Attributes:
        host, port: where; port 0 is any that is free.
        allowed_hosts: names of this server in `Host` headers, beside `host`, localhost and addresses.
        is_open: whether requests need no token; only for an address of this machine alone.
        proxy: who may name the users of requests; None for nobody.
        tls: by which requests come; None where a proxy does that, or nobody.

    Raises:
        BadInput: it is open to other machines.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] = ()
    is_open: bool = False
    max_model_bytes: int = 1 << 30  # of an uploaded file
    max_user_bytes: int = 10 << 30  # of all files that a user has uploaded
    proxy: UserProxy | None = None
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if self.is_open and not _is_loopback(self.host):
            raise BadInput(
                f"without tokens a server must listen at this machine alone, got {self.host}; try --listen "
                f"127.0.0.1:{self.port}, or leave out --open"
            )


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def sender_of(database: ServiceDatabase, options: ServiceOptions, headers: MultiMapping[str], address: str) -> User:
    """The sender of a request, by its headers and the address of the connection.

    Raises:
        Unauthorised: nobody who is known.
    """
    named = None if options.proxy is None else options.proxy.user(headers, address)
    if named is not None:
        return named
    scheme, _, token = (_only(headers, "Authorization") or "").partition(" ")
    if scheme.lower() != "bearer":
        token = token_in_cookie(headers)
    if not token and not scheme and options.is_open:
        return LOCAL
    user = user_of(database, token.strip()) if token else None
    if user is None:
        raise Unauthorised(
            "a request must have the header Authorization: Bearer and a token that is in force, got "
            f"{'another token' if token else 'none'}; try autoauto server token create NAME"
        )
    return user
