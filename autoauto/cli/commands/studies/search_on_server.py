"""A search by `autoauto search --server URL`: the same lines, with the workers of the server."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from autoauto.cli.options.server import server_of
from autoauto.cli.output.lines import print_json, print_line, warn
from autoauto.cli.output.log import write_event
from autoauto.records.errors import BadInput

if TYPE_CHECKING:
    from autoauto.space.requests.request import SearchRequest

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
    from autoauto.report.text import search_bar

    with search_bar() as show:

        def show_bar(now: dict[str, Any]) -> None:
            progress, best = now["progress"], now["best"]
            if progress is not None:
                speed = best and best["samples_per_s"]
                show(progress["activity"], progress["done"], progress["total"], speed, progress["left_s"], now["state"])

        yield show_bar
