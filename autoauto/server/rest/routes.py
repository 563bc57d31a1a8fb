"""The one table of what clients may ask for, `ROUTES`: it makes the paths, who may use them, and the OpenAPI document.

A path that is not here is not there, and one without a role is open to everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from autoauto.records.installation import VERSION
from autoauto.server.call import Answer, Call, Service
from autoauto.server.pages import access, listing
from autoauto.server.pages.session import COOKIE
from autoauto.server.rest import handlers
from autoauto.server.store.searches import MAX_PAGE, MAX_PRIORITY, SearchState
from autoauto.server.store.users import Role

Schema = Mapping[str, Any]


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class BodyKind(Enum):
    """What a request carries, by its media type."""

    NOTHING = ""
    JSON = "application/json"
    FILE = "application/octet-stream"
    FORM = "application/x-www-form-urlencoded"
    FORM_WITH_FILES = "multipart/form-data"


class Route(NamedTuple):
    """A method of a path.

    Attributes:
        method, path: as HTTP has them; parameters of the path in braces.
        answer: what makes the answer, in a thread.
        role: who may use it; None is everybody.
        summary: in one line.
        codes: of answers that are no errors, and the schema of each.
        body: what a request carries.
        content: the schema of a body in JSON.
        query: the schemas of parameters after the path.
        errors: codes of errors that are its own.
        media: of answers that are no errors.
    """

    method: str
    path: str
    answer: Callable[[Service, Call], Answer]
    role: Role | None
    summary: str
    codes: Mapping[int, Schema]
    body: BodyKind = BodyKind.NOTHING
    content: Schema = _NOTHING
    query: Mapping[str, Schema] = _NOTHING
    errors: tuple[int, ...] = ()
    media: str = "application/json"


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}
_MOMENT: Schema = {"type": ["number", "null"], "description": "seconds since 1970, UTC"}
_ANY: Schema = {"type": ["object", "null"]}
_LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
_STATE: Schema = {"type": "string", "enum": [str(state) for state in SearchState]}
_ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{20}$"}
_DIGEST: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_SEARCH = _object(
    ("id", "state", "reason", "progress", "best", "created", "links"),
    id=_ID,
    state=_STATE,
    reason=_TEXT,
    model=_TEXT,
    cluster=_TEXT,
    target=_TEXT,
    objective=_TEXT,
    owner={"type": ["string", "null"]},
    priority={"type": ["integer", "null"]},
    shared={"type": "boolean"},
    created={"type": "number"},
    started=_MOMENT,
    ended=_MOMENT,
    used_s={"type": "number"},
    n_measured=_WHOLE,
    n_trials=_WHOLE,
    n_attempts=_WHOLE,
    ended_by={"type": ["string", "null"], "description": "the limit that ended it: seconds, measurements or trials"},
    progress=_ANY,
    best={"type": ["object", "null"], "description": "the best so far, then the answer as `search --json` has it"},
    answer={"type": ["object", "null"], "description": "all that `search --json` prints, and the lines without it"},
    links=_object(),
)
_SUBMISSION = {
    **_object(
        model={"type": "string", "description": "a built-in name, or sha256: and the digest of an uploaded file"},
        cluster={"type": "string", "description": "a built-in name, or sha256: and the digest of an uploaded file"},
        target=_TEXT,
        space={"type": "object", "description": "values of knobs, as under [knobs] of a search file"},
        request={"type": "object", "description": "a whole SearchRequest, in place of the options"},
        limits=_object(measurements=_LIMIT, trials=_LIMIT),
        labels={"type": "object", "additionalProperties": _TEXT, "description": "what a worker must say of itself"},
        priority={"type": "integer", "minimum": -MAX_PRIORITY, "maximum": MAX_PRIORITY},
        shared={"type": "boolean"},
    ),
    "description": "Options and knobs as in a search file (docs/search.md), for example objective and time_budget",
    "examples": [{"model": "resnet50", "cluster": "bow-2000", "space": {"n_ipu": [1, 2], "replicas": [1, 2]}}],
}
_PROBLEM = _object(
    ("type", "title", "status", "detail", "request_id"),
    type=_TEXT,
    title=_TEXT,
    status=_WHOLE,
    detail={"type": "string", "description": "what must hold, what was given, what to try"},
    request_id=_TEXT,
)
_SCHEMAS = {
    "Search": _SEARCH,
    "Submission": _SUBMISSION,
    "Problem": _PROBLEM,
    "Submitted": _object(("id", "state"), id=_ID, state=_STATE, links=_object()),
    "Searches": _object(
        ("searches", "next"),
        searches={"type": "array", "items": _ref("Search")},
        next={"type": ["string", "null"], "description": "the path of the next page"},
    ),
    "Model": _object(("digest", "model"), digest=_DIGEST, model=_TEXT),
    "Health": _object(("status",), status=_TEXT, version=_TEXT),
}
_PAGE: Mapping[str, Schema] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 50},
    "before": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "default": 0},
}
_OF_A_SEARCH = "/v1/searches/{search_id}"
PARAMETERS: Mapping[str, Schema] = {"search_id": _TEXT, "digest": _TEXT}
"""The schemas of what may stand in a path; another text than an id is answered with 404, as one of nobody's."""


def _page(path: str, answer: Callable[[Service, Call], Answer], role: Role | None, summary: str, *query: str) -> Route:
    """A page of HTML."""
    errors = (404,) if "{" in path else ()
    schemas = dict.fromkeys(query, _TEXT)
    return Route("GET", path, answer, role, summary, {200: _TEXT}, query=schemas, errors=errors, media="text/html")


def _form(path: str, answer: Callable[[Service, Call], Answer], role: Role | None, summary: str, *names: str) -> Route:
    """What a form of a page sends, after which the browser reads another page."""
    errors = (404, 409) if "{" in path else ()
    content = _object((), **dict.fromkeys(names, _TEXT))
    return Route("POST", path, answer, role, summary, {303: _TEXT}, BodyKind.FORM, content, errors=errors)


ROUTES = (
    Route("GET", "/health", handlers.health, None, "Whether the server can work", {200: _ref("Health")}, errors=(503,)),
    Route("GET", "/openapi.json", handlers.openapi, None, "This document", {200: _object()}),
    Route("GET", "/metrics", handlers.metrics, Role.READER, "Counts, for Prometheus", {200: _TEXT}, media="text/plain"),
    Route(
        *("POST", "/v1/searches", handlers.submit, Role.SUBMITTER, "Ask for a search; an equal one is the same"),
        {202: _ref("Submitted"), 200: _ref("Submitted")},
        BodyKind.JSON,
        _ref("Submission"),
    ),
    Route(
        *("GET", "/v1/searches", handlers.list_page, Role.READER, "The searches that you may see, the newest first"),
        {200: _ref("Searches")},
        query={**_PAGE, "state": _STATE, "owner": _TEXT},
    ),
    Route(
        *("GET", _OF_A_SEARCH, handlers.read, Role.READER, "A search: its state, its best so far, its answer"),
        {200: _ref("Search")},
        errors=(404,),
    ),
    Route(
        *("POST", f"{_OF_A_SEARCH}/stop", handlers.stop, Role.SUBMITTER, "End a search with its best so far"),
        {200: _ref("Search")},
        errors=(404,),
    ),
    Route(
        *("POST", f"{_OF_A_SEARCH}/resume", handlers.resume, Role.SUBMITTER, "Let an ended search go on"),
        {200: _ref("Search")},
        errors=(404, 409),
    ),
    Route(
        *("POST", "/v1/models", handlers.upload, Role.SUBMITTER, "Upload a model or a cluster, once"),
        {201: _ref("Model"), 200: _ref("Model")},
        BodyKind.FILE,
    ),
    Route(
        *("GET", "/v1/models/{digest}", handlers.read_model, Role.SUBMITTER, "Whether you have uploaded a file"),
        {200: _ref("Model")},
        errors=(404,),
    ),
    _page("/", listing.searches_page, Role.READER, "The list of searches", "limit", "before", "state", "owner"),
    _page("/login", access.login_page, None, "Where a token is typed", "next"),
    _form("/login", access.login, None, "Keep a token in the browser", "token", "next"),
    _form("/logout", access.logout, None, "Forget the token that the browser keeps"),
    _page("/assets/pages.css", access.styles, None, "The style sheet of the pages")._replace(media="text/css"),
    _page("/assets/pages.js", access.scripts, None, "The script of the pages")._replace(media="text/javascript"),
)
"""All that the server answers."""


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document of the table."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "autoauto",
            "version": VERSION,
            "description": "Searches for the configuration of a cluster with the highest throughput, as a service.",
        },
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    parameters = [{"name": name, "in": "path", "required": True, "schema": PARAMETERS[name]} for name in names]
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in route.query.items()]
    responses = {str(code): _response(route.media, schema) for code, schema in route.codes.items()}
    responses |= {str(code): _response("application/problem+json", _ref("Problem")) for code in _error_codes(route)}
    operation: dict[str, Any] = {
        "operationId": route.answer.__name__,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
        "security": [{"token": []}, {"cookie": []}] if route.role else [],
    }
    if route.role:
        operation["description"] = f"For the role {route.role} and those above it."
    if route.body is not BodyKind.NOTHING:
        schema: Schema = {"type": "string", "format": "binary"} if route.body is BodyKind.FILE else route.content
        operation["requestBody"] = {"required": True, "content": {route.body.value: {"schema": schema}}}
    return operation


def _error_codes(route: Route) -> list[int]:
    """The codes of errors that a route may answer with."""
    codes = {400, 429, 500, 503, *route.errors}
    codes |= {401, 403} if route.role else set()
    codes |= {408, 413, 415} if route.body is not BodyKind.NOTHING else set()
    return sorted(codes)


def _response(media: str, schema: Schema) -> dict[str, Any]:
    return {"description": "as the schema says", "content": {media: {"schema": schema}}}
