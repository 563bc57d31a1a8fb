"""The client of a server of searches, without further libraries: `connect`, `Client`, `ServerSearch`."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from random import uniform
from ssl import SSLCertVerificationError
from time import monotonic, sleep
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import BaseHandler, HTTPHandler, HTTPSHandler, ProxyHandler, Request, build_opener
from zipfile import ZipFile

from typing_extensions import override

from autoauto.database.backend import WAIT_S
from autoauto.records.errors import AutoautoError, BadInput
from autoauto.records.files.uploads import UPLOADED
from autoauto.space.requests.problem import FILE_OPTIONS, files_of, with_files
from autoauto.space.requests.request import SearchRequest

TIMEOUT_S = 150.0
"""Maximum time for an answer: longer than a server runs a command, so that the server itself reports a slow one."""
CONNECT_S = 2.0
"""The time that one try to connect may take."""
PATIENCE_S = 10.0
"""The time for which a server that cannot be reached is tried again."""
WORD_S = 2.0
"""The time after which a client that waits for a server says so."""
POLL_S = 0.5
_RETRY_S = 0.5
_LOCAL = ("localhost", "127.0.0.1", "::1")
_MAY_PASS = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)
PRINTED = "Autoauto-Printed"
"""The header with what a command printed beside what it wrote, and its exit code."""
MAX_PAGE = 200
ENDED = ("finished", "stopped", "failed")


class Fetched(NamedTuple):
    """The body of an answer, and its headers."""

    content: bytes
    headers: Mapping[str, str]


class PrintedAnswer(NamedTuple):
    """The file that a command has written, its exit code, and what it printed."""

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


def connect(
    url: str, token: str | None = None, patience_s: float = PATIENCE_S, on_wait: Callable[[str], None] | None = None
) -> Client:
    """A server of searches.

    >>> connect("http://127.0.0.1:8080", "autoauto-...").url
    'http://127.0.0.1:8080'

    Raises:
        BadInput: it is no URL of HTTP.
    """
    own_token = os.environ.get("AUTOAUTO_TOKEN", "") if token is None else token
    return Client(url.rstrip("/"), own_token, patience_s, on_wait)


@dataclass(frozen=True, slots=True)
class Client:
    """Sends requests to a server of searches.

    A server that cannot be reached is waited for; every request may be sent twice.

    Attributes:
        token: who sends them; empty for a server that is open.
        patience_s: for how long a server that cannot be reached is tried again. One that says that it is busy, or that
            its database is away, is asked again for longer.
        on_wait: is called with a line once a request has waited for `WORD_S`.
    """

    url: str
    token: str
    patience_s: float = PATIENCE_S
    on_wait: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            hint = "" if "://" in self.url else f"; try http://{self.url:.100}"
            raise BadInput(f"a server is written http://HOST:PORT, got {self.url!r:.100}{hint}")
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
                share_weights; a trace, measured rows or inputs are files, and are uploaded once.

        Raises:
            Refused: the server does not do it.
            BadInput: the model is not one file.
            ServerError: the server does not answer.
        """
        if cluster is not None:
            _check_file("cluster", str(cluster))  # before the server is asked
        given = {**options, "model": self.uploaded("model", str(model))}
        if cluster is not None:
            given["cluster"] = self.uploaded("cluster", str(cluster))
        for name in FILE_OPTIONS:
            if options.get(name):
                given[name] = self.uploaded(name, str(options[name]))
        if space is not None:
            given["space"] = dict(space)
        return self._submitted(given)

    def submit(self, request: SearchRequest, labels: Mapping[str, str] | None = None) -> ServerSearch:
        """Ask for a search; its model, its cluster and others are uploaded where they are files; raises as `search`.

        Args:
            labels: what a worker must say of itself to run it.
        """
        problem = request.problem
        named = files_of(problem)
        for name, given in named.items():  # of all, before the server is asked
            _check_file(name, given)
        files = {name: self.uploaded(name, given) for name, given in named.items()}
        whole = replace(request, problem=with_files(problem, files))
        asked: dict[str, object] = {"request": json.loads(whole.to_json())}
        if labels:
            asked["labels"] = dict(labels)
        return self._submitted(asked)

    def searches(self, **filters: object) -> Iterator[dict[str, Any]]:
        """The searches that the caller may see, the newest first; filters are state and owner."""
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
        """The name of a model, cluster or other file on the server: it is uploaded, unless the server has it.

        Names of built-in models and clusters, and of files that the server has, stay.

        Raises:
            BadInput: it is the path of a file that is missing, or that is no single file.
        """
        path = Path(given)
        if not _check_file(what, given):
            return given
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
        """The output of a command that the server runs over a search; raises as `ask`."""
        content, headers = self.fetch("GET", path)
        try:
            rest = json.loads(unquote(headers[PRINTED]))
            written = b"" if rest["is_empty"] else content
            return PrintedAnswer(written, rest["exit_code"], rest["stdout"], rest["stderr"])
        except (KeyError, ValueError) as error:
            raise self._is_no_server() from error

    def fetch(self, method: str, path: str, body: Mapping[str, object] | Path | None = None) -> Fetched:
        """The body and the headers of an answer; a request that may succeed later is repeated for a while.

        Raises as `ask`.
        """
        start_s = monotonic()
        on_wait = self.on_wait
        while True:
            try:
                return self._fetch(method, path, body)
            except ServerError as error:
                waited_s = monotonic() - start_s
                # A cause is there where a later request may succeed; an answer of HTTP says that the server is busy.
                patience_s = WAIT_S if isinstance(error.__cause__, HTTPError) else self.patience_s
                if not error.__cause__ or waited_s > patience_s:
                    raise
            if on_wait is not None and waited_s > WORD_S:
                on_wait(f"waiting for {self.url}, {patience_s:g} s at most")
                on_wait = None  # once a request
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
            reason = getattr(reason, "strerror", None) or reason
            raise ServerError(
                f"{self.url} must answer, it does not: {reason}; check --server, or whether the server runs"
            ) from error

    def _answer(self, request: Request) -> Fetched:
        handlers: list[BaseHandler] = [_QuickHandler()]
        if urlsplit(self.url).hostname in _LOCAL:  # proxies of the environment are used for other machines only
            handlers.append(ProxyHandler({}))
        with build_opener(*handlers).open(request, timeout=TIMEOUT_S) as response:
            return Fetched(response.read(), response.headers)

    def _is_no_server(self) -> ServerError:
        return ServerError(f"{self.url} must be a server of autoauto, it answers otherwise; check --server")


@dataclass(frozen=True, slots=True)
class ServerSearch:
    """A search on a server, which goes on whether or not anybody waits for it."""

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

    def explain(self) -> str:
        """An explanation in words: why the best won, what limits it, and why others lost."""
        return self.client.printed(f"/v1/searches/{self.id}/explain?as=text").content.decode()

    def export(self, to: str, folder: str | Path) -> None:
        """Write the best as files of another runtime, into a new or empty folder.

        Raises:
            Refused: the server does not export it.
            BadInput: the folder holds something.
        """
        unpack(self.client.printed(f"/v1/searches/{self.id}/export?{urlencode({'to': to})}").content, Path(folder))

    def wait(self, progress: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """Poll until the search has ended, and return its last state; `progress` is called with each one before.

        A server that is restarted meanwhile is waited for.
        """
        patient = replace(self, client=replace(self.client, patience_s=max(WAIT_S, self.client.patience_s)))
        while True:
            now = patient.read()
            if now["state"] in ENDED:
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


class _QuickConnection(HTTPConnection):
    """Gives up to connect sooner than to wait for an answer."""

    @override
    def connect(self) -> None:
        _connect_soon(self, super().connect)


class _QuickTLSConnection(HTTPSConnection):
    @override
    def connect(self) -> None:
        _connect_soon(self, super().connect)


def _connect_soon(connection: HTTPConnection, connect: Callable[[], None]) -> None:
    answer_s = connection.timeout
    connection.timeout = CONNECT_S
    try:
        connect()
    except TimeoutError as error:
        raise ConnectionError(f"no connection within {CONNECT_S:g} s") from error
    finally:
        connection.timeout = answer_s
    connection.sock.settimeout(answer_s)


class _QuickHandler(HTTPHandler, HTTPSHandler):
    @override
    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_QuickConnection, req)

    @override
    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_QuickTLSConnection, req)


_SUFFIXES = {"model": (".onnx", ".gguf", ".json", ".pb", ".pt", ".pth"), "cluster": (".toml",)}


def _check_file(what: str, given: str) -> bool:
    """True if a model, a cluster or another input is a file of this machine; else it is a name."""
    path = Path(given)
    if path.is_file():
        if what == "model":  # the server would not have its other files
            from autoauto.server.store.one_file import refuse_other_files

            with path.open("rb") as file:
                refuse_other_files(file, f"{path}: ")
        return True
    if path.is_dir():
        raise BadInput(f"the {what} of a search on a server must be one file or a name, {given!r:.200} is a folder")
    if what not in _SUFFIXES and not UPLOADED.fullmatch(given):
        raise BadInput(f"there is no file {given!r:.200} for --{what}; check the path")
    if path.is_absolute() or path.suffix.lower() in _SUFFIXES.get(what, ()):
        raise BadInput(f"there is no file {given!r:.200}; check the path, or give the name of a built-in {what}")
    return False


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
