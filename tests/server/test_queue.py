"""The queue of searches in a database, without processes: who sees what, what is claimed, what is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import Any

import pytest
from optuna.distributions import IntDistribution
from optuna.study import StudyDirection
from optuna.trial import create_trial
from sqlalchemy import Connection, Row, select
from sqlalchemy.event import listen

from autoauto.cli.commands.studies import search
from autoauto.cli.submission import request_of_json
from autoauto.records.errors import BadInput
from autoauto.server.store import searches
from autoauto.server.store.asked import read_submission
from autoauto.server.store.queue import MAX_ATTEMPTS, Lease, LeaseKey, Queue, Standing, n_before
from autoauto.server.store.searches import (
    Conflict,
    Forbidden,
    NotFound,
    SearchState,
    delete_search,
    list_searches,
    read_search,
    resume_search,
    stop_search,
    submit,
)
from autoauto.server.store.submission import STARTS_ENGINES, Submission
from autoauto.server.store.tables import SEARCHES, ServiceDatabase
from autoauto.server.store.trials import delete_trials, list_trials, study_name
from autoauto.server.store.users import Role, User, create_token, list_tokens, revoke_tokens, user_of
from autoauto.space.requests.request import MeasureConfig
from tests.server.conftest import JOHN, MARY, ROOT_USER, small

read_request = partial(request_of_json, search.add_arguments)
READER = User("reader", Role.READER)


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request: pytest.FixtureRequest) -> str:
    """Both in every run: searches are claimed in other ways."""
    return str(request.getfixturevalue(f"{request.param}_storage"))


def submission(batch_size: int = 4, limits: object = None, labels: object = None, **others: object) -> Submission:
    return Submission.of(read_request(small(batch_size, **others)), limits, labels)


def claimed(queue: Queue) -> Lease:
    lease = queue.claim()
    assert lease is not None
    return lease


def state(database: ServiceDatabase, search_id: str, user: User = MARY) -> str:
    return str(read_search(database, user, search_id)["state"])


def standing(n_measured: int, used_s: float = 1.0, *, is_further: bool = True) -> Standing:
    progress = {"activity": "measuring", "done": 1, "total": 2, "left_s": None, "best": {"n_ipu": 1}}
    return Standing(progress, n_measured, used_s, is_further)


def add_trials(database: ServiceDatabase, search_id: str, n: int) -> None:
    """Trials of a search, as a worker writes them."""
    study_id = database.studies.create_new_study([StudyDirection.MAXIMIZE], study_name(search_id))
    for number in range(n):
        trial = create_trial(
            value=number, params={"x": 1}, distributions={"x": IntDistribution(0, 9)}, user_attrs={"status": "ok"}
        )
        database.studies.create_new_trial(study_id, trial)


def age_leases(database: ServiceDatabase) -> None:
    """As if the leases had not been renewed for long."""
    database.write(lambda connection: connection.execute(SEARCHES.update().values(expires_s=0.0)))


def test_equal_requests_of_one_owner_and_of_two_are_one_search(database: ServiceDatabase) -> None:
    first, again = (submit(database, MARY, submission()) for _ in range(2))
    other = submit(database, JOHN, submission())
    assert [first.is_new, again.is_new, other.is_new] == [True, False, False]
    assert {first.search_id, again.search_id, other.search_id} == {first.search_id}
    assert submit(database, MARY, submission(5)).search_id != first.search_id
    queue = Queue(database)
    assert {claimed(queue).search_id, claimed(queue).search_id, queue.claim()} >= {first.search_id, None}


def test_a_search_is_seen_by_who_asked_for_it_by_administrators_and_by_all_when_shared(
    database: ServiceDatabase,
) -> None:
    search_id = submit(database, MARY, submission()).search_id
    assert state(database, search_id, MARY) == state(database, search_id, ROOT_USER) == "waiting"
    for other in (JOHN, READER):
        assert list_searches(database, other).entries == []
        with pytest.raises(NotFound):
            read_search(database, other, search_id)
    submit(database, MARY, submission(), is_shared=True)
    assert state(database, search_id, READER) == "waiting"
    assert read_search(database, JOHN, search_id)["owner"] is None
    with pytest.raises(Forbidden):
        stop_search(database, JOHN, search_id)


def test_pages_are_filled_the_newest_first(database: ServiceDatabase) -> None:
    ids = [submit(database, MARY, submission(size)).search_id for size in range(1, 6)]
    first = list_searches(database, MARY, limit=2)
    second = list_searches(database, MARY, limit=3, before=first.more or 0)
    assert [each["id"] for each in (*first.entries, *second.entries)] == ids[::-1]
    assert (first.more is None, second.more) == (False, None)
    assert list_searches(database, MARY, SearchState.FAILED).entries == []
    assert len(list_searches(database, ROOT_USER, SearchState.WAITING, owner="mary").entries) == 5


def test_owners_take_turns_and_priority_orders_the_searches_of_one(database: ServiceDatabase) -> None:
    low, high = (submit(database, MARY, submission(n), priority).search_id for n, priority in ((1, 0), (2, 5)))
    late = submit(database, MARY, submission(3)).search_id
    johns = submit(database, JOHN, submission(4), -5).search_id
    queue = Queue(database)
    assert [claimed(queue).search_id for _ in range(4)] == [high, johns, low, late]


def test_an_equal_request_waits_among_those_of_each_who_asked_for_it(database: ServiceDatabase) -> None:
    marys = [submit(database, MARY, submission(n)).search_id for n in (1, 2, 3)]
    johns = submit(database, JOHN, submission(4)).search_id
    submit(database, JOHN, submission(3), 5)
    queue = Queue(database)
    assert n_before(database, marys[2]) == 1
    assert [claimed(queue).search_id for _ in range(4)] == [marys[0], marys[2], marys[1], johns]


def test_who_asks_again_keeps_the_better_priority(database: ServiceDatabase) -> None:
    first, second = (submit(database, MARY, submission(n)).search_id for n in (1, 2))
    submit(database, MARY, submission(2), 5)
    submit(database, MARY, submission(2), -5)
    assert read_search(database, MARY, second)["priority"] == 5
    assert [claimed(Queue(database)).search_id for _ in range(2)] == [second, first]


def test_a_cap_of_one_owner_does_not_hold_up_a_search_that_another_wants_too(database: ServiceDatabase) -> None:
    for n in (1, 2):
        submit(database, MARY, submission(n))
    queue = Queue(database, max_running=1)
    claimed(queue)
    assert queue.claim() is None
    wanted = submit(database, JOHN, submission(2)).search_id
    assert claimed(queue).search_id == wanted
    assert [read_search(database, user, wanted)["owner"] for user in (MARY, JOHN, ROOT_USER)] == [
        "mary",
        "john",
        "john",
    ]


def test_a_search_that_ends_while_all_have_stopped_it_is_claimed_for_its_best(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission()).search_id
    queue = Queue(database)
    lease = claimed(queue)
    add_trials(database, search_id, 1)
    queue.renew(lease, standing(1))
    stop_search(database, MARY, search_id)
    queue.release(lease)
    assert claimed(queue).search_id == search_id


def test_an_owner_has_no_more_running_searches_than_allowed(database: ServiceDatabase) -> None:
    for size in range(1, 4):
        submit(database, MARY, submission(size))
    queue = Queue(database, max_running=2)
    leases = [claimed(queue), claimed(queue)]
    assert queue.claim() is None
    queue.finish(leases[0], SearchState.FINISHED, {"best": None}, "", 1.0)
    assert queue.claim() is not None


def test_a_search_that_asks_for_labels_waits_for_a_worker_that_has_them(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission(labels={"gpu": "h100"})).search_id
    assert Queue(database).claim() is None
    assert Queue(database, {"gpu": "l40s"}).claim() is None
    assert claimed(Queue(database, {"gpu": "h100", "site": "a"})).search_id == search_id


def test_a_search_that_measures_waits_for_a_worker_that_starts_engines(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission(labels={"gpu": "h100"}, measure=2)).search_id
    assert Queue(database, {"gpu": "h100"}).claim() is None
    lease = claimed(Queue(database, {"gpu": "h100", **STARTS_ENGINES}))
    assert lease.search_id == search_id
    assert lease.submission.request.study.measure == MeasureConfig(2)


def test_a_client_does_not_say_how_engines_are_started() -> None:
    with pytest.raises(BadInput, match="launch"):
        submission(measure=2, launch="ssh:somewhere")
    for many in (-1, 10**9):
        asked = read_request(small(4))
        study = replace(asked.study, measure=MeasureConfig(many))
        with pytest.raises(BadInput, match="measures from 0 to 100 configurations"):
            Submission.of(replace(asked, study=study))
    gpus = {"model": "Qwen/Qwen3-32B", "cluster": "h100_sxm-8"}
    with pytest.raises(BadInput, match="a server takes no --draft-model from clients"):
        Submission.of(read_request({**gpus, "draft_tokens": 2, "draft_model": "/etc/other"}))
    request = read_request(small(4, measure=2))
    study = replace(request.study, measure=MeasureConfig(2, "ssh:somewhere"))
    with pytest.raises(BadInput, match="a worker decides how engines are started"):
        Submission.of(replace(request, study=study))


def test_what_is_renewed_and_finished_is_read(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission()).search_id
    queue = Queue(database)
    lease = claimed(queue)
    add_trials(database, search_id, 3)
    assert queue.renew(lease, standing(2)) is False
    now = read_search(database, MARY, search_id)
    assert (now["state"], now["best"], now["n_trials"]) == ("running", {"n_ipu": 1}, 3)
    assert now["progress"] == {"activity": "measuring", "done": 1, "total": 2, "left_s": None}
    assert queue.finish(lease, SearchState.FINISHED, {"best": {"n_ipu": 2}, "ended_by": None}, "", 2.0)
    done = read_search(database, MARY, search_id)
    assert (done["state"], done["best"], done["used_s"]) == ("finished", {"n_ipu": 2}, 2.0)
    assert queue.claim() is None


def test_a_lease_that_ran_out_is_given_to_another_and_its_worker_writes_nothing(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission()).search_id
    queue = Queue(database)
    lost = claimed(queue)
    assert queue.claim() is None
    age_leases(database)
    assert state(database, search_id) == "waiting"
    held = claimed(queue)
    assert (held.search_id, held.token == lost.token) == (search_id, False)
    assert queue.renew(lost, None) is None
    assert not queue.finish(lost, SearchState.FINISHED, {"best": None}, "", 1.0)
    assert state(database, search_id) == "running"


def test_a_search_that_loses_its_worker_three_times_has_failed_with_the_reason(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission()).search_id
    queue = Queue(database)
    for _ in range(MAX_ATTEMPTS):
        queue.release(claimed(queue), "killed by signal 9", is_lost=True)
    assert queue.claim() is None
    failed = read_search(database, MARY, search_id)
    assert failed["state"] == "failed"
    assert failed["reason"].endswith("killed by signal 9")
    assert resume_search(database, MARY, search_id)["state"] == "waiting"
    assert claimed(queue).search_id == search_id


def test_silent_losses_count_too_unless_a_trial_was_added(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission()).search_id
    queue = Queue(database)
    for n in range(2 * MAX_ATTEMPTS):
        queue.renew(claimed(queue), standing(n))
        age_leases(database)
    assert state(database, search_id) == "waiting"
    for _ in range(MAX_ATTEMPTS - 1):
        claimed(queue)
        age_leases(database)
    assert queue.claim() is None
    assert state(database, search_id) == "failed"


def ended_by_its_worker(database: ServiceDatabase, search_id: str) -> None:
    queue = Queue(database)
    assert queue.finish(claimed(queue), SearchState.FINISHED, {"best": None}, "", 1.0)
    assert not queue.finish(LeaseKey(search_id, "lost"), SearchState.FAILED, None, "late", 1.0)


def ended_by_a_worker_that_is_killed_again_and_again(database: ServiceDatabase, _: str) -> None:
    queue = Queue(database)
    for _attempt in range(MAX_ATTEMPTS):
        queue.release(claimed(queue), "killed by signal 9", is_lost=True)


def ended_by_leases_that_run_out(database: ServiceDatabase, _: str) -> None:
    queue = Queue(database)
    for _attempt in range(MAX_ATTEMPTS):
        claimed(queue)
        age_leases(database)
    assert queue.claim() is None


def ended_by_its_holder(database: ServiceDatabase, search_id: str) -> None:
    for _ in range(2):
        stop_search(database, MARY, search_id)


def ended_by_an_administrator(database: ServiceDatabase, search_id: str) -> None:
    stop_search(database, ROOT_USER, search_id)


@pytest.mark.parametrize(
    ("end", "state_then"),
    [
        (ended_by_its_worker, "finished"),
        (ended_by_a_worker_that_is_killed_again_and_again, "failed"),
        (ended_by_leases_that_run_out, "failed"),
        (ended_by_its_holder, "stopped"),
        (ended_by_an_administrator, "stopped"),
    ],
)
def test_every_end_of_a_search_is_reported_once_in_the_transaction_that_ends_it(
    database: ServiceDatabase,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[ServiceDatabase, str], None],
    state_then: str,
) -> None:
    search_id = submit(database, MARY, submission()).search_id
    seen: list[tuple[str, str, str]] = []

    def on_end(connection: Connection, row: Row[Any]) -> None:
        stored = connection.scalar(select(SEARCHES.c.state).where(SEARCHES.c.id == row.id))
        seen.append((row.id, row.state, str(stored)))

    monkeypatch.setattr(searches, "ON_END", (on_end,))
    end(database, search_id)
    assert seen == [(search_id, state_then, state_then)]


def test_a_search_does_not_end_where_what_happens_then_fails(
    database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_id = submit(database, MARY, submission()).search_id

    def on_end(_connection: Connection, _row: Row[Any]) -> None:
        raise Conflict("not now")

    monkeypatch.setattr(searches, "ON_END", (on_end,))
    with pytest.raises(Conflict, match="not now"):
        stop_search(database, MARY, search_id)
    assert state(database, search_id) == "waiting"


def test_a_worker_that_ends_gives_its_search_back_at_no_cost(database: ServiceDatabase) -> None:
    submit(database, MARY, submission())
    queue = Queue(database)
    for _ in range(2 * MAX_ATTEMPTS):
        queue.release(claimed(queue))
    assert queue.claim() is not None


def test_a_search_stops_when_all_that_hold_it_have_stopped_it(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission()).search_id
    submit(database, JOHN, submission())
    queue = Queue(database)
    lease = claimed(queue)
    assert stop_search(database, MARY, search_id)["state"] == "stopped"
    assert queue.renew(lease, None) is False
    assert state(database, search_id, JOHN) == "running"
    stop_search(database, JOHN, search_id)
    assert queue.renew(lease, None) is True
    queue.finish(lease, SearchState.STOPPED, {"best": {"n_ipu": 1}, "ended_by": "stop"}, "", 1.0)
    assert state(database, search_id, JOHN) == "stopped"
    assert resume_search(database, JOHN, search_id)["state"] == "waiting"
    assert claimed(queue).search_id == search_id


def test_a_search_that_another_asks_for_while_it_is_being_stopped_goes_on(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission()).search_id
    queue = Queue(database)
    lease = claimed(queue)
    stop_search(database, MARY, search_id)
    assert queue.renew(lease, None) is True  # its worker verifies the best so far
    submit(database, JOHN, submission())
    assert not queue.finish(lease, SearchState.STOPPED, {"best": None, "ended_by": "stop"}, "", 1.0)
    assert state(database, search_id, JOHN) == "waiting"
    again = claimed(queue)
    assert again.search_id == search_id
    assert queue.renew(again, None) is False


def test_a_search_that_ends_while_it_is_resumed_waits_again(
    database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_id = submit(database, MARY, submission()).search_id
    queue = Queue(database)
    lease = claimed(queue)
    stop_search(database, MARY, search_id)
    finish = Thread(target=queue.finish, args=(lease, SearchState.STOPPED, None, "", 1.0))
    held_row = searches._held_row

    def read_before_it_ends(*given: Any) -> Row[Any]:
        row = held_row(*given)
        finish.start()
        finish.join(0.3)  # in which it would end if it could
        return row

    monkeypatch.setattr(searches, "_held_row", read_before_it_ends)
    resume_search(database, MARY, search_id)
    finish.join()
    assert state(database, search_id) == "waiting"


def test_a_search_that_only_its_deleted_holder_waited_for_ends(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission()).search_id
    submit(database, JOHN, submission())
    queue = Queue(database)
    lease = claimed(queue)
    stop_search(database, JOHN, search_id)
    assert delete_search(database, MARY, search_id) is False
    assert queue.renew(lease, None) is True
    with pytest.raises(Conflict, match="stop it first"):
        delete_search(database, JOHN, search_id)


def test_a_deleted_search_takes_its_trials_and_leaves_those_of_others(database: ServiceDatabase) -> None:
    ids = [submit(database, MARY, submission(size)).search_id for size in (1, 2)]
    for search_id in ids:
        add_trials(database, search_id, 3)
    page = list_trials(database, MARY, ids[1], first=1, limit=1)
    assert ([row["number"] for row in page.entries], page.more) == ([1], 2)
    assert (page.entries[0]["value"], page.entries[0]["x"]) == (1.0, 1)
    stop_search(database, MARY, ids[0])
    assert delete_search(database, MARY, ids[0])
    with pytest.raises(NotFound, match="any more"):  # as when it was read just before
        read_submission(database, ids[0])
    delete_trials(database, ids[0])
    delete_trials(database, ids[0])  # as when the client asks again
    names = {study.study_name for study in database.studies.get_all_studies()}
    assert [study_name(each) in names for each in ids] == [False, True]
    assert len(list_trials(database, MARY, ids[1], 0, 10).entries) == 3
    with pytest.raises(NotFound):
        list_trials(database, MARY, ids[0], 0, 10)


def test_an_administrator_stops_the_search_of_others(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission()).search_id
    assert stop_search(database, ROOT_USER, search_id)["state"] == "stopped"
    assert Queue(database).claim() is None


def test_another_who_asks_for_a_stopped_search_lets_it_go_on(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission()).search_id
    stop_search(database, MARY, search_id)
    assert submit(database, JOHN, submission()) == (search_id, False)
    assert (state(database, search_id, JOHN), state(database, search_id, MARY)) == ("waiting", "stopped")


def test_a_failed_search_is_tried_again_for_another_and_not_for_who_knows(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission()).search_id
    queue = Queue(database)
    queue.finish(claimed(queue), SearchState.FAILED, None, "no memory", 1.0)
    submit(database, MARY, submission())
    assert state(database, search_id) == "failed"
    submit(database, JOHN, submission())
    assert state(database, search_id) == "waiting"
    assert claimed(queue).search_id == search_id


def test_an_administrator_lets_a_search_go_on_for_all_who_stopped_it(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission()).search_id
    stop_search(database, MARY, search_id)
    assert resume_search(database, ROOT_USER, search_id)["state"] == "waiting"
    assert claimed(Queue(database)).search_id == search_id


def test_trials_are_those_of_the_study_also_where_a_worker_was_lost(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission()).search_id
    queue = Queue(database)
    claimed(queue)
    add_trials(database, search_id, 3)
    age_leases(database)
    assert claimed(queue).n_trials == 3
    assert read_search(database, MARY, search_id)["n_trials"] == 3


def test_a_list_reads_what_a_user_has_and_not_what_all_have(database: ServiceDatabase) -> None:
    """The plan of SQLite names an index for every table; PostgreSQL's depends on how many rows there are."""
    statements: list[Any] = []
    with database.studies.engine.connect() as connection:
        if connection.dialect.name != "sqlite":
            pytest.skip("plans differ with the number of rows")
        listen(database.studies.engine, "before_cursor_execute", lambda *given: statements.append(given[2:4]))
        list_searches(database, MARY)
        list_searches(database, ROOT_USER, SearchState.FAILED)
        for statement, parameters in statements[:2]:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            assert not [row for row in plan if row[3].startswith("SCAN autoauto")]


def test_budgets_begin_anew_when_a_search_is_resumed(database: ServiceDatabase) -> None:
    search_id = submit(database, MARY, submission(limits={"trials": 4}, time_budget=10)).search_id
    queue = Queue(database)
    lease = claimed(queue)
    assert (lease.limits.trials, lease.limits.measurements, lease.left_s) == (4, None, 10.0)
    add_trials(database, search_id, 4)
    queue.renew(lease, standing(4, used_s=7.0))
    queue.finish(lease, SearchState.FINISHED, {"best": {"n_ipu": 1}, "ended_by": "trials"}, "", 7.0)
    resume_search(database, MARY, search_id)
    again = claimed(queue)
    assert (again.limits.trials, again.left_s, again.n_trials) == (8, 10.0, 4)
    queue.finish(again, SearchState.FINISHED, {"best": {"n_ipu": 1}, "ended_by": None}, "", 7.0)
    with pytest.raises(Conflict, match="has found its answer"):
        resume_search(database, MARY, search_id)


def test_tokens_are_known_until_they_are_revoked_or_expire_and_only_hashes_are_stored(
    database: ServiceDatabase,
) -> None:
    token, second = create_token(database, "mary", Role.SUBMITTER), create_token(database, "mary", Role.READER)
    past = create_token(database, "john", Role.ADMIN, lasts_s=-1.0)
    assert user_of(database, token) == ("mary", Role.SUBMITTER)
    assert [user_of(database, other) for other in (past, "", token[:-1], token + "x", "x" * 10_000)] == [None] * 5
    assert [entry.state for entry in list_tokens(database)] == ["in force", "in force", "expired"]
    rows = database.write(lambda connection: str(connection.exec_driver_sql("SELECT * FROM autoauto_tokens").all()))
    assert token not in rows
    assert token.removeprefix("autoauto-") not in rows
    assert revoke_tokens(database, "mary") == 2
    assert [user_of(database, each) for each in (token, second)] == [None, None]
    with pytest.raises(BadInput, match="did you mean 'mary'"):
        revoke_tokens(database, "mar")
    with pytest.raises(BadInput, match="a user's name has"):
        create_token(database, "mary smith", Role.READER)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "/etc/passwd"}, "a model is a built-in name or an uploaded file"),
        ({"model": "resnet5"}, "did you mean 'resnet50'"),
        ({"cluster": "../secret.toml"}, "a cluster is a built-in name or an uploaded file"),
        (
            {"target": "host", "inputs": "/etc/passwd"},
            "--inputs of a search on a server is an uploaded file, .*upload the file",
        ),
        (
            {"target": "gpu", "model": "Qwen/Qwen3-8B", "trace": "x.csv"},
            "--trace of a search on a server is an uploaded",
        ),
        ({"target": "host", "dask": "10.0.0.1:80"}, "takes no --dask"),
        ({"storage": "sqlite:///x"}, "there is no key 'storage'"),
        ({"profile": ["x"]}, "there is no key 'profile'"),
        ({"space": {"n_ipus": [1]}}, r"^space.n_ipus: there is no knob 'n_ipus'; did you mean 'n_ipu'"),
        ({"space": {"n_ipu": ["x"]}}, r"^space.n_ipu: n_ipu must be a whole number"),
        ({"space": [1]}, "must be a table"),
        ({"n_ipu": [1]}, "n_ipu is a knob; write it under space"),
        ({"knobs": {}}, "call it space"),
        ({"time_budget": -1}, "time_budget"),
        ({"objective": "speed"}, "objective"),
        ({"modl": "resnet50"}, "did you mean 'model'"),
        ({"cluster": "bow-9000"}, "a cluster is bow-2000"),
        ({"cluster": "h100_sxm-8"}, "a search for --target gpu needs a model, got none"),
        ({"model": "Qwen/Qwen3-32B"}, "is a decoder, .* try --cluster h100_sxm-8"),
        ({"target": "host", "cluster": "bow-2000"}, "must be for --target host"),
        ({"target": "host", "partials": "fp32"}, "--target host has no --partials"),
        ({"space": {name: [*range(1, 30_001)] for name in ("n_ipu", "replicas", "batch_size")}}, "got 27,000,000,000"),
        ({"constraints": ["latency_s <= 1"] * 40_000}, "at most 100 constraints, got 40,000"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        Submission.of(read_request(given))
    assert "\n" not in str(refused.value)


def test_defaults_that_are_given_make_an_equal_submission() -> None:
    plain = Submission.of(read_request({"space": {"n_ipu": [1, 2]}}))
    given = {"model": "resnet50", "cluster": "bow-2000", "target": "ipu", "objective": "throughput", "method": "guided"}
    said = Submission.of(read_request({**given, "space": {"n_ipu": {"from": 1, "to": 2}}}))
    assert plain.digest == said.digest
    assert Submission.from_json(plain.to_json()) == plain
    assert Submission.of(read_request({"space": {"n_ipu": [1]}})).digest != plain.digest


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"space": {"n_ipu": [1, 2]}}, {"space": {"n_ipu": [2, 1, 2]}}),
        ({"space": {"batch_size": [4, 8]}}, {"space": {"batch_size": [8, 4]}}),
        (
            {"target": "host", "precision": ["fp16", "fp32"]},
            {"target": "host", "space": {"precision": ["fp32", "fp16"]}},
        ),
        ({"constraints": ["n_ipu > 1", "latency_s <= 1"]}, {"constraints": ["latency_s<=1", "n_ipu>1", "n_ipu > 1"]}),
        ({"shape": ["height=3", "width=4"]}, {"shape": ["width=4", "height=3"]}),
    ],
)
def test_an_order_that_says_nothing_makes_no_other_search(given: dict[str, Any], same: dict[str, Any]) -> None:
    first, second = (Submission.of(read_request(each)) for each in (given, same))
    assert first.digest == second.digest
    assert Submission.from_json(first.to_json()).digest == first.digest


@pytest.mark.parametrize("name", ["objective", "try"])
def test_an_order_that_says_something_makes_another_search(name: str) -> None:
    values = {"objective": ["throughput", "latency"], "try": ["n_ipu=1,batch_size=1", "n_ipu=2,batch_size=1"]}[name]
    first, second = (Submission.of(read_request({name: each})) for each in (values, values[::-1]))
    assert first.digest != second.digest


def test_a_request_of_the_command_line_is_an_equal_submission() -> None:
    from autoauto.cli.main import build_parser
    from autoauto.space.requests.request import SearchRequest

    args = build_parser().parse_args(["search", "resnet50", "--n-ipu", "1,2", "--max-latency-s", "0.1"])
    request = SearchRequest.from_json(SearchRequest.of(vars(args)).to_json())
    given = {"model": "resnet50", "space": {"n_ipu": [1, 2]}, "max_latency_s": 0.1}
    assert Submission.of(request).digest == Submission.of(read_request(given)).digest
