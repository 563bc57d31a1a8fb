"""The names of changes of searches as events, without a server: every start, best and end is one event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autoauto.server.rest.events import Changes


def a_search(name: str, state: str, best: float | None = None, done: int = 0) -> dict[str, Any]:
    return {"id": name, "state": state, "best": best, "done": done}


def names(changes: Changes, *now: dict[str, Any]) -> list[tuple[str, str]]:
    """The name and the search of every event; its data is the search as it is."""
    pairs = []
    for event in changes.since(now):
        name, data, *end = event.decode().split("\n")
        search = json.loads(data.removeprefix("data: "))
        assert search in now
        assert end == ["", ""]
        pairs.append((name.removeprefix("event: "), search["id"]))
    return pairs


def test_every_step_of_a_search_is_one_event() -> None:
    changes = Changes()
    steps = [
        (a_search("a", "waiting"), "search"),
        (a_search("a", "waiting"), None),
        (a_search("a", "running"), "started"),
        (a_search("a", "running", done=1), "progress"),
        (a_search("a", "running", 1.0, done=1), "best"),
        (a_search("a", "running", 1.0, done=1), None),
        (a_search("a", "waiting", 1.0, done=1), "progress"),  # its worker was lost
        (a_search("a", "running", 2.0, done=2), "started"),
        (a_search("a", "finished", 3.0, done=2), "ended"),
        (a_search("a", "finished", 3.0, done=2), None),
        (a_search("a", "waiting", 3.0, done=2), "progress"),  # resumed
    ]
    for search, name in steps:
        assert names(changes, search) == ([] if name is None else [(name, "a")])


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_every_end_is_an_event(state: str) -> None:
    changes = Changes()
    assert names(changes, a_search("a", "running"), a_search("b", "waiting")) == [("search", "a"), ("search", "b")]
    assert not changes.have_ended
    assert names(changes, a_search("a", state), a_search("b", "waiting")) == [("ended", "a")]
    assert not changes.have_ended
    assert names(changes, a_search("a", state), a_search("b", state)) == [("ended", "b")]
    assert changes.have_ended


def test_a_search_that_is_gone_and_comes_back_is_shown_as_it_is() -> None:
    changes = Changes()
    assert names(changes, a_search("a", "running"), a_search("b", "running")) == [("search", "a"), ("search", "b")]
    assert names(changes, a_search("b", "running")) == []
    assert names(changes, a_search("b", "running"), a_search("a", "failed")) == [("search", "a")]
