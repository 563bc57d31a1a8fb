"""The page of one search, `search_page`, which refreshes itself until the search has ended; its buttons.

what it does now ─ its best so far ─ latency against throughput ─ what was asked for
     ╰ is read from its row              ╰ are drawn of its trials, again when there are more
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from shlex import quote
from typing import Any

from autoauto.exporters.registry import formats_for
from autoauto.report.charts.objectives import objectives_chart
from autoauto.report.charts.rates import rates_chart
from autoauto.report.html import (
    command_line,
    engines_section,
    figure,
    front_section,
    section,
    table_section,
    winner_section,
)
from autoauto.report.style import tag, words
from autoauto.report.tables.study import choices_table
from autoauto.report.tables.table import Column, Table, html_table
from autoauto.report.wording import counted
from autoauto.server.call import Answer, Call, Service
from autoauto.server.pages.forms import Field, Kind, button, fields, form
from autoauto.server.pages.frame import card, html, page
from autoauto.server.pages.listing import moment_text, name_of
from autoauto.server.store import searches
from autoauto.server.store.asked import asked_texts, labels_text, names_of, read_submission
from autoauto.server.store.queue import n_before
from autoauto.server.store.searches import SearchState
from autoauto.server.store.submission import STARTS_ENGINES, SearchLimits, Submission
from autoauto.server.store.tables import DatabaseAway
from autoauto.server.store.trials import summary_of
from autoauto.server.store.users import Role
from autoauto.study.analysis.comparisons import study_comparisons

PATH = "/searches"
REFRESH_S = 2
REFRESH_MANY_S = 15
"""The period for a search with many trials, since all of them are read again."""
MANY_TRIALS = 2_000
_NO_WEIGHTS = "It is shared with you without the weights of its model, so it is not exported."
N_DRAWN = 32
"""The number of searches whose last charts and tables are cached."""


def search_page(service: Service, call: Call) -> Answer:
    """The page of one search: its state, its best configurations so far, and what was asked for."""
    search = searches.read_search(service.database, call.user, call.search_id)
    submission = read_submission(service.database, search["id"])
    names = names_of(search, submission)
    refresh_s = None
    if not SearchState(search["state"]).has_ended:
        refresh_s = REFRESH_MANY_S if search["n_trials"] > MANY_TRIALS else REFRESH_S
    facts = (
        f"search {search['id']}",
        f"objective {search['objective']}",
        f"asked for {moment_text(search['created'])}",
        f"by {search['owner']}" if search["owner"] else "shared with you",
    )
    asked = Table("", (Column("what"), Column("value")), tuple(asked_texts(submission, names).items()))
    content = (
        _live("status", _status(service, search, submission, refresh_s), refresh_s),
        _live("actions", _actions(call, search)),
        _live("best", _results(service.database.storage, search["id"], search["n_trials"], search["state"])),
        section("Asked for", card(html_table(asked)), "asked"),
        _live("links", _links(search)),
        _live("commands", _commands(service, call, search, submission, names)),
    )
    return html(page(call.user, name_of(search), facts, *content, refresh_s=refresh_s))


def _live(name: str, content: str, refresh_s: int | None = None) -> str:
    """A part of the page that its script replaces."""
    return tag("div", content, id=name, data_live="", data_refresh_s=refresh_s)


def _status(service: Service, search: Mapping[str, Any], submission: Submission, refresh_s: int | None) -> str:
    first, *others = _state_lines(service, search, submission)
    if refresh_s:
        others.append(f"again every {refresh_s} s")
    bar = ""
    progress = search["progress"]
    if progress and search["state"] == SearchState.RUNNING:
        bar = tag("progress", max=progress["total"], value=progress["done"], aria_label="of this step")
    text = tag("p", words(first), class_="state", role="status")
    return tag("section", card(text, bar, tag("p", words(" · ".join(others)), class_="muted")))


def _state_lines(service: Service, search: Mapping[str, Any], submission: Submission) -> Iterator[str]:
    """Yield the lines of the status; the first one says the state."""
    state = SearchState(search["state"])
    progress = search["progress"]
    if state is SearchState.WAITING:
        yield _waits_text(n_before(service.database, search["id"]), submission.labels)
    elif state is SearchState.RUNNING and progress:
        yield f"running: {progress['activity']} {progress['done']:,} of {progress['total']:,}"
        if progress["left_s"]:
            yield f"about {_duration(progress['left_s'])} to the end of this step, estimated"
    elif search["ended_by"] and search["ended_by"] != "stop":
        yield f"{state}: its budget of {search['ended_by']} has ended"
    else:
        yield str(state)
    if search["reason"]:
        yield search["reason"]
    if search["n_trials"]:
        yield counted(search["n_trials"], "trial")
    if search["used_s"]:
        yield f"{_duration(search['used_s'])} of work"
    if state.has_ended:
        yield f"ended {moment_text(search['ended'])}"


def _waits_text(before: int | None, labels: Mapping[str, str]) -> str:
    worker = "a worker"
    own = {name: text for name, text in labels.items() if name not in STARTS_ENGINES}
    if len(own) < len(labels):
        worker += " that starts engines (autoauto worker --launch WAY)"
    if own:
        worker += f" with {labels_text(own)}"
    if not before:
        return f"waiting for {worker}: it is the next"
    begin = "begins" if before == 1 else "begin"
    return f"waiting for {worker}: {counted(before, 'search', 'es')} {begin} before it"


def _duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> _duration(72.3)
    '0:01:12'
    """
    return str(timedelta(seconds=round(seconds)))


def _actions(call: Call, search: Mapping[str, Any]) -> str:
    """The button that its reader may use: an administrator, or who has asked for it, of whom it names the owner."""
    is_done = search["state"] == SearchState.FINISHED and not search["ended_by"]
    may_act = call.user.role.includes(Role.SUBMITTER) and search["owner"] is not None
    if is_done or not may_act:
        return ""
    if SearchState(search["state"]).has_ended:
        action = form(f"{PATH}/{search['id']}/resume", button("Go on"))
    else:
        action = form(f"{PATH}/{search['id']}/stop", button("Stop with the best so far"))
    return tag("div", action, class_="actions")


@lru_cache(N_DRAWN)
def _results(storage: str, search_id: str, n_trials: int, state: SearchState) -> str:
    """The best so far and the front, drawn again when there are more trials; a line where they cannot be read."""
    try:
        return _drawn_results(storage, search_id, n_trials, state)
    except DatabaseAway:
        raise
    except Exception as error:  # noqa: BLE001 (whatever lies in the database, the page shows all else)
        text = f"Its trials cannot be read, {type(error).__name__}; let it be searched again, and delete this one."
        return section("Results", tag("p", words(text)), "results")


def _drawn_results(storage: str, search_id: str, n_trials: int, state: SearchState) -> str:
    summary = summary_of(storage, search_id) if n_trials else None
    if summary is None:
        return ""
    if summary.winner is None and not state.has_ended:
        text = f"None of {counted(len(summary.trials), 'configuration')} fits so far."
        return tag("section", card(tag("p", words(text))))
    comparisons = study_comparisons(summary) if state.has_ended else ()
    sections = [
        winner_section(summary, comparisons, ()),
        front_section(summary),
        engines_section(summary),
        table_section(choices_table(summary), "choices"),
    ]
    charts = [rates_chart(summary.rate_curves), objectives_chart(summary)]
    return "".join(sections) + "".join(figure(chart) for chart in charts if chart)


def _links(search: Mapping[str, Any]) -> str:
    own = f"/v1/searches/{search['id']}"
    links: dict[str, str] = {}
    if search["n_trials"]:
        links |= {"Report": f"{own}/report?as=html", "Trials as CSV": f"{own}/table?as=csv"}
    links |= {"Compare with another": f"/compare?search={search['id']}", "JSON": own}
    items = (tag("li", tag("a", name, href=path)) for name, path in links.items())
    export = _export(own, search) if search["may_export"] else tag("p", words(_NO_WEIGHTS), class_="muted")
    return section("More", card(tag("ul", *items), export), "more")


def _formats(search: Mapping[str, Any]) -> list[str]:
    """The formats in which the best of a search may be exported, the preferred one first; none before there is one."""
    best = search["best"]
    if not best and search["answer"] and search["answer"].get("front"):
        best = search["answer"]["front"][0]
    return formats_for(best) if best else []


def _export(own: str, search: Mapping[str, Any]) -> str:
    """The form that exports the best configuration; empty where there is none."""
    choices = tuple((name, name) for name in _formats(search))
    if not choices:
        return ""
    control = fields([Field("to", "Best as files for", Kind.CHOICE, choices=choices)], {})
    return form(f"{own}/export", control, button("Export"), method="get", name="Export the best")


def _commands(
    service: Service, call: Call, search: Mapping[str, Any], submission: Submission, names: Mapping[str, str]
) -> str:
    """Commands to copy into a terminal; `search` is among them only where options can say all that was asked for."""
    search_id = search["id"]
    server = f"--server {quote(call.server)}"
    formats = _formats(search)
    commands = {}
    if search["n_trials"]:
        commands["Report"] = f"autoauto report {search_id} --html report.html {server}"
    if search["may_export"] and formats:
        commands["Export"] = f"autoauto export {search_id} --to {formats[0]} --output artifact {server}"
    if submission.limits == SearchLimits() and submission.labels.items() <= STARTS_ENGINES.items():
        commands["Ask for the same"] = f"{service.write_command(submission.named_by(names))} {server}"
    if not commands:
        return ""
    lines = "".join(command_line(name, command) for name, command in commands.items())
    return section("In a terminal", card(lines), "terminal")


def stop_by_page(service: Service, call: Call) -> Answer:
    """End a search, by its page."""
    searches.stop_search(service.database, call.user, call.search_id)
    return Answer(303, None, f"{PATH}/{call.search_id}")


def resume_by_page(service: Service, call: Call) -> Answer:
    """Let a search go on, by its page."""
    searches.resume_search(service.database, call.user, call.search_id)
    return Answer(303, None, f"{PATH}/{call.search_id}")
