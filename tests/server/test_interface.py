"""The REST interface of one server without a worker: who may use which path, what is refused, what is documented.

The paths come from the OpenAPI document that the server gives, so that a new one cannot be forgotten.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from autoauto.server.rest.door import MAX_STREAMS_OF_USER, MAX_SUBMISSION_BYTES
from autoauto.server.rest.routes import ROUTES
from autoauto.server.store.tables import ServiceDatabase
from autoauto.server.store.users import Role, create_token, revoke_tokens
from tests.running import PATIENCE_S
from tests.server.conftest import Caller, RunningServer, small

OPEN = {
    *(("get", "/health"), ("get", "/openapi.json"), ("get", "/login"), ("post", "/login"), ("post", "/logout")),
    *(("get", "/assets/pages.css"), ("get", "/assets/pages.js")),
}
"""What needs no token; a new path that is to be open is written here too."""


class ServedUsers(NamedTuple):
    """A server, and users of every kind."""

    server: RunningServer
    mary: Caller
    john: Caller
    reader: Caller
    admin: Caller


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedUsers]:
    folder = tmp_path_factory.mktemp("server")
    server = RunningServer(f"sqlite:///{folder}/server.db", folder, "--no-worker", "--max-model-mib", "2")
    users = [("mary", Role.SUBMITTER), ("john", Role.SUBMITTER), ("reader", Role.READER), ("root", Role.ADMIN)]
    yield ServedUsers(server, *(server.caller(*user) for user in users))
    server.close()


@pytest.fixture(scope="module")
def nobody(site: ServedUsers) -> Caller:
    return Caller(site.server.url, None)


@pytest.fixture(scope="module")
def search_id(site: ServedUsers) -> str:
    """A search of mary's."""
    return str(site.mary("POST", "/v1/searches", small(7)).body["id"])


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, of_path in document["paths"].items():
        for method, operation in of_path.items():
            yield method, path, operation


def filled(path: str, search_id: str) -> str:
    """A path with the id of a search, a digest that nobody has uploaded, and 1 for other parameters."""
    return re.sub(r"{\w+}", "1", path.replace("{search_id}", search_id).replace("{digest}", "0" * 64))


def test_the_document_is_valid_and_has_every_route(nobody: Caller) -> None:
    from openapi_spec_validator import validate  # a second of imports

    document = nobody("GET", "/openapi.json").body
    validate(document)
    documented = {(method.upper(), path) for method, path, _ in operations(document)}
    assert documented == {(route.method, route.path) for route in ROUTES}
    assert {(method, path) for method, path, each in operations(document) if not each["security"]} == OPEN


def test_every_path_needs_a_token_that_is_in_force(site: ServedUsers, nobody: Caller, search_id: str) -> None:
    database = ServiceDatabase(site.server.storage)
    expired = create_token(database, "anna", Role.ADMIN, lasts_s=-1.0)
    revoked = create_token(database, "paul", Role.ADMIN)
    revoke_tokens(database, "paul")
    database.close()
    document = nobody("GET", "/openapi.json").body
    refused = [None, "autoauto-wrong", expired, revoked, "", f"{site.admin.token}x"]
    for (method, path, _), token in itertools.product(operations(document), refused):
        reply = Caller(site.server.url, token)(method.upper(), filled(path, search_id))
        if (method, path) in OPEN:
            assert (method, path, reply.status) == (method, path, 400 if (method, path) == ("post", "/login") else 200)
        else:
            assert (method, path, reply.status) == (method, path, 401)
            assert reply.headers["WWW-Authenticate"].startswith("Bearer")
            assert reply.headers["Content-Type"] == "application/problem+json"


def test_another_scheme_than_bearer_is_no_token(site: ServedUsers, nobody: Caller) -> None:
    assert nobody("GET", "/v1/searches", Authorization=f"Basic {site.mary.token}").status == 401
    assert nobody("GET", "/v1/searches", Authorization=f"bearer {site.mary.token}").status == 200


def test_every_path_needs_its_role(site: ServedUsers, search_id: str) -> None:
    for route in ROUTES:
        reply = site.reader(route.method, filled(route.path, search_id))
        allowed = route.role is None or Role.READER.includes(route.role)
        assert (route.path, reply.status == 403) == (route.path, not allowed)


def test_every_path_of_a_search_hides_it_from_another_owner(site: ServedUsers, nobody: Caller, search_id: str) -> None:
    document = nobody("GET", "/openapi.json").body
    of_a_search = [(method, path) for method, path, _ in operations(document) if "{search_id}" in path]
    assert of_a_search
    for method, path in of_a_search:
        theirs, unknown = (site.john(method.upper(), filled(path, each)) for each in (search_id, "f" * 20))
        assert (method, path, theirs.status, unknown.status) == (method, path, 404, 404)
        assert theirs.body["detail"].replace(search_id, "f" * 20) == unknown.body["detail"]
    ids = [each["id"] for each in site.john("GET", "/v1/searches").body["searches"]]
    assert search_id not in ids
    assert search_id in [each["id"] for each in site.admin("GET", "/v1/searches?owner=mary").body["searches"]]


def test_a_submission_is_202_and_an_equal_one_200(site: ServedUsers) -> None:
    contract = {"model": "resnet50", "cluster": "bow-2000", "space": {"n_ipu": [1, 2], "replicas": [1, 2]}}
    first, again, other = (caller("POST", "/v1/searches", contract) for caller in (site.mary, site.mary, site.john))
    assert [first.status, again.status, other.status] == [202, 200, 200]
    assert first.body["id"] == again.body["id"] == other.body["id"]
    assert first.headers["Location"] == f"/v1/searches/{first.body['id']}"
    read = site.mary("GET", first.headers["Location"]).body
    assert (read["state"], read["progress"], read["best"], read["answer"]) == ("waiting", None, None, None)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"{", "must be an object in JSON"),
        (b"[1]", "must be an object in JSON"),
        (b"[" * 100_000, "must be an object in JSON"),
        (b'{"model": "resnet50", "model": "bert-base-128"}', "'model' twice"),
        (b'{"space": {"n_ipu": [1], "n_ipu": [2]}}', "'n_ipu' twice"),
        (b'{"model": "\xff"}', "must be an object in JSON"),
        (b'{"priority": 1e999}', "must be an object in JSON"),
        ({"try": [[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]}, "at most 20 deep"),
        ({"space": {"n_ipu": [0]}}, "n_ipu must be"),
        ({"model": "a\0b"}, "null character"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"priority": 101}, "priority must be a whole number"),
        ({"shared": 1}, "shared must be true or false"),
        ({"limits": {"measurement": 1}}, "did you mean 'measurements'"),
        ({"limits": {"trials": 0}}, "limit trials must be"),
        ({"labels": {"gpu": 1}}, "labels are texts"),
        ({"request": {}, "model": "resnet50"}, "leave one out"),
        ({"request": {}}, "the request of a search"),
        ({"model": "sha256:" + "0" * 64}, "the model must be uploaded first"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(site: ServedUsers, body: object, part: str) -> None:
    reply = site.mary("POST", "/v1/searches", body)
    assert reply.status == 400
    assert {"type", "title", "status", "detail", "request_id"} == reply.body.keys()
    assert part in reply.body["detail"]
    assert "\n" not in reply.body["detail"]


def test_other_paths_methods_and_parameters_are_refused_as_problems(site: ServedUsers, search_id: str) -> None:
    replies = {
        404: site.mary("GET", "/v2"),
        405: site.mary("PUT", "/v1/searches"),
        400: site.mary("GET", "/v1/searches?limit=1000"),
    }
    assert {code: reply.status for code, reply in replies.items()} == {code: code for code in replies}
    assert "GET" in replies[405].headers["Allow"]
    for wrong in ("limit=x", "limit=1&limit=2", "state=done", "page=2", "before=-1", "owner=%00"):
        assert (wrong, site.mary("GET", f"/v1/searches?{wrong}").status) == (wrong, 400)
    assert site.mary("GET", "/v1/searches/%00").status == 404
    assert site.mary("GET", f"/v1/searches/{search_id}", Host="rebound.example").status == 400


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /v1/searches?" + b"a" * 20_000 + b" HTTP/1.1", 414),
        (b"GET /v1/searches HTTP/1.1\r\nX-Long: " + b"a" * 20_000, 414),
        (b"nonsense", 400),
        (b"GET /v1/searches HTTP/1.1\r\nAuthorization: Bearer \xff\xfe", 401),
        (b"GET /v1/searches HTTP/1.1\r\nCookie: autoauto_token=\xff\xfe", 401),
        (b"POST /v1/searches HTTP/1.1\r\nOrigin: http://[", 403),
        (b"POST /logout HTTP/1.1\r\nContent-Encoding: \xff\r\nContent-Length: 1", 400),
    ],
)
def test_what_is_no_request_gets_problem_details(site: ServedUsers, head: bytes, status: int) -> None:
    host, _, port = site.server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(head + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    first, _, body = answer.partition(b"\r\n\r\n")
    assert int(first.split()[1]) == status
    assert b"application/problem+json" in first
    assert json.loads(body)["status"] == status


def test_a_stopped_search_that_is_asked_for_again_links_to_its_resume(site: ServedUsers) -> None:
    search = site.mary("POST", "/v1/searches", small(11)).body["id"]
    site.mary("POST", f"/v1/searches/{search}/stop")
    again = site.mary("POST", "/v1/searches", small(11))
    assert (again.status, again.body["state"]) == (200, "stopped")
    assert again.body["links"]["resume"] == f"/v1/searches/{search}/resume"
    assert site.mary("POST", again.body["links"]["resume"]).body["state"] == "waiting"


def test_a_request_has_an_id_which_its_sender_may_give(nobody: Caller) -> None:
    assert nobody("GET", "/health", X_Request_Id="abc-1").headers["X-Request-Id"] == "abc-1"
    assert len(nobody("GET", "/health", X_Request_Id="no spaces").headers["X-Request-Id"]) == 32


def test_trials_are_read_in_pages_and_a_search_without_any_has_an_empty_one(site: ServedUsers, search_id: str) -> None:
    empty = site.mary("GET", f"/v1/searches/{search_id}/trials?limit=1").body
    assert empty == {"trials": [], "next": None}
    assert site.mary("GET", f"/v1/searches/{search_id}/trials?first=-1").status == 400


def test_events_begin_with_the_search_and_end_with_it(site: ServedUsers) -> None:
    search = site.mary("POST", "/v1/searches", small(9)).body["id"]
    request = urllib.request.Request(f"{site.server.url}/v1/searches/{search}/events")
    request.add_header("Authorization", f"Bearer {site.mary.token}")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert next_event(stream) == ("search", "waiting")
        site.mary("POST", f"/v1/searches/{search}/stop")
        assert next_event(stream) == ("ended", "stopped")
        assert stream.read().strip() == b""  # it ends with the search


def test_one_user_does_not_take_all_streams_of_events(site: ServedUsers) -> None:
    request = urllib.request.Request(f"{site.server.url}/v1/events")
    request.add_header("Authorization", f"Bearer {site.john.token}")
    with ExitStack() as streams:
        for _ in range(MAX_STREAMS_OF_USER):
            stream = streams.enter_context(urllib.request.urlopen(request, timeout=PATIENCE_S))
            assert stream.readline() == b"retry: 2000\n"
        refused = site.john("GET", "/v1/events")
        assert (refused.status, "of one user" in refused.body["detail"]) == (429, True)
        assert site.reader("GET", "/v1/events").status == 200


def next_event(stream: Any) -> tuple[str, str]:
    """The name of the next event, and the state of its search."""
    name = ""
    for line in stream:
        if line.startswith(b"event: "):
            name = line.removeprefix(b"event: ").decode().strip()
        elif line.startswith(b"data: "):
            return name, json.loads(line.removeprefix(b"data: "))["state"]
    raise AssertionError("the stream has ended")


def test_a_search_that_has_ended_is_deleted_for_its_owner_then_for_all(site: ServedUsers) -> None:
    search = site.mary("POST", "/v1/searches", small(8)).body["id"]
    site.john("POST", "/v1/searches", small(8))
    path = f"/v1/searches/{search}"
    assert site.mary("DELETE", path).status == 204
    assert (site.mary("GET", path).status, site.john("GET", path).body["owner"]) == (404, "john")
    assert site.john("DELETE", path).status == 409  # it waits
    site.john("POST", f"{path}/stop")
    assert site.john("DELETE", path).status == 204
    assert site.admin("GET", path).status == 404
    assert site.mary("POST", "/v1/searches", small(8)).body["id"] != search


def test_metrics_count_requests_by_route_and_searches_by_state(site: ServedUsers, search_id: str) -> None:
    site.mary("GET", f"/v1/searches/{search_id}")
    text = site.reader("GET", "/metrics").body.decode()
    assert 'autoauto_server_requests_total{code="200",method="GET",path="/v1/searches/{search_id}"}' in text
    assert 'autoauto_searches{state="waiting"}' in text
    assert search_id not in text


def test_a_model_is_uploaded_once_and_used_by_who_has_uploaded_it(site: ServedUsers) -> None:
    content = b"a model" * 200_000
    digest = hashlib.sha256(content).hexdigest()
    assert site.mary("GET", f"/v1/models/{digest}").status == 404
    named = {"model": f"sha256:{digest}", "space": {"n_ipu": [1]}}
    assert site.mary("POST", "/v1/searches", named).status == 400
    first, packed = (
        site.mary("POST", "/v1/models", content),
        site.mary("POST", "/v1/models", gzip.compress(content), Content_Encoding="gzip"),
    )
    assert [first.status, packed.status] == [201, 200]
    assert first.body == packed.body == site.mary("GET", f"/v1/models/{digest}").body
    described = {name: first.body[name] for name in ("digest", "model", "n_bytes", "owner")}
    assert described == {"digest": digest, "model": f"sha256:{digest}", "n_bytes": len(content), "owner": "mary"}
    assert site.mary("POST", "/v1/searches", named).status == 202
    assert site.john("GET", f"/v1/models/{digest}").status == 404
    assert site.john("POST", "/v1/searches", named).status == 400
    assert site.john("POST", "/v1/models", content).status == 201  # which does not say that another has it
    assert site.john("POST", "/v1/searches", named).status == 200


def test_large_bodies_and_compressed_bombs_are_refused(site: ServedUsers) -> None:
    bomb = gzip.compress(bytes(100 << 20))
    for path, body, headers in (
        ("/v1/models", bytes(3 << 20), {}),
        ("/v1/models", bomb, {"Content_Encoding": "gzip"}),
        ("/v1/searches", b" " * (MAX_SUBMISSION_BYTES + 1), {}),
        ("/v1/searches", bomb, {"Content_Encoding": "gzip"}),
    ):
        try:
            assert site.mary("POST", path, body, **headers).status == 413
        except (ConnectionError, OSError):  # refused before all was read
            assert site.mary("GET", "/health").status == 200
    assert site.mary("POST", "/v1/models", b"").status == 400
    assert site.mary("POST", "/v1/models", b"x", Content_Encoding="br").status == 400


def test_requests_without_a_body_are_answered_however_many(site: ServedUsers) -> None:
    """All of them share one stream of aiohttp, whose second reader would never come to its end."""
    for _ in range(3):
        assert [site.mary("POST", path).status for path in ("/v1/searches", "/v1/models")] == [400, 400]


def test_a_client_that_sends_half_a_request_disturbs_nobody(site: ServedUsers, search_id: str) -> None:
    host, _, port = site.server.url.removeprefix("http://").partition(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(20)]
    head = f"POST /v1/searches HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.mary.token}\r\nContent-Length: 9\r\n"
    for connection in slow:
        connection.sendall(head.encode())
    start_s = time.monotonic()
    assert site.mary("GET", f"/v1/searches/{search_id}").status == 200
    assert time.monotonic() - start_s < 30.0
    for connection in slow:
        connection.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_request_that_the_document_allows_fails(site: ServedUsers, tmp_path: Path) -> None:
    """What schemathesis makes of the document: no answer is a 500, and all are as the document says."""

    program = str(Path(sys.executable).parent / "schemathesis")
    command = [program, "run", f"{site.server.url}/openapi.json"]
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    command += ["-H", f"Authorization: Bearer {site.admin.token}", "--checks", checks, "--max-examples", "10"]
    command += ["--exclude-path-regex", "events$|^/(dashboard|static|api|csv)"]
    # events do not end, and what Optuna's dashboard answers is its own
    command += ["--phases", "examples,coverage,fuzzing", "--generation-deterministic", "--no-color"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
