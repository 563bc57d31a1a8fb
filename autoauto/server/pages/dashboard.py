"""Optuna's dashboard behind the login, to read only: `PATHS`, and what answers them, `dashboard`.

It is a WSGI application that knows neither users nor owners. So each of its paths that only reads is named here, and no
other is forwarded; of studies a user gets those of searches that he may see, administrators all of the database.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from importlib.util import find_spec
from io import BytesIO, StringIO
from time import monotonic
from typing import Any
from urllib.parse import urlencode

import msgspec

from autoauto.records.errors import BadInput, missing_extra
from autoauto.server.call import Answer, Call, Handler, Service
from autoauto.server.store.searches import NotFound, visible_ids
from autoauto.server.store.tables import ServiceDatabase
from autoauto.server.store.trials import name_of_study, study_name
from autoauto.server.store.users import Role, User

MEDIA = "text/html application/json text/csv text/javascript"
RENEW_S = 3_600
STUDIES = "/api/studies"
_STUDY = f"{STUDIES}/{{study_number}}"
PATHS: Mapping[str, tuple[str, ...]] = {
    "/dashboard": (),
    "/dashboard/": (),
    "/static/{file}": (),
    "/api/meta": (),
    STUDIES: (),
    "/dashboard/{view}": ("ids",),
    _STUDY: ("after",),
    "/csv/{study_number}": ("trial_ids",),
    "/dashboard/{view}/{study_number}": (),
    "/dashboard/{view}/{study_number}/{tab}": (),
    f"{_STUDY}/param_importances": (),
    f"{_STUDY}/plot/{{plot}}": (),
}
"""The paths of the dashboard that are forwarded, with the parameters of each."""


def dashboard(path: str) -> Handler:
    """Make the handler of one path of the dashboard."""

    def read_dashboard(service: Service, call: Call) -> Answer:
        """Optuna's dashboard, to read only."""
        number = call.path.get("study_number")
        if number is not None:
            name = name_of_study(service.database, number)
            if name is None or (call.user.role is not Role.ADMIN and name not in _visible_names(service, call.user)):
                raise NotFound(f"there is no study {number!r:.60} that you may see; /dashboard lists yours")
        query = {name: value for name, value in call.query.items() if value is not None}
        # A new number, and so a fresh application, every hour.
        application = _application(service.database, int(monotonic() // RENEW_S))
        status, given, body = _read(application, path.format(**call.path), urlencode(query))
        if status >= HTTPStatus.BAD_REQUEST:
            kind = BadInput if status == HTTPStatus.BAD_REQUEST else NotFound
            raise kind(f"the dashboard must have this page, it answers {status}; open /dashboard")
        if path == STUDIES and call.user.role is not Role.ADMIN:
            names = _visible_names(service, call.user)
            listed = msgspec.json.decode(body)
            listed["study_summaries"] = [each for each in listed["study_summaries"] if each["study_name"] in names]
            body = msgspec.json.encode(listed)
        media = given.get("Content-Type", "text/html; charset=UTF-8")
        shown = ("Content-Security-Policy", "Content-Encoding", "Content-Disposition")
        headers = {name: given[name] for name in shown if name in given}
        return Answer(status, None, raw=(body, media), headers=headers)

    read_dashboard.__name__ = "read" + re.sub(r"\W+", "_", path)
    return read_dashboard


def _visible_names(service: Service, user: User) -> set[str]:
    return set(map(study_name, visible_ids(service.database, user)))


@lru_cache(1)
def _application(database: ServiceDatabase, _: int) -> Any:
    """The WSGI application of optuna-dashboard. It caches what it reads, so a new number makes a fresh one."""
    if not find_spec("optuna_dashboard"):
        raise NotFound(str(missing_extra("the dashboard", "dashboard")))
    import optuna_dashboard

    return optuna_dashboard.wsgi(database.studies)


def _read(application: Any, path: str, query: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer of a WSGI application to a GET."""
    started: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> None:
        started[:] = int(status.split(maxsplit=1)[0]), dict(headers)

    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": path.encode().decode("latin-1"),  # as WSGI has bytes of a path
        "QUERY_STRING": query,
        "SCRIPT_NAME": "",
        "HTTP_HOST": "local",
        "HTTP_ACCEPT_ENCODING": "gzip",
        "SERVER_NAME": "local",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(),
        "wsgi.errors": StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    parts = application(environ, start_response)
    try:
        body = b"".join(parts)
    finally:
        if hasattr(parts, "close"):
            parts.close()
    status, headers = started
    return status, headers, body
