"""The tools of a server of searches for clients of the protocol: `TOOLS`, each a function on the client of the server.

client of MCP ── tool, arguments in JSON ──▶ Tool.call ── REST ──▶ autoauto server
              ◀── a dictionary, or one line of an error ──╯
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

import msgspec

from autoauto.graph.decoders.huggingface import bundled_names
from autoauto.records.errors import BadInput
from autoauto.records.installation import builtin_models
from autoauto.report.style import difference_percent
from autoauto.server.client import ENDED, POLL_S, Client, Refused, ServerSearch
from autoauto.server.mcp.arguments import (
    CompareArguments,
    ExportArguments,
    ListArguments,
    NoArguments,
    OneSearch,
    SearchArguments,
    WaitArguments,
)
from autoauto.space.numbers import NUMBERS
from autoauto.space.table import TABLE
from autoauto.targets.clusters import builtin_clusters

ID_LENGTH = 20
Result = dict[str, Any]
Progress = Callable[[str], None]
"""Gets a line about a search that is waited for."""


class Tool(NamedTuple):
    """A tool of the protocol.

    Attributes:
        run: calls the server; its docstring is the description.
        is_read_only: true if it changes nothing, neither at the server nor on this machine.
    """

    name: str
    arguments: type[msgspec.Struct]
    run: Callable[[Client, Any, Progress], Result]
    is_read_only: bool = True

    @property
    def description(self) -> str:
        """The description by which a client chooses the tool: the docstring of `run` in one line."""
        return " ".join(str(self.run.__doc__).split())

    @property
    def schema(self) -> Result:
        """The JSON schema of the arguments, in one piece."""
        _, definitions = msgspec.json.schema_components([self.arguments])
        schema = dict(definitions[self.arguments.__name__])
        del schema["title"], schema["description"]
        return schema

    def call(self, client: Client, given: Mapping[str, Any], progress: Progress) -> Result:
        """Check the arguments, call the server, and return its answer.

        Raises:
            BadInput: an argument is missing, unknown or wrong.
            Refused, ServerError: as `Client.ask`.
        """
        try:
            arguments = msgspec.convert(given, self.arguments)
        except msgspec.ValidationError as error:
            raise BadInput(f"the arguments of {self.name}: {error}") from error
        return self.run(client, arguments, progress)


def _search(client: Client, asked: SearchArguments, _: Progress) -> Result:
    """Ask for the configuration of a whole cluster with the highest throughput (or another objective) for a model.
    Returns at once with an id; an equal request that was answered before has its answer at once.
    """
    options = dict(asked.options)
    for name in ("cluster", "model", "space"):
        if name in options:
            raise BadInput(f"{name} has an argument of its own, got it among options; leave it out there")
    given = {"target": asked.target, "objective": asked.objective, "time_budget": asked.time_budget_s}
    options |= {name: value for name, value in given.items() if value is not None}
    if asked.constraints:
        options["constraints"] = asked.constraints
    search = client.search(asked.model, asked.cluster, asked.space, **options)
    return _described(client, search.read()) | {"next": "call wait with this id"}


def _wait(client: Client, asked: WaitArguments, progress: Progress) -> Result:
    """Wait until a search has ended, and return its state, its best configuration and its answer in words."""
    search = _named(client, asked.search_id)
    give_up_s = monotonic() + asked.seconds
    while True:
        now = search.read()
        if now["state"] in ENDED:
            return _described(client, now)
        if monotonic() >= give_up_s:
            return _described(client, now) | {"next": "call wait again, the search goes on"}
        progress(_line(now))
        sleep(POLL_S)


def _explain(client: Client, asked: OneSearch, _: Progress) -> Result:
    """Why the best configuration of a search won, what limits it, and what every other combination lacks."""
    search = _named(client, asked.search_id)
    return {"id": search.id, "explanation": search.explain()}


def _compare(client: Client, asked: CompareArguments, _: Progress) -> Result:
    """Two searches side by side: the numbers of their best configurations, and the knobs that differ."""
    first = _named(client, asked.first).read()
    second = _named(client, asked.second).read()
    numbers = []
    for number in NUMBERS:
        compared = _compared(number.name, first, second)
        values = compared["first"], compared["second"]
        if values != (None, None):
            is_known = None not in values
            compared["second_is_more_percent"] = difference_percent(values[1], values[0]) if is_known else None
            numbers.append(compared)
    knobs = [_compared(name, first, second) for name in TABLE]
    return {
        "first": _described(client, first),
        "second": _described(client, second),
        "numbers": numbers,
        "knobs_that_differ": [each for each in knobs if each["first"] != each["second"]],
        "page": f"{client.url}/compare?search={first['id']}&other={second['id']}",
    }


def _compared(name: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> Result:
    return {"name": name, "first": (first["best"] or {}).get(name), "second": (second["best"] or {}).get(name)}


def _export(client: Client, asked: ExportArguments, _: Progress) -> Result:
    """Write the best configuration of a search as files of another runtime (launch commands, Compose files, stages of a
    model) into a folder of this machine.
    """
    search = _named(client, asked.search_id)
    folder = Path(asked.folder).expanduser()
    search.export(asked.to, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        "id": search.id,
        "folder": str(folder.resolve()),
        "files": [{"name": str(path.relative_to(folder)), "n_bytes": path.stat().st_size} for path in files],
    }


def _stop(client: Client, asked: OneSearch, _: Progress) -> Result:
    """End a search that runs, with its best so far."""
    return _described(client, _named(client, asked.search_id).stop())


def _list_searches(client: Client, asked: ListArguments, _: Progress) -> Result:
    """The newest searches that you may see, with their best."""
    return {"searches": [_described(client, each) for each in islice(client.searches(), asked.limit)]}


def _list_models(client: Client, _arguments: NoArguments, _: Progress) -> Result:
    """Names of models that a search takes, and files that you uploaded."""
    try:
        uploads = [{"name": each["name"], "model": each["model"]} for each in client.models()]
    except Refused:  # a reader has none
        uploads = []
    return {"models": [*builtin_models()], "language_models": [*bundled_names()], "uploads": uploads}


def _list_clusters(_client: Client, _arguments: NoArguments, _: Progress) -> Result:
    """Names of clusters that a search takes."""
    return {"clusters": [*builtin_clusters()]}


def _named(client: Client, part: str) -> ServerSearch:
    if len(part) == ID_LENGTH and part.isalnum():
        return ServerSearch(client, part)
    ids = [each["id"] for each in client.searches() if each["id"].startswith(part)]
    if len(ids) != 1:
        raise BadInput(f"a search is named by the beginning of one id, {part!r} begins {len(ids)}; try list_searches")
    return ServerSearch(client, ids[0])


def _described(client: Client, search: Mapping[str, Any]) -> Result:
    """A search without what only programs of ours read: stages, progress in parts, links."""
    described = {
        "id": search["id"],
        "state": search["state"],
        "reason": search["reason"] or None,
        "model": search["model_name"],
        "cluster": search["cluster_name"],
        "target": search["target"],
        "objective": search["objective"],
        "n_trials": search["n_trials"],
        "best": _best(search),
    }
    answer = search.get("answer")
    if answer is not None:
        described["answer"] = answer["lines"]
    elif search["progress"] is not None:
        described["progress"] = _line(search)
    described["page"] = f"{client.url}/searches/{search['id']}"
    return described


def _best(search: Mapping[str, Any]) -> Result | None:
    if not search["best"]:
        return None
    names = {"n_devices", *TABLE, *(number.name for number in NUMBERS)}
    return {name: value for name, value in search["best"].items() if name in names and value is not None}


def _line(search: Mapping[str, Any]) -> str:
    progress = search["progress"]
    if progress is None:
        return str(search["state"])
    return f"{search['state']}: {progress['activity']}, {progress['done']:,} of {progress['total']:,}"


TOOLS = (
    Tool("search", SearchArguments, _search, is_read_only=False),
    Tool("wait", WaitArguments, _wait),
    Tool("explain", OneSearch, _explain),
    Tool("compare", CompareArguments, _compare),
    Tool("export", ExportArguments, _export, is_read_only=False),
    Tool("stop", OneSearch, _stop, is_read_only=False),
    Tool("list_searches", ListArguments, _list_searches),
    Tool("list_models", NoArguments, _list_models),
    Tool("list_clusters", NoArguments, _list_clusters),
)
"""All tools."""
