"""The threads and the limits of the door of the server, without a server: who waits, who is refused, and what ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autoauto.server.call import Answer, Call, Service
from autoauto.server.rest import door as door_module
from autoauto.server.rest.door import Busy, Door
from autoauto.server.rest.identity import ServiceOptions
from autoauto.server.rest.routes import ROUTES, Route
from autoauto.server.store.tables import ServiceDatabase
from autoauto.server.store.users import LOCAL
from tests.running import PATIENCE_S

PREFIXES = ("autoauto-server", "autoauto-commands")


@pytest.fixture
def door(tmp_path: Any) -> Iterator[Door]:
    database = ServiceDatabase(f"sqlite:///{tmp_path}/server.db")
    service = cast("Service", SimpleNamespace(database=database))
    opened = Door(service, ServiceOptions(is_open=True), lambda _: None, asyncio.Event())
    yield opened
    opened.close()
    database.close()


def route(*, runs_command: bool) -> Route:
    return next(each for each in ROUTES if each.runs_command is runs_command)


def call_on(door: Door, answer: Callable[[], Answer], *, runs_command: bool = False) -> Any:
    """What a handler answers, on the threads that it belongs to."""
    there = route(runs_command=runs_command)._replace(answer=lambda *_: answer())
    return door._answer(there, Call(LOCAL, {}, {}))


def thread_name() -> Answer:
    return Answer(200, threading.current_thread().name)


def test_commands_have_one_thread_of_their_own_and_all_others_share_some(door: Door) -> None:
    async def names() -> list[str]:
        answers = [await call_on(door, thread_name, runs_command=each) for each in (False, True, True)]
        return [answer.content.rpartition("_")[0] for answer in answers]

    assert asyncio.run(names()) == ["autoauto-server", "autoauto-commands", "autoauto-commands"]


def test_a_door_that_is_closed_ends_all_its_threads(door: Door) -> None:
    async def use() -> None:
        await asyncio.gather(*(call_on(door, thread_name, runs_command=each) for each in (False, True)))

    before = set(threading.enumerate())
    asyncio.run(use())
    started = [each for each in threading.enumerate() if each not in before and each.name.startswith(PREFIXES)]
    assert {each.name.rpartition("_")[0] for each in started} == set(PREFIXES)
    door.close()
    for thread in started:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), thread.name
    for runs_command in (False, True):
        with pytest.raises(RuntimeError, match="after shutdown"):
            asyncio.run(call_on(door, thread_name, runs_command=runs_command))


@pytest.mark.parametrize(("runs_command", "limit"), [(False, "MAX_WAITING"), (True, "MAX_COMMANDS_WAITING")])
def test_as_many_requests_wait_as_may_and_the_next_is_refused(
    door: Door, monkeypatch: pytest.MonkeyPatch, runs_command: bool, limit: str
) -> None:
    monkeypatch.setattr(door_module, limit, 3)
    go_on = threading.Event()

    def wait() -> Answer:
        assert go_on.wait(PATIENCE_S)
        return Answer(200, None)

    async def ask() -> list[int]:
        waiting = [asyncio.ensure_future(call_on(door, wait, runs_command=runs_command)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="at most 3 such requests wait"):
            await call_on(door, wait, runs_command=runs_command)
        other = asyncio.ensure_future(call_on(door, wait, runs_command=not runs_command))  # has room of its own
        await asyncio.sleep(0)
        go_on.set()
        answers = await asyncio.gather(*waiting, other)
        answers.append(await call_on(door, wait, runs_command=runs_command))  # there is room again
        return [answer.status for answer in answers]

    assert asyncio.run(ask()) == [200] * 5


def test_streams_of_events_are_counted_by_user_and_together(door: Door) -> None:
    door._n_streams.update({"mary": 20, "john": 19})
    door._check_streams("john")
    with pytest.raises(Busy, match="at most 20 streams of events of one user"):
        door._check_streams("mary")
    door._n_streams.update({f"user {number}": 16 for number in range(10)})
    door._check_streams("john")
    door._n_streams["last"] = 1
    with pytest.raises(Busy, match="at most 200 streams of events of all users"):
        door._check_streams("john")
