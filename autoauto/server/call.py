"""The arguments of handlers of the interface and of the pages, `Service` and `Call`, and their result, `Answer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

from autoauto.server.metrics import ServiceMetrics
from autoauto.server.store.models import DIGEST
from autoauto.server.store.searches import NotFound
from autoauto.server.store.tables import ServiceDatabase
from autoauto.server.store.users import User
from autoauto.server.work.commands import Commands
from autoauto.space.requests.request import SearchRequest

ReadRequest = Callable[[Mapping[str, Any]], SearchRequest]
"""Reads options and knobs as a search file has them; raises BadInput."""

WriteCommand = Callable[[SearchRequest], str]
"""Writes a request as a command to copy."""

ReadSearches = Callable[[], Sequence[Mapping[str, Any]]]
"""Reads searches as they are now."""


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of the service that all requests share.

    Attributes:
        read_request: reads the options of a submission.
        write_command: the command that asks for a search.
        upload_quota_bytes: of all files that a user has uploaded, at most.
    """

    database: ServiceDatabase
    read_request: ReadRequest
    metrics: ServiceMetrics
    document: bytes
    commands: Commands
    write_command: WriteCommand
    upload_quota_bytes: int


class Call(NamedTuple):
    """A request whose sender may make it.

    Attributes:
        query: those behind it, see `read_parameters`.
        body: a body in JSON, or a form.
        server: the URL by which the sender has come.
    """

    user: User
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: bytes = b""
    file: BinaryIO | None = None
    server: str = ""

    @property
    def digest(self) -> str:
        """The uploaded file that the path names; raises NotFound if it cannot be one."""
        digest = self.path["digest"]
        if not DIGEST.fullmatch(digest):
            raise NotFound(f"a model is named by a SHA-256 of 64 hexadecimal digits, got {digest!r:.80}")
        return digest

    @property
    def search_id(self) -> str:
        """The search that the path names; raises NotFound if it cannot be one."""
        search_id = self.path["search_id"]
        if not search_id.isalnum() or not search_id.isascii():  # PostgreSQL takes no null characters
            raise NotFound(f"there is no search {search_id!r:.60}; GET /v1/searches lists yours")
        return search_id


class Answer(NamedTuple):
    """The answer of a handler.

    Attributes:
        content: is written as JSON; None, where it is not `raw`, is no body.
        location: the path of what was made, or that is to be read next.
        raw: bytes and their media type, in place of JSON.
        cookie: what the browser is to keep.
        events: reads the searches of which every change is sent, until the client goes.
    """

    status: int
    content: Any
    location: str | None = None
    raw: tuple[bytes, str] | None = None
    cookie: str | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    events: ReadSearches | None = None


Handler = Callable[[Service, Call], Answer]
