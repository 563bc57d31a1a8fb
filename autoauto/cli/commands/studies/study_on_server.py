"""Searches of a server, by the commands of studies with `--server URL`: their lines and exit codes."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from autoauto.cli.options.server import server_of
from autoauto.cli.output.lines import print_json, print_line, warn
from autoauto.cli.output.log import write_event
from autoauto.records.errors import BadInput, did_you_mean
from autoauto.report.text import search_bar
from autoauto.report.wording import stored_unit

if TYPE_CHECKING:
    from autoauto.server.client import Client, PrintedAnswer
    from autoauto.space.requests.request import SearchRequest

_ID = re.compile(r"[0-9a-f]{20}")
_NARROWEST = 40


def studies_on_server(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The searches of a server as rows of the table of studies, the newest first."""
    return list(map(_row, server_of(args).searches()))


def _row(search: dict[str, Any]) -> dict[str, Any]:
    ended, best = search["ended"], search["best"] or {}
    return {
        "name": search["id"],
        "model": search["model_name"],
        "cluster": search["cluster_name"],
        "target": search["target"],
        "objective": search["objective"],
        "values": best.get("values", []),
        "unit": stored_unit(search["objective"], search["target"], is_text="output_tokens" in best),
        "n_trials": search["n_trials"],
        "last_trial": ended and datetime.fromtimestamp(ended, UTC).isoformat(timespec="seconds"),
        "state": search["state"],
    }


def show_on_server(args: argparse.Namespace, what: str, form: str, file: Path | None = None, **query: object) -> int:
    """Print what a server writes of a search, or write it to a file; raises BadInput, or as `Client.ask`."""
    client = server_of(args)
    parameters: dict[str, object] = {"as": form}
    if sys.stdout.isatty():
        parameters["columns"] = max(_NARROWEST, get_terminal_size().columns)
    asked = urlencode(parameters | query)
    answer = client.printed(f"/v1/searches/{search_named(client, args.study)}/{what}?{asked}")
    if file is None:
        sys.stdout.write(answer.content.decode())
    else:
        try:
            file.write_bytes(answer.content)
        except OSError as error:
            raise BadInput(
                f"what the server has written needs a file that can be written, got {file} ({error})"
            ) from error
        warn(f"wrote {file}")
        sys.stdout.write(answer.stdout)
    return _ended(answer)


def difference_on_server(args: argparse.Namespace) -> int:
    """Print what a server writes of two searches; raises as `show_on_server`."""
    other = search_named(server_of(args), args.other)
    return show_on_server(args, "difference", "json" if args.json else "text", other=other)


def export_on_server(args: argparse.Namespace) -> int:
    """Write the best of a search of a server as files of another runtime; raises BadInput, or as `Client.ask`."""
    from autoauto.server.client import unpack

    client = server_of(args)
    query = {"to": args.to, "check": str(args.check).lower(), "as": "json" if args.json else "text"}
    answer = client.printed(f"/v1/searches/{search_named(client, args.model)}/export?{urlencode(query)}")
    unpack(answer.content, args.output)
    if args.json:
        print_json(json.loads(answer.stdout) | {"output": str(args.output)})
    else:
        print_line(f"{args.output}{answer.stdout.removeprefix('export').rstrip()}")
    return _ended(answer)


def _ended(answer: PrintedAnswer) -> int:
    sys.stdout.flush()
    sys.stderr.write(answer.stderr)
    return answer.exit_code


def search_named(client: Client, part: str | None) -> str:
    """The id of a search, of which the beginning suffices; the newest one where none is named; raises BadInput."""
    given = (part or "").removeprefix("search-")
    if _ID.fullmatch(given):
        return given
    ids = [str(search["id"]) for search in client.searches() if search["id"].startswith(given)]
    if not ids:
        hint = did_you_mean(given, [], "`autoauto studies --server` lists what there is")
        raise BadInput(f"there is no search {part or ''!r} at {client.url} that you may see; {hint}")
    if part is None:
        warn(f"search {ids[0]} (the latest)")
    elif len(ids) == 1:
        warn(f"search {ids[0]} (the only one that begins with {given!r})")
    else:
        raise BadInput(f"a search is an id or the beginning of one, {part!r} begins {len(ids)}; give more of it")
    return ids[0]


INTERRUPTED = 130
_GO_ON = "the same command with --resume goes on"
_OF_HERE = ("workers", "time_limit", "memory_limit", "executor", "study_name", "profile", "dask")
_OF_WORKERS = ("launch", "endpoint", "launch_timeout")


def search_on_server(args: argparse.Namespace, request: SearchRequest) -> int:
    """Ask a server for a search, show how it goes, and print its answer."""
    from autoauto.server.store.submission import check_options

    _check_options(args)
    check_options(request.problem)
    search = server_of(args).submit(request, args.measure_on)
    if args.resume:  # what has ended without its answer
        now = search.read()
        if now["state"] in ("stopped", "failed") or now["ended_by"]:
            search.resume()
    try:
        with _progress(args.log) as show:
            ended = search.wait(show)
    except KeyboardInterrupt:
        warn(f"search {search.id} goes on at {args.server}; the same command shows it again")
        return INTERRUPTED
    answer = ended["answer"]
    if answer is None:
        reason = ended["reason"] or "its best so far is measured again; ask again for it"
        raise BadInput(f"search {search.id} {ended['state']}: {reason}; {_GO_ON}")
    _show(args, search.id, ended, answer)
    if ended["reason"]:
        warn(ended["reason"])
    if args.log == "json":
        write_event("end", exit_code=answer["exit_code"], search=search.id, best=answer["best"])
    return int(answer["exit_code"])


def _check_options(args: argparse.Namespace) -> None:
    for name in _OF_WORKERS:
        if getattr(args, name):
            raise BadInput(
                f"workers of a server decide how they start engines, got --{name.replace('_', '-')}; "
                "leave it out: `autoauto worker --launch` says it"
            )
    for name in _OF_HERE:
        if getattr(args, name, None):
            raise BadInput(
                f"--server searches with its own workers and database, got --{name.replace('_', '-')}; leave it out, "
                "or search without --server"
            )


def _show(args: argparse.Namespace, search_id: str, ended: dict[str, Any], answer: dict[str, Any]) -> None:
    if args.json:
        print_json({name: value for name, value in answer.items() if name != "lines"} | {"server": args.server})
        return
    print(answer["lines"], end="")
    if answer["ended_by"]:
        print_line(f"ended by {answer['ended_by']} before it was done; {_GO_ON}")
    print_line(f"search {search_id} on {args.server}, {ended['state']}")


@contextmanager
def _progress(log: str | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that shows how a search on a server goes: a bar on a terminal, or events."""
    if log == "json":
        yield lambda now: write_event("progress", search=now["id"], state=now["state"], **(now["progress"] or {}))
        return

    with search_bar() as show:

        def show_bar(now: dict[str, Any]) -> None:
            progress, best = now["progress"], now["best"]
            if progress is not None:
                speed = best and best["samples_per_s"]
                show(progress["activity"], progress["done"], progress["total"], speed, progress["left_s"], now["state"])

        yield show_bar
