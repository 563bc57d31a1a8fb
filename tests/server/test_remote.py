"""A worker that reaches only the server, without a network: no trial is lost or written twice, and every end is known.

Its requests go to the handlers that a server calls, and both databases are looked at afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from optuna.study import StudyDirection

from autoauto.cli.commands.studies import search
from autoauto.cli.submission import request_of_json
from autoauto.server.call import Call, Service
from autoauto.server.client import Client, Refused
from autoauto.server.rest import handlers, leases
from autoauto.server.rest.door import STATUS
from autoauto.server.store.queue import Lease, Standing
from autoauto.server.store.searches import (
    NotFound,
    SearchState,
    delete_search,
    read_search,
    resume_search,
    stop_search,
    submit,
)
from autoauto.server.store.study_copy import read_trial
from autoauto.server.store.submission import Submission
from autoauto.server.store.tables import SEARCHES, ServiceDatabase
from autoauto.server.store.trials import study_name, study_number
from autoauto.server.store.users import Role, User
from autoauto.server.work import remote
from autoauto.server.work.remote import RemoteSource, Unwelcome
from autoauto.study.store.database import open_storage
from tests.server.conftest import JOHN, MARY, small
from tests.server.test_worker_messages import ANSWER, HEAD, PROGRESS, TRIAL

WORKER = User("box", Role.WORKER)
STANDING = Standing(PROGRESS, 1, 2.0, True)


class Requests:
    """What `RemoteSource` asks of a client, answered by the handlers; `sent` are the messages by their last word."""

    def __init__(self, database: ServiceDatabase) -> None:
        self.service = cast("Service", SimpleNamespace(database=database))
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def ask(self, method: str, path: str, body: Any) -> dict[str, Any]:
        assert method == "POST"
        _, _, _, *rest = path.split("/")
        what = rest[1] if rest else "claim"
        self.sent.append((what, body))
        call = Call(WORKER, {"lease": rest[0]} if rest else {}, {}, body=json.dumps(body).encode())
        handler = leases.lease_trials if what == "trials" else getattr(leases, what)
        try:
            content = handler(self.service, call).content
        except tuple(STATUS) as error:
            raise Refused(str(error), STATUS[type(error)]) from error
        plain: dict[str, Any] = json.loads(msgspec.json.encode(content or {}))
        return plain


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    opened = ServiceDatabase(f"sqlite:///{tmp_path}/server.db")
    yield opened
    opened.close()


@pytest.fixture
def requests(database: ServiceDatabase) -> Requests:
    return Requests(database)


def source_of(requests: Requests, folder: Path) -> RemoteSource:
    folder.mkdir(exist_ok=True)
    return RemoteSource(cast("Client", requests), folder, {}, None)


def submitted(database: ServiceDatabase, batch_size: int = 4) -> str:
    request = partial(request_of_json, search.add_arguments)(small(batch_size))
    return submit(database, MARY, Submission.of(request)).search_id


def started(source: RemoteSource) -> tuple[Lease, str]:
    """A lease, and the database of its trials on the machine of the worker."""
    lease = source.claim()
    assert lease is not None
    return lease, source.open(lease)


def search_on(url: str, lease: Lease, n: int, pad: int = 0) -> None:
    """What a runner does: `n` further trials, whose value is their number; a study where there is none."""
    storage, name = open_storage(url), study_name(lease.search_id)
    try:
        study_id = storage.get_study_id_from_name(name)
    except KeyError:
        study_id = storage.create_new_study([StudyDirection.MAXIMIZE], name)
        for key, value in HEAD["user"].items():
            storage.set_study_user_attr(study_id, key, value)
    for number in range(first := storage.get_n_trials(study_id), first + n):
        attributes = {"status": "ok", "samples_per_s": float(number), "text": "x" * pad}
        storage.add_trial(study_id, read_trial(json.dumps({**TRIAL, "values": [number], "user_attrs": attributes})))


def values(database: ServiceDatabase, search_id: str) -> list[float]:
    """The values of all trials that the server has, in order."""
    study_id = study_number(database, search_id)
    return [] if study_id is None else [trial.values[0] for trial in database.studies.get_all_trials(study_id)]


def column(database: ServiceDatabase, search_id: str, name: str) -> Any:
    query = SEARCHES.select().where(SEARCHES.c.id == search_id)
    return database.write(lambda connection: getattr(connection.execute(query).one(), name))


def test_every_trial_reaches_the_server_once_and_another_worker_goes_on_from_all(
    database: ServiceDatabase, requests: Requests, tmp_path: Path
) -> None:
    """More than two pages of trials, sent in three renewals, of which one has nothing new."""
    search_id = submitted(database)
    first = source_of(requests, tmp_path / "first")
    lease, url = started(first)
    assert first.renew(lease, None) is False  # nothing yet
    search_on(url, lease, 3)
    assert first.renew(lease, STANDING) is False
    assert values(database, search_id) == [0, 1, 2]
    assert first.renew(lease, None) is False
    search_on(url, lease, 120)
    assert first.renew(lease, STANDING) is False
    assert values(database, search_id) == list(range(123))
    n_each = [len(body["trials"]) for what, body in requests.sent if what == "renew" and body.get("trials")]
    assert n_each == [3, 50, 50, 20]  # none of them twice
    search_on(url, lease, 2)
    first.release(lease)
    assert values(database, search_id) == list(range(125))
    assert (column(database, search_id, "state"), column(database, search_id, "n_trials")) == ("waiting", 123)

    second = source_of(requests, tmp_path / "second")
    again, copy = started(second)
    assert (again.search_id, again.token != lease.token) == (search_id, True)
    assert [trial.values[0] for trial in open_storage(copy).get_all_trials(1)] == list(range(125))
    assert open_storage(copy).get_study_user_attrs(1) == HEAD["user"]
    search_on(copy, again, 1)
    assert second.finish(again, SearchState.FINISHED, ANSWER, "", 5.0)
    assert values(database, search_id) == list(range(126))
    ended = read_search(database, MARY, search_id)
    assert (ended["state"], ended["answer"]["lines"]) == ("finished", ANSWER["lines"])
    assert (column(database, search_id, "n_trials"), column(database, search_id, "used_s")) == (126, 5.0)
    assert column(database, search_id, "token") is None
    assert second.claim() is None


def test_large_trials_are_sent_in_more_parts(
    database: ServiceDatabase, requests: Requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two fit into a message; the third, which no message holds, goes alone."""
    monkeypatch.setattr(remote, "MAX_BYTES", 5_000)
    search_id = submitted(database)
    source = source_of(requests, tmp_path / "worker")
    lease, url = started(source)
    for n, pad in ((2, 1_500), (1, 9_000), (1, 10)):
        search_on(url, lease, n, pad)
    assert source.renew(lease, STANDING) is False
    assert [len(body["trials"]) for what, body in requests.sent if what == "renew"] == [2, 1, 1]
    assert values(database, search_id) == [0, 1, 2, 3]


def test_another_search_begins_with_an_empty_folder(
    database: ServiceDatabase, requests: Requests, tmp_path: Path
) -> None:
    ids = [submitted(database, size) for size in (1, 2)]
    source = source_of(requests, tmp_path / "worker")
    for search_id, n in zip(ids, (4, 2), strict=True):
        lease, url = started(source)
        assert {file.name.partition(".")[0] for file in (tmp_path / "worker").iterdir()} == {search_id}
        search_on(url, lease, n)
        assert source.finish(lease, SearchState.FINISHED, ANSWER, "", 1.0)
    assert [values(database, search_id) for search_id in ids] == [[0, 1, 2, 3], [0, 1]]


def test_a_stop_reaches_the_worker_and_a_resume_gives_the_search_to_the_next(
    database: ServiceDatabase, requests: Requests, tmp_path: Path
) -> None:
    search_id = submitted(database)
    source = source_of(requests, tmp_path / "worker")
    lease, url = started(source)
    search_on(url, lease, 2)
    assert source.renew(lease, STANDING) is False
    assert (read_search(database, MARY, search_id)["state"], column(database, search_id, "wants_stop")) == (
        "running",
        False,
    )
    stop_search(database, MARY, search_id)
    assert source.renew(lease, None) is True
    resume_search(database, MARY, search_id)
    assert source.renew(lease, None) is False  # asked for again before it ended
    stop_search(database, MARY, search_id)
    search_on(url, lease, 1)
    assert source.finish(lease, SearchState.STOPPED, ANSWER, "stopped", 3.0)
    stopped = read_search(database, MARY, search_id)
    assert (stopped["state"], stopped["reason"], column(database, search_id, "wants_stop")) == (
        "stopped",
        "stopped",
        False,
    )
    assert source.claim() is None
    resume_search(database, MARY, search_id)
    again, copy = started(source)
    assert again.search_id == search_id
    assert len(open_storage(copy).get_all_trials(1)) == 3
    assert again.n_trials == 3


def test_a_worker_that_has_lost_its_lease_writes_nothing(
    database: ServiceDatabase, requests: Requests, tmp_path: Path
) -> None:
    search_id = submitted(database)
    source, other = (source_of(requests, tmp_path / name) for name in ("late", "other"))
    lease, url = started(source)
    search_on(url, lease, 2)
    assert source.renew(lease, STANDING) is False
    database.write(lambda connection: connection.execute(SEARCHES.update().values(expires_s=0.0)))
    again, _ = started(other)
    assert again.search_id == search_id
    search_on(url, lease, 2)
    assert source.renew(lease, STANDING) is None
    assert not source.finish(lease, SearchState.FINISHED, ANSWER, "", 9.0)
    source.release(lease, "gone", is_lost=True)
    assert values(database, search_id) == [0, 1]
    assert (column(database, search_id, "state"), column(database, search_id, "token")) == ("running", again.token)
    assert (column(database, search_id, "reason"), column(database, search_id, "used_s")) == ("", 2.0)
    assert other.renew(again, None) is False


def test_a_worker_that_gives_up_says_why_and_the_third_time_the_search_has_failed(
    database: ServiceDatabase, requests: Requests, tmp_path: Path
) -> None:
    search_id = submitted(database)
    source = source_of(requests, tmp_path / "worker")
    for state in ("waiting", "waiting", "failed"):
        lease, _ = started(source)
        source.release(lease, "the runner was killed", is_lost=True)
        assert column(database, search_id, "state") == state
    failed = read_search(database, MARY, search_id)
    assert failed["reason"] == (
        "it lost its worker 3 times without a further trial; the last time: the runner was killed"
    )
    assert source.claim() is None


@pytest.mark.parametrize("status", [HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE])
def test_a_worker_that_may_not_lease_is_unwelcome_and_one_that_may_tries_again(
    requests: Requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: HTTPStatus
) -> None:
    def refuse(*_: object) -> None:
        raise Refused("no", status)

    monkeypatch.setattr(requests, "ask", refuse)
    is_final = status is not HTTPStatus.SERVICE_UNAVAILABLE
    with pytest.raises(Unwelcome if is_final else Refused, match="no"):
        source_of(requests, tmp_path / "worker").claim()


def test_a_request_to_delete_takes_the_trials_once_nobody_holds_the_search(
    database: ServiceDatabase, requests: Requests, tmp_path: Path
) -> None:
    """Deleted for one of two holders it stays, with its trials; for the last one, both go."""
    search_id, other = submitted(database), submitted(database, 8)
    request = Submission.from_json(column(database, search_id, "submission"))
    assert submit(database, JOHN, request).search_id == search_id
    source = source_of(requests, tmp_path / "worker")
    for n in (3, 2):
        lease, url = started(source)
        search_on(url, lease, n)
        assert source.finish(lease, SearchState.FINISHED, ANSWER, "", 1.0)

    def delete(user: User) -> int:
        return handlers.delete(requests.service, Call(user, {"search_id": search_id}, {})).status

    assert delete(MARY) == HTTPStatus.NO_CONTENT
    assert values(database, search_id) == [0, 1, 2]
    with pytest.raises(NotFound):
        read_search(database, MARY, search_id)
    assert delete(JOHN) == HTTPStatus.NO_CONTENT
    assert [study.study_name for study in database.studies.get_all_studies()] == [study_name(other)]
    assert values(database, other) == [0, 1]
    with pytest.raises(NotFound):
        delete_search(database, JOHN, search_id)
