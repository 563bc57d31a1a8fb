"""What workers send is checked at the door: an odd message is 400, and whatever is stored can be shown."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import IntDistribution, distribution_to_json

from autoauto.server.store.users import Role
from tests.drawn import is_thorough
from tests.server.conftest import Caller, RunningServer, small

BEST = {"samples_per_s": 9.5, "n_devices": 2, "values": [9.5], "n_ipu": 2, "stages": [{"first": 0}]}
ANSWER = {"best": BEST, "lines": "9.5 samples/s\n", "exit_code": 0, "ended_by": None, "cells": []}
PROGRESS = {
    **{"activity": "measuring", "done": 1, "total": 2, "left_s": None, "n_measured": 1, "origin": "modelled"},
    "best": BEST,
}
TRIAL = {
    **{"state": "COMPLETE", "values": [9.5], "params": {"n_ipu": 2, "batch_size": 4}},
    "distributions": dict.fromkeys(("n_ipu", "batch_size"), distribution_to_json(IntDistribution(1, 9))),
    **{"user_attrs": {"status": "ok", "samples_per_s": 9.5}, "system_attrs": {"constraints": [0.0]}},
    "times": ["2026-11-28T10:00:00+00:00", "2026-11-28T10:00:01+00:00"],
}
HEAD: dict[str, Any] = {"directions": ["MAXIMIZE"], "user": {"objective": "throughput", "schema": 4}, "system": {}}
RENEWAL = {"standing": [PROGRESS, 1, 2.0, True], "head": HEAD, "first": 0, "trials": [json.dumps(TRIAL)]}
FINISH = {"state": "finished", "answer": ANSWER, "reason": "", "used_s": 2.0}
ODD: tuple[object, ...] = ("x", 10**30, True, {"a": []})


class ServedWorker:
    """A server, an owner, a worker."""

    def __init__(self, server: RunningServer) -> None:
        self.mary, self.worker = server.caller("mary"), server.caller("box", Role.WORKER)
        self.n_asked = 0

    def leased(self) -> tuple[str, str]:
        """A further search, and its lease."""
        self.n_asked += 1
        search_id = str(self.mary("POST", "/v1/searches", small(self.n_asked)).body["id"])
        lease = self.worker("POST", "/v1/leases", {"process": "box:1"})
        assert (lease.status, lease.body["search_id"]) == (200, search_id)
        return search_id, f"/v1/leases/{lease.body['token']}"

    def shows_all(self, search_id: str) -> None:
        """All pages and paths that read what was stored answer."""
        own = f"/v1/searches/{search_id}"
        pages = ("/", f"/searches/{search_id}", f"/compare?search={search_id}&other={search_id}")
        for path in (*pages, own, f"{own}/trials", "/v1/searches"):
            assert (path, self.mary("GET", path, Accept="text/html").status) == (path, 200)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedWorker]:
    folder: Path = tmp_path_factory.mktemp("server")
    server = RunningServer(f"sqlite:///{folder}/server.db", folder, "--no-worker")
    yield ServedWorker(server)
    server.close()


def locations(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value within one."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from locations(part, (*path, key))


def changed(message: dict[str, Any], path: tuple[Any, ...], value: object) -> dict[str, Any]:
    other = copy.deepcopy(message)
    target: Any = other
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return other


def test_what_a_worker_sends_is_shown(site: ServedWorker) -> None:
    search_id, lease = site.leased()
    assert site.worker("POST", f"{lease}/renew", RENEWAL).body == {"wants_stop": False}
    assert site.mary("GET", f"/v1/searches/{search_id}").body["n_trials"] == 1
    site.shows_all(search_id)
    assert site.worker("POST", f"{lease}/finish", FINISH).status == 204
    site.shows_all(search_id)
    best = site.mary("GET", f"/v1/searches/{search_id}").body["answer"]["best"]
    assert best == BEST  # also what has no type of its own


def test_an_answer_without_a_standing_before_it_is_shown(site: ServedWorker) -> None:
    search_id, lease = site.leased()
    assert site.worker("POST", f"{lease}/finish", FINISH).status == 204
    site.shows_all(search_id)


@pytest.mark.drawn
def test_every_odd_value_in_a_message_is_refused_or_can_be_shown(site: ServedWorker) -> None:
    search_id, lease = site.leased()
    for what, message in (("renew", RENEWAL), ("release", {"reason": "", "is_lost": False})):
        for number, path in enumerate(locations(message)):
            for value in ODD if is_thorough() else [ODD[number % len(ODD)]]:
                status = site.worker("POST", f"{lease}/{what}", changed(message, path, value)).status
                assert status in (200, 204, 400, 409), (what, path, value)
                if status == 204:
                    lease = f"/v1/leases/{site.worker('POST', '/v1/leases', {'process': 'box:1'}).body['token']}"
    site.shows_all(search_id)


@pytest.mark.parametrize(
    "path", [("answer",), ("answer", "best"), ("answer", "best", "n_devices"), ("answer", "lines"), ("used_s",)]
)
def test_odd_answers_are_refused(site: ServedWorker, path: tuple[str, ...]) -> None:
    _, lease = site.leased()
    for value in (-1, True, [1], {"a": 1}):
        assert site.worker("POST", f"{lease}/finish", changed(FINISH, path, value)).status == 400
    assert site.worker("POST", f"{lease}/finish", FINISH).status == 204


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("finish", {**FINISH, "state": "running"}),
        ("finish", {**FINISH, "answer": None}),
        ("finish", b'{"state": "failed", "state": "stopped", "answer": null, "reason": "", "used_s": 1}'),
        ("finish", b"[" * 100_000),
        ("finish", b'{"state": "failed", "answer": null, "reason": "\xff", "used_s": 1}'),
        ("finish", {**FINISH, "answer": {**ANSWER, "deep": [[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]}}),
        ("renew", {"head": {**HEAD, "directions": ["UP"]}}),
        ("renew", {"head": {**HEAD, "user": {"objective": "speed", "schema": 4}}}),
        ("renew", {"head": HEAD, "trials": ["no trial"]}),
        ("renew", {"head": HEAD, "trials": [json.dumps({**TRIAL, "state": "RUNNING"})]}),
        ("renew", {"head": HEAD, "trials": [json.dumps({**TRIAL, "values": [1.0, 2.0]})]}),
        ("renew", {"head": HEAD, "trials": [json.dumps({**TRIAL, "user_attrs": {"status": "fine"}})]}),
        ("renew", {"head": HEAD, "trials": [json.dumps({**TRIAL, "times": ["0001-01-01T00:00:00+00:00", None]})]}),
        ("trials", {"first": 2**70}),
    ],
)
def test_an_odd_message_is_refused_in_one_line(site: ServedWorker, what: str, body: object) -> None:
    search_id, lease = site.leased()
    reply = site.worker("POST", f"{lease}/{what}", body)
    assert reply.status == 400
    assert "\n" not in reply.body["detail"]
    assert site.worker("POST", f"{lease}/finish", {**FINISH, "state": "failed", "answer": None}).status == 204
    site.shows_all(search_id)


@pytest.mark.parametrize("process", ["", "box", "box:x", "box:99999999999", "box\0:1", "x" * 300 + ":1"])
def test_an_odd_process_claims_nothing(site: ServedWorker, process: str) -> None:
    assert site.worker("POST", "/v1/leases", {"process": process}).status == 400


def test_a_study_that_cannot_be_read_does_not_take_its_page(site: ServedWorker) -> None:
    search_id, lease = site.leased()
    odd = {"head": {**HEAD, "user": {**HEAD["user"], "space": "[", "noise": "x", "alternatives": 3}}}
    assert site.worker("POST", f"{lease}/renew", {**RENEWAL, **odd}).status == 200
    site.shows_all(search_id)
    assert site.worker("POST", f"{lease}/finish", FINISH).status == 204
    site.shows_all(search_id)
    for view in ("report", "explain", "table", "export?to=onnx"):
        assert site.mary("GET", f"/v1/searches/{search_id}/{view}").status in (200, 400, 409)


def test_callers_of_other_roles_lease_nothing(site: ServedWorker) -> None:
    caller: Caller = site.mary
    assert caller("POST", "/v1/leases", {"process": "box:1"}).status == 403
