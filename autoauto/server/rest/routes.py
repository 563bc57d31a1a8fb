"""The one table of what clients may ask for, `ROUTES`: it makes the paths, who may use them, and the OpenAPI document.

A path that is not here is not there, and one without a role is open to everybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from autoauto.server.call import Handler
from autoauto.server.pages import access, comparison, dashboard, listing, search, start, uploads
from autoauto.server.pages.search_fields import FIELDS
from autoauto.server.rest import handlers, leases, views
from autoauto.server.rest.events import EVENTS
from autoauto.server.rest.parameters import TEXT, Schema, named
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
        answer: makes the answer, in a thread; the first line of its docstring is the summary in the document.
        role: who may use it; None is everybody.
        codes: of answers that are no errors, and the schema of each.
        errors: codes of errors that are its own.
        media: of answers that are no errors, with blanks between several.
        runs_command: whether the answer waits for a command.
    """

    method: str
    path: str
    answer: Handler
    role: Role | None
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


def _view(path: str, answer: Handler, forms: str, *query: str) -> Route:
    """The output of a command over a search; the client chooses one of `forms`, the first is the default."""
    names = forms.split()
    chosen: Schema = {"type": "string", "enum": names, "default": names[0]}
    media = dict.fromkeys(MEDIA[name].partition(";")[0] for name in names)
    return Route(
        "GET",
        f"{_OF_A_SEARCH}/{path}",
        answer,
        Role.READER,
        {200: BYTES},
        query={"as": chosen, **named("columns", *query)},
        errors=(404, 409),
        media=" ".join(media),
        runs_command=True,
    )


def _of_worker(path: str, answer: Handler, codes: Mapping[int, Schema], body: str) -> Route:
    errors = (409,) if path else ()
    return Route("POST", f"/v1/leases{path}", answer, Role.WORKER, codes, BodyKind.JSON, ref(body), errors=errors)


def _page(path: str, answer: Handler, role: Role | None, *query: str) -> Route:
    errors = (404,) if "{" in path else ()
    return Route("GET", path, answer, role, {200: TEXT}, query=named(*query), errors=errors, media="text/html")


def _form(path: str, answer: Handler, role: Role | None, *names: str) -> Route:
    """The path that takes a form of a page; the browser is sent to another page afterwards."""
    errors = (404, 409) if "{" in path else ()
    content = object_of((), **dict.fromkeys(names, TEXT))
    return Route("POST", path, answer, role, {303: NOTHING}, BodyKind.FORM, content, errors=errors)


def _dashboard(path: str, *query: str) -> Route:
    route = _page(path, dashboard.dashboard(path), Role.READER, *query)
    codes = {200: {"description": "as the dashboard has it"}}
    return route._replace(codes=codes, errors=(404,), media=dashboard.MEDIA)


def _events(path: str, answer: Handler, *errors: int) -> Route:
    return Route("GET", path, answer, Role.READER, {200: EVENT_STREAM}, errors=errors, media=EVENTS)


_LEASE = object_of(("search_id", "token", "submission"), search_id=TEXT, token=TEXT, submission=TEXT)
_SUBMITTED = {202: ref("Submitted"), 200: ref("Submitted")}
_LISTED = named("limit", "before", "state", "owner")
ROUTES = (
    Route("GET", "/health", handlers.health, None, {200: ref("Health")}, errors=(503,)),
    Route("GET", "/openapi.json", handlers.openapi, None, {200: object_of()}),
    Route("GET", "/metrics", handlers.metrics, Role.READER, {200: TEXT}, media="text/plain"),
    Route("POST", "/v1/searches", handlers.submit, Role.SUBMITTER, _SUBMITTED, BodyKind.JSON, ref("Submission")),
    Route("GET", "/v1/searches", handlers.list_page, Role.READER, {200: ref("Searches")}, query=_LISTED),
    Route("GET", _OF_A_SEARCH, handlers.read, Role.READER, {200: ref("Search")}, errors=(404,)),
    Route("DELETE", _OF_A_SEARCH, handlers.delete, Role.SUBMITTER, {204: NOTHING}, errors=(404, 409)),
    Route(
        "GET",
        f"{_OF_A_SEARCH}/trials",
        handlers.list_trials,
        Role.READER,
        {200: ref("Trials")},
        query=named("limit", "first"),
        errors=(404,),
    ),
    _view("report", views.report, "text html json"),
    _view("explain", views.explain, "text json"),
    _view("table", views.table, "text csv json parquet", "top"),
    _view("difference", views.difference, "text json", "other"),
    _view("export", views.export, "text json", "to", "check")._replace(media=MEDIA["zip"]),
    _events(f"{_OF_A_SEARCH}/events", handlers.search_events, 404),
    _events("/v1/events", handlers.events),
    Route("POST", f"{_OF_A_SEARCH}/stop", handlers.stop, Role.SUBMITTER, {200: ref("Search")}, errors=(404,)),
    Route("POST", f"{_OF_A_SEARCH}/resume", handlers.resume, Role.SUBMITTER, {200: ref("Search")}, errors=(404, 409)),
    Route(
        "POST",
        "/v1/models",
        handlers.upload,
        Role.SUBMITTER,
        {201: ref("Model"), 200: ref("Model")},
        BodyKind.FILE,
        query=named("name"),
        errors=(409,),
    ),
    Route(
        "GET", "/v1/models", handlers.list_models, Role.SUBMITTER, {200: ref("Models")}, query=named("limit", "before")
    ),
    Route("GET", "/v1/models/{digest}", handlers.read_model, Role.SUBMITTER, {200: ref("Model")}, errors=(404,)),
    Route("DELETE", "/v1/models/{digest}", handlers.delete_model, Role.SUBMITTER, {204: NOTHING}, errors=(404, 409)),
    _of_worker("", leases.claim, {200: _LEASE, 204: NOTHING}, "ClaimRequest"),
    _of_worker("/{lease}/trials", leases.lease_trials, {200: object_of()}, "TrialsRequest"),
    _of_worker("/{lease}/renew", leases.renew, {200: object_of()}, "RenewRequest"),
    _of_worker("/{lease}/finish", leases.finish, {204: NOTHING}, "FinishRequest"),
    _of_worker("/{lease}/release", leases.release, {204: NOTHING}, "ReleaseRequest"),
    Route(
        "GET",
        "/v1/models/{digest}/content",
        leases.model_part,
        Role.WORKER,
        {200: BYTES},
        query=named("part"),
        errors=(404,),
        media="application/octet-stream",
    ),
    _page("/", listing.searches_page, Role.READER, "limit", "before", "state", "owner"),
    _page("/login", access.login_page, None, "next"),
    _form("/login", access.login, None, "token", "next"),
    _form("/logout", access.logout, None),
    _page("/new", start.start_page, Role.SUBMITTER, "target"),
    _form("/new", start.starting(handlers.submit), Role.SUBMITTER, *FIELDS)._replace(body=BodyKind.FORM_WITH_FILES),
    _page("/uploads", uploads.uploads_page, Role.SUBMITTER, "limit", "before"),
    _form("/uploads/{digest}/delete", uploads.delete_by_page, Role.SUBMITTER),
    _page("/searches/{search_id}", search.search_page, Role.READER),
    _form("/searches/{search_id}/stop", search.stop_by_page, Role.SUBMITTER),
    _form("/searches/{search_id}/resume", search.resume_by_page, Role.SUBMITTER),
    _page("/compare", comparison.comparison_page, Role.READER, "search", "other")._replace(errors=(404,)),
    *(_dashboard(path, *names) for path, names in dashboard.PATHS.items()),
    _page("/assets/pages.css", access.styles, None)._replace(media="text/css"),
    _page("/assets/pages.js", access.scripts, None)._replace(media="text/javascript"),
)
"""All that the server answers."""
