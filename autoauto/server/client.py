"""The client of a server of searches, without further libraries: `connect`, `Client`, `ServerSearch`."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from random import uniform
from ssl import SSLCertVerificationError
from time import monotonic, sleep
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener
from zipfile import ZipFile

from autoauto.database.backend import WAIT_S
from autoauto.records.errors import AutoautoError, BadInput, UnreadableModel
from autoauto.space.problem import Problem
from autoauto.space.request import SearchRequest

TIMEOUT_S = 150.0
"""Longer than a server runs a command, so that it says itself that one takes longer."""
POLL_S = 0.5
_RETRY_S = 0.5
_LOCAL = ("localhost", "127.0.0.1", "::1")
_MAY_PASS = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)
PRINTED = "Autoauto-Printed"
"""The header with what a command printed beside what it wrote, and its exit code."""
MAX_PAGE = 200
_ENDED = ("finished", "stopped", "failed")


class Fetched(NamedTuple):
    """The body of an answer, and its headers."""

    content: bytes
    headers: Mapping[str, str]


class PrintedAnswer(NamedTuple):
    """What a command has written, how it ended, and what it printed beside it."""

    content: bytes
    exit_code: int
    stdout: str
    stderr: str


class ServerError(AutoautoError):
    """A server does not answer, or fails."""


class Refused(AutoautoError):
    """A server refuses a request; the message is its own.

    Attributes:
        status: the code of HTTP.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def connect(url: str, token: str | None = None) -> Client:
    """A server of searches.

    >>> connect("http://127.0.0.1:8080", "autoauto-...").url
    'http://127.0.0.1:8080'

    Args:
        url: of the server.
        token: from `autoauto server token create NAME`; by default the one in AUTOAUTO_TOKEN.

    Raises:
        BadInput: it is no URL of HTTP.
    """
    return Client(url.rstrip("/"), os.environ.get("AUTOAUTO_TOKEN", "") if token is None else token)


@dataclass(frozen=True, slots=True)
class Client:
    """Sends requests to a server of searches.

    A server that is away, as while it is restarted, is waited for; every request may be sent twice.

    Attributes:
        url: of the server.
        token: who sends them; empty for a server that is open.
    """

    url: str
    token: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"a server is written http://HOST:PORT, got {self.url!r:.100}")
        if not (self.token.isascii() and self.token.isprintable()):
            raise BadInput("a token has letters, digits and hyphens, got other characters; check AUTOAUTO_TOKEN")

    def search(
        self,
        model: str | Path = "resnet50",
        cluster: str | Path | None = None,
        space: Mapping[str, object] | None = None,
        **options: object,
    ) -> ServerSearch:
        """Ask for a search; an equal one that the server knows is the same.

        Args:
            model: a built-in name, or an ONNX file, which is uploaded once.
            cluster: a built-in name, or a TOML file, which is uploaded once.
            space: values of knobs by their names.
            options: as in a search file, for example objective="latency"; also limits, labels, priority, shared,
                share_weights.

        Raises:
            Refused: the server does not do it.
            BadInput: the model is not one file.
            ServerError: the server does not answer.
        """
        given = {**options, "model": self.uploaded("model", str(model))}
        given |= {} if cluster is None else {"cluster": self.uploaded("cluster", str(cluster))}
        return self._submitted(given | ({} if space is None else {"space": dict(space)}))

    def submit(self, request: SearchRequest) -> ServerSearch:
        """Ask for a search; its model and cluster are uploaded where they are files.

        Raises:
            Refused, BadInput, ServerError: as `search`.
        """
        problem = request.problem
        files = {name: self.uploaded(name, str(given)) for name, given in _files(problem).items()}
        whole = replace(request, problem=replace(problem, **files)) if files else request  # type: ignore[arg-type]
        return self._submitted({"request": json.loads(whole.to_json())})

    def searches(self, **filters: object) -> Iterator[dict[str, Any]]:
        """The searches that the caller may see, the newest first.

        Args:
            filters: state, owner.
        """
        return self._pages(f"/v1/searches?{urlencode(filters)}", "searches")

    def trials(self, search_id: str) -> Iterator[dict[str, Any]]:
        """The trials of a search by number: the knobs and numbers that each has."""
        return self._pages(f"/v1/searches/{search_id}/trials?limit={MAX_PAGE}", "trials")

    def _pages(self, path: str | None, what: str) -> Iterator[dict[str, Any]]:
        while path:
            page = self.ask("GET", path)
            yield from page[what]
            path = page["next"]

    def uploaded(self, what: str, given: str) -> str:
        """The name of a model or cluster on the server: a file is uploaded, unless the server has it; others stay."""
        path = Path(given)
        if not path.is_file():
            return given
        if what == "model":
            _check_one_file(path)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if self._has(digest):
            return f"sha256:{digest}"
        return str(self.ask("POST", f"/v1/models?{urlencode({'name': path.name})}", path)["model"])

    def models(self) -> Iterator[dict[str, Any]]:
        """The files that the caller has uploaded, the newest first: each with its name, digest and bytes."""
        return self._pages("/v1/models", "models")

    def delete_model(self, digest: str) -> None:
        """Forget a file that the caller has uploaded."""
        self.ask("DELETE", f"/v1/models/{digest}")

    def _has(self, digest: str) -> bool:
        try:
            self.ask("GET", f"/v1/models/{digest}")
        except Refused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    def _submitted(self, submission: Mapping[str, object]) -> ServerSearch:
        return ServerSearch(self, str(self.ask("POST", "/v1/searches", submission)["id"]))

    def ask(self, method: str, path: str, body: Mapping[str, object] | Path | None = None) -> dict[str, Any]:
        """The answer to a request, an object in JSON; an empty one where it has no body.

        Raises:
            Refused: the server does not do it.
            ServerError: the server does not answer, or fails.
        """
        content = self.fetch(method, path, body).content
        try:
            answer = json.loads(content or b"{}")
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self._is_no_server()
        return answer

    def printed(self, path: str) -> PrintedAnswer:
        """What a command writes of a search, on the server.

        Raises:
            Refused, ServerError: as `ask`.
        """
        content, headers = self.fetch("GET", path)
        try:
            rest = json.loads(unquote(headers[PRINTED]))
            written = b"" if rest["is_empty"] else content
            return PrintedAnswer(written, rest["exit_code"], rest["stdout"], rest["stderr"])
        except (KeyError, ValueError) as error:
            raise self._is_no_server() from error

    def fetch(self, method: str, path: str, body: Mapping[str, object] | Path | None = None) -> Fetched:
        """The body and the headers of an answer; a request that may succeed later is repeated for a while.

        Raises:
            Refused, ServerError: as `ask`.
        """
        give_up_s = monotonic() + WAIT_S
        while True:
            try:
                return self._fetch(method, path, body)
            except ServerError as error:
                if not error.__cause__ or monotonic() > give_up_s:
                    raise
            sleep(_RETRY_S * uniform(0.5, 1.5))

    def _fetch(self, method: str, path: str, body: Mapping[str, object] | Path | None) -> Fetched:
        request = Request(f"{self.url}{path}", method=method, headers={"Accept": "*/*"})
        if self.token:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        try:
            if isinstance(body, Path):
                request.add_header("Content-Type", "application/octet-stream")
                request.add_header("Content-Length", str(body.stat().st_size))
                with body.open("rb") as file:
                    request.data = file
                    return self._answer(request)
            if body is not None:
                request.add_header("Content-Type", "application/json")
                request.data = json.dumps(body).encode()
            return self._answer(request)
        except HTTPError as error:
            raise _refusal(self.url, error) from (error if error.code in _MAY_PASS else None)
        except (URLError, HTTPException, ConnectionError, TimeoutError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise ServerError(f"{self.url} takes longer than {TIMEOUT_S:g} s for an answer; try later") from error
            if isinstance(reason, SSLCertVerificationError):  # later it is the same
                raise ServerError(
                    f"{self.url} must have a certificate that this machine trusts: {reason.verify_message}; "
                    "name a certificate of your own in SSL_CERT_FILE"
                ) from None
            raise ServerError(f"{self.url} must answer, it does not: {reason}; check --server, or try later") from error

    def _answer(self, request: Request) -> Fetched:
        with self._opener().open(request, timeout=TIMEOUT_S) as response:
            return Fetched(response.read(), response.headers)

    def _is_no_server(self) -> ServerError:
        return ServerError(f"{self.url} must be a server of autoauto, it answers otherwise; check --server")

    def _opener(self) -> OpenerDirector:
        """Proxies of the environment are for other machines."""
        return build_opener(ProxyHandler({})) if urlsplit(self.url).hostname in _LOCAL else build_opener()


@dataclass(frozen=True, slots=True)
class ServerSearch:
    """A search on a server, which goes on whether or not anybody waits for it.

    Attributes:
        client: of the server.
        id: its name there.
    """

    client: Client
    id: str

    def read(self) -> dict[str, Any]:
        """Its state, progress, best so far and answer."""
        return self.client.ask("GET", f"/v1/searches/{self.id}")

    def stop(self) -> dict[str, Any]:
        """End it with its best so far."""
        return self.client.ask("POST", f"/v1/searches/{self.id}/stop")

    def resume(self) -> dict[str, Any]:
        """Let it go on after a stop, a failure or the end of a budget."""
        return self.client.ask("POST", f"/v1/searches/{self.id}/resume")

    def delete(self) -> None:
        """Forget it, when it has ended."""
        self.client.ask("DELETE", f"/v1/searches/{self.id}")

    def trials(self) -> Iterator[dict[str, Any]]:
        """Its trials by number: the knobs and numbers that each has."""
        return self.client.trials(self.id)

    def report(self, form: str = "html") -> bytes:
        """The best, its stages and top trials, as "html", "text" or "json"."""
        return self.client.printed(f"/v1/searches/{self.id}/report?as={form}").content

    def export(self, to: str, folder: str | Path) -> None:
        """Write the best as files of another runtime, into a new or empty folder.

        Raises:
            Refused: the server does not export it.
            BadInput: the folder holds something.
        """
        unpack(self.client.printed(f"/v1/searches/{self.id}/export?{urlencode({'to': to})}").content, Path(folder))

    def wait(self, progress: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """Poll until the search has ended, and return its last state; `progress` is called with each one before."""
        while True:
            now = self.read()
            if now["state"] in _ENDED:
                return now
            if progress is not None:
                progress(now)
            sleep(POLL_S)


def unpack(archive: bytes, folder: Path) -> None:
    """Write the files of an archive into a new or empty folder.

    Raises:
        BadInput: the folder holds something.
        OSError: it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"the folder of an export must be new or empty, got {folder}; give another")
    folder.mkdir(parents=True, exist_ok=True)
    with ZipFile(io.BytesIO(archive)) as files:
        files.extractall(folder)  # leaves out what would lie outside


def _files(problem: Problem) -> dict[str, str]:
    named = {"model": problem.model, "cluster": problem.cluster}
    return {name: given for name, given in named.items() if given is not None and Path(given).is_file()}


def _check_one_file(path: Path) -> None:
    """Refuse a model that keeps weights in other files, which the server would not have.

    Raises:
        BadInput: it does.
    """
    from autoauto.server.store.one_file import NamesOtherFiles, check_one_file

    with suppress(UnreadableModel), path.open("rb") as file:  # else the server says what is wrong with it
        try:
            check_one_file(file)
        except NamesOtherFiles as error:
            raise BadInput(f"{path}: {error}") from error


def _refusal(url: str, error: HTTPError) -> AutoautoError:
    """The error of an answer that is none, with the server's line."""
    try:
        detail = str(json.loads(error.read())["detail"])
    except (ValueError, KeyError, TypeError, OSError):
        detail = f"{url} answers {error.code}: {error.reason}"
    if error.code in _MAY_PASS or error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServerError(detail)
    if error.code == HTTPStatus.UNAUTHORIZED:
        detail += "; set it as AUTOAUTO_TOKEN"
    return Refused(detail, error.code)
