"""The one table of what clients may ask for, `ROUTES`: it makes the paths, who may use them, and the OpenAPI document.

A path that is not here is not there, and one without a role is open to everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from autoauto.server.call import Answer, Call, Service
from autoauto.server.pages import access, comparison, dashboard, listing, search, start, uploads
from autoauto.server.pages.search_fields import FIELDS
from autoauto.server.rest import handlers, leases, views
from autoauto.server.rest.events import EVENTS
from autoauto.server.rest.parameters import (
    BY_NAME,
    CHECK,
    COLUMNS,
    FILE_NAME,
    LIMIT,
    NUMBER,
    STATE,
    TEXT,
    TO,
    TOP,
    Schema,
)
from autoauto.server.rest.schemas import BYTES, EVENT_STREAM, NOTHING, object_of, ref
from autoauto.server.rest.views import MEDIA
from autoauto.server.store.users import Role


class BodyKind(Enum):
    """The kinds of bodies of requests, by media type."""

    NOTHING = ""
    JSON = "application/json"
    FILE = "application/octet-stream"
    FORM = "application/x-www-form-urlencoded"
    FORM_WITH_FILES = "multipart/form-data"


class Route(NamedTuple):
    """A method of a path.

    Attributes:
        method, path: as HTTP has them; parameters of the path in braces.
        role: who may use it; None is everybody.
        summary: in one line.
        codes: of answers that are no errors, and the schema of each.
        content: the schema of a body in JSON.
        errors: codes of errors that are its own.
        media: of answers that are no errors, with blanks between several.
        runs_command: whether the answer waits for a command.
    """

    method: str
    path: str
    answer: Callable[[Service, Call], Answer]
    role: Role | None
    summary: str
    codes: Mapping[int, Schema]
    body: BodyKind = BodyKind.NOTHING
    content: Schema = NOTHING
    query: Mapping[str, Schema] = NOTHING
    errors: tuple[int, ...] = ()
    media: str = "application/json"
    runs_command: bool = False


_OF_A_SEARCH = "/v1/searches/{search_id}"
PARAMETERS: Mapping[str, Schema] = dict.fromkeys(
    ("search_id", "digest", "lease", "study_number", "view", "tab", "plot", "file"), TEXT
)
"""The schemas of parameters of paths. All are texts: one that is no id is answered with 404, as an unknown id."""


def _view(path: str, answer: Callable[[Service, Call], Answer], summary: str, forms: str, **query: Schema) -> Route:
    """The output of a command over a search; the client chooses one of `forms`, the first is the default."""
    names = forms.split()
    chosen: Schema = {"type": "string", "enum": names, "default": names[0]}
    media = dict.fromkeys(MEDIA[name].partition(";")[0] for name in names)
    return Route(
        "GET",
        f"{_OF_A_SEARCH}/{path}",
        answer,
        Role.READER,
        summary,
        {200: BYTES},
        query={"as": chosen, "columns": COLUMNS, **query},
        errors=(404, 409),
        media=" ".join(media),
        runs_command=True,
    )


def _of_worker(
    path: str, answer: Callable[[Service, Call], Answer], summary: str, codes: Mapping[int, Schema], body: str
) -> Route:
    errors = (409,) if path else ()
    content = ref(body)
    return Route(
        "POST", f"/v1/leases{path}", answer, Role.WORKER, summary, codes, BodyKind.JSON, content, errors=errors
    )


def _page(path: str, answer: Callable[[Service, Call], Answer], role: Role | None, summary: str, *query: str) -> Route:
    errors = (404,) if "{" in path else ()
    schemas = {name: BY_NAME.get(name, TEXT) for name in query}
    return Route("GET", path, answer, role, summary, {200: TEXT}, query=schemas, errors=errors, media="text/html")


def _form(path: str, answer: Callable[[Service, Call], Answer], role: Role | None, summary: str, *names: str) -> Route:
    """The path that takes a form of a page; the browser is sent to another page afterwards."""
    errors = (404, 409) if "{" in path else ()
    content = object_of((), **dict.fromkeys(names, TEXT))
    return Route("POST", path, answer, role, summary, {303: NOTHING}, BodyKind.FORM, content, errors=errors)


def _dashboard(path: str, *query: str) -> Route:
    route = _page(path, dashboard.dashboard(path), Role.READER, "Optuna's dashboard, to read only", *query)
    codes = {200: {"description": "as the dashboard has it"}}
    return route._replace(codes=codes, errors=(404,), media=dashboard.MEDIA)


_LEASE = object_of(("search_id", "token", "submission"), search_id=TEXT, token=TEXT, submission=TEXT)

ROUTES = (
    Route("GET", "/health", handlers.health, None, "Whether the server can work", {200: ref("Health")}, errors=(503,)),
    Route("GET", "/openapi.json", handlers.openapi, None, "This document", {200: object_of()}),
    Route("GET", "/metrics", handlers.metrics, Role.READER, "Counts, for Prometheus", {200: TEXT}, media="text/plain"),
    Route(
        "POST",
        "/v1/searches",
        handlers.submit,
        Role.SUBMITTER,
        "Ask for a search; an equal one is the same",
        {202: ref("Submitted"), 200: ref("Submitted")},
        BodyKind.JSON,
        ref("Submission"),
    ),
    Route(
        "GET",
        "/v1/searches",
        handlers.list_page,
        Role.READER,
        "The searches that you may see, the newest first",
        {200: ref("Searches")},
        query={"limit": LIMIT, "before": NUMBER, "state": STATE, "owner": TEXT},
    ),
    Route(
        "GET",
        _OF_A_SEARCH,
        handlers.read,
        Role.READER,
        "A search: its state, its best so far, its answer",
        {200: ref("Search")},
        errors=(404,),
    ),
    Route(
        "DELETE",
        _OF_A_SEARCH,
        handlers.delete,
        Role.SUBMITTER,
        "Forget a search that has ended, with its trials",
        {204: NOTHING},
        errors=(404, 409),
    ),
    Route(
        "GET",
        f"{_OF_A_SEARCH}/trials",
        handlers.list_trials,
        Role.READER,
        "The trials of a search, by number",
        {200: ref("Trials")},
        query={"limit": LIMIT, "first": NUMBER},
        errors=(404,),
    ),
    _view("report", views.report, "The best of a search, its stages and top trials", "text html json"),
    _view("explain", views.explain, "Why the best won, and what every other cell lacks", "text json"),
    _view("table", views.table, "All trials of a search in a table", "text csv json parquet", top=TOP),
    _view("difference", views.difference, "A search beside another one", "text json", other=TEXT),
    _view("export", views.export, "The best as files of another runtime", "text json", to=TO, check=CHECK)._replace(
        media=MEDIA["zip"]
    ),
    Route(
        "GET",
        f"{_OF_A_SEARCH}/events",
        handlers.search_events,
        Role.READER,
        "Every change of a search",
        {200: EVENT_STREAM},
        errors=(404,),
        media=EVENTS,
    ),
    Route(
        "GET",
        "/v1/events",
        handlers.events,
        Role.READER,
        "Every change of your newest searches",
        {200: EVENT_STREAM},
        media=EVENTS,
    ),
    Route(
        "POST",
        f"{_OF_A_SEARCH}/stop",
        handlers.stop,
        Role.SUBMITTER,
        "End a search with its best so far",
        {200: ref("Search")},
        errors=(404,),
    ),
    Route(
        "POST",
        f"{_OF_A_SEARCH}/resume",
        handlers.resume,
        Role.SUBMITTER,
        "Let an ended search go on",
        {200: ref("Search")},
        errors=(404, 409),
    ),
    Route(
        "POST",
        "/v1/models",
        handlers.upload,
        Role.SUBMITTER,
        "Upload a model or a cluster, once",
        {201: ref("Model"), 200: ref("Model")},
        BodyKind.FILE,
        query={"name": FILE_NAME},
        errors=(409,),
    ),
    Route(
        "GET",
        "/v1/models",
        handlers.list_models,
        Role.SUBMITTER,
        "The files that you have uploaded",
        {200: ref("Models")},
        query={"limit": LIMIT, "before": NUMBER},
    ),
    Route(
        "GET",
        "/v1/models/{digest}",
        handlers.read_model,
        Role.SUBMITTER,
        "A file that you have uploaded",
        {200: ref("Model")},
        errors=(404,),
    ),
    Route(
        "DELETE",
        "/v1/models/{digest}",
        handlers.delete_model,
        Role.SUBMITTER,
        "Forget a file that you uploaded",
        {204: NOTHING},
        errors=(404, 409),
    ),
    _of_worker("", leases.claim, "Lease the next search", {200: _LEASE, 204: NOTHING}, "ClaimRequest"),
    _of_worker(
        "/{lease}/trials", leases.lease_trials, "Trials of a leased search", {200: object_of()}, "TrialsRequest"
    ),
    _of_worker("/{lease}/renew", leases.renew, "Extend a lease, add trials", {200: object_of()}, "RenewRequest"),
    _of_worker("/{lease}/finish", leases.finish, "End a leased search", {204: NOTHING}, "FinishRequest"),
    _of_worker("/{lease}/release", leases.release, "Give a search back", {204: NOTHING}, "ReleaseRequest"),
    Route(
        "GET",
        "/v1/models/{digest}/content",
        leases.model_part,
        Role.WORKER,
        "A part of an uploaded file",
        {200: BYTES},
        query={"part": NUMBER},
        errors=(404,),
        media="application/octet-stream",
    ),
    _page("/", listing.searches_page, Role.READER, "The list of searches", "limit", "before", "state", "owner"),
    _page("/login", access.login_page, None, "Where a token is typed", "next"),
    _form("/login", access.login, None, "Keep a token in the browser", "token", "next"),
    _form("/logout", access.logout, None, "Forget the token that the browser keeps"),
    _page("/new", start.start_page, Role.SUBMITTER, "The form that starts a search", "target"),
    _form("/new", start.starting(handlers.submit), Role.SUBMITTER, "Start a search", *FIELDS)._replace(
        body=BodyKind.FORM_WITH_FILES
    ),
    _page("/uploads", uploads.uploads_page, Role.SUBMITTER, "The files that you have uploaded", "limit", "before"),
    _form("/uploads/{digest}/delete", uploads.delete_by_page, Role.SUBMITTER, "Forget a file, by its page"),
    _page("/searches/{search_id}", search.search_page, Role.READER, "What a search does, and its best so far"),
    _form("/searches/{search_id}/stop", search.stop_by_page, Role.SUBMITTER, "End a search, by its page"),
    _form("/searches/{search_id}/resume", search.resume_by_page, Role.SUBMITTER, "Let a search go on, by its page"),
    _page("/compare", comparison.comparison_page, Role.READER, "Two searches side by side", "search", "other")._replace(
        errors=(404,)
    ),
    *(_dashboard(path, *names) for path, names in dashboard.PATHS.items()),
    _page("/assets/pages.css", access.styles, None, "The style sheet of the pages")._replace(media="text/css"),
    _page("/assets/pages.js", access.scripts, None, "The script of the pages")._replace(media="text/javascript"),
)
"""All that the server answers."""
