"""Offer searches to a team: a queue, users, a REST interface.

A worker in it runs the searches. Actions create its tokens, or check it.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from autoauto.cli.commands.studies import search
from autoauto.cli.options.server import add_identity, add_listen, tls_context, user_proxy
from autoauto.cli.options.values import at_most, labels, positive_number
from autoauto.cli.output.lines import print_line, warn
from autoauto.cli.output.log import write_event
from autoauto.records.errors import BadInput, did_you_mean, missing_extra
from autoauto.records.units import MIB

if TYPE_CHECKING:
    from autoauto.server.store.queue import Queue
    from autoauto.server.store.searches import SearchState
    from autoauto.server.store.tables import ServiceDatabase
    from autoauto.server.work.worker import SearchSource, SearchWorker

EXAMPLE = "server token create mary --role submitter"
DEFAULT_STORAGE = "sqlite:///studies/server.db"
ROLES = ("reader", "submitter", "worker", "admin")
_ACTIONS = ("token create NAME", "token revoke NAME", "token list", "check")
_DAY_S = 86_400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is to be done, a database, an address, and limits."""
    parser.add_argument(
        "action",
        nargs="*",
        metavar="ACTION",
        help=f"{', '.join(_ACTIONS)}; without one the server starts, and runs until a signal ends it",
    )
    parser.add_argument(
        "--storage",
        default=DEFAULT_STORAGE,
        metavar="URL",
        help="database of the users, the searches and their trials; default %(default)s",
    )
    who = parser.add_argument_group("address and users")
    add_listen(who, 8080)
    who.add_argument(
        "--open", action="store_true", help="need no token; only where --listen is an address of this machine alone"
    )
    add_identity(who)
    tokens = parser.add_argument_group("tokens, with the action token create")
    tokens.add_argument("--role", choices=ROLES, default="submitter", help="what the user may do; default %(default)s")
    tokens.add_argument(
        "--expires-days", type=positive_number, metavar="DAYS", help="days after which the token ends; default: never"
    )
    worker = parser.add_argument_group("the worker in the server")
    worker.add_argument("--no-worker", action="store_true", help="run no search here, but by `autoauto worker`")
    add_labels(worker)
    worker.add_argument(
        "--max-running",
        type=at_most(1_000),
        metavar="N",
        help="searches of one owner that it lets run at once; default: any number",
    )
    uploads = parser.add_argument_group("uploads")
    uploads.add_argument(
        "--max-model-mib",
        type=at_most(100_000),
        default=1_024,
        metavar="N",
        help="size of an uploaded model at most; default %(default)s",
    )
    uploads.add_argument(
        "--max-user-mib",
        type=at_most(100_000_000),
        default=10_240,
        metavar="N",
        help="size of all that a user has uploaded, at most; default %(default)s",
    )
    parser.add_argument(
        "--log",
        choices=["json"],
        help="what stderr shows; json: one JSON object a line for every request and search; default: what went wrong",
    )


def add_labels(parser: argparse._ActionsContainer) -> None:
    """Add the labels of a worker, and how it starts engines."""
    parser.add_argument(
        "--labels",
        type=labels,
        default={},
        metavar="NAME=VALUE,...",
        help="what this worker says of itself, for example gpu=h100: searches that ask for it come here",
    )
    parser.add_argument(
        "--launch",
        metavar="WAY",
        help="this worker runs searches that measure on engines, and starts these so: local, ssh:HOST or docker; "
        "default: it runs none that do",
    )


def labels_of(args: argparse.Namespace) -> dict[str, str]:
    """The labels of a worker with these options."""
    from autoauto.server.store.submission import STARTS_ENGINES

    given: dict[str, str] = args.labels
    return given | STARTS_ENGINES if args.launch else given


def run(args: argparse.Namespace) -> int:
    """Start the server, or do what the action says."""
    if not args.action:
        return _serve(args)
    from autoauto.server.store.room import check_lines
    from autoauto.server.store.users import Role, create_token, list_tokens, revoke_tokens

    match args.action:
        case ["token", "create", name]:
            lasts_s = None if args.expires_days is None else args.expires_days * _DAY_S
            token = create_token(open_database(args.storage), name, Role(args.role), lasts_s)
            print_line(f"token of {name}, {args.role}, shown this once: {token}")
        case ["token", "revoke", name]:
            print_line(f"revoked: {revoke_tokens(open_database(args.storage), name)} of {name}")
        case ["token", "list"]:
            for entry in list_tokens(open_database(args.storage)):
                made = datetime.fromtimestamp(entry.created_s, UTC).date()
                print_line(f"{entry.name} {entry.role} {entry.state}, made {made}")
        case ["check"]:
            for line in check_lines(open_database(args.storage)):
                print_line(line)
        case _:
            given, hint = " ".join(args.action), f"actions are {', '.join(_ACTIONS)}"
            raise BadInput(f"there is no action {given!r:.100}; {did_you_mean(given, _ACTIONS, hint)}")
    return 0


def open_database(storage: str) -> ServiceDatabase:
    """The database of a server."""
    from autoauto.server.store.tables import ServiceDatabase

    return ServiceDatabase(storage)


def make_worker(
    source: SearchSource, log: Callable[[str], None], on_end: Callable[[str, SearchState], None], launch: str | None
) -> SearchWorker:
    """A worker for the searches of a source, which starts engines in one way or in none; raises BadInput."""
    from autoauto.cli.output.for_server import describe_answer, describe_best_so_far
    from autoauto.server.work.runner import Describers
    from autoauto.server.work.worker import SearchWorker

    if launch is not None:
        from autoauto.launch.launcher import launcher_of

        launcher_of(launch)  # before anything begins: it may be misspelt
    return SearchWorker(source, Describers(describe_answer, describe_best_so_far), log, on_end, launch)


def queue_of(database: ServiceDatabase, args: argparse.Namespace) -> Queue:
    """The queue of a database, for a worker with these options."""
    from autoauto.server.store.queue import Queue

    return Queue(database, labels_of(args), args.max_running)


def _serve(args: argparse.Namespace) -> int:
    if not all(map(find_spec, ("aiohttp", "prometheus_client"))):
        raise missing_extra("the server", "server")
    from autoauto.cli.commands.studies.commands_to_copy import search_command
    from autoauto.cli.output.for_server import run_command
    from autoauto.cli.submission import request_of_json
    from autoauto.server.rest.app import serve_searches
    from autoauto.server.rest.identity import ServiceOptions

    host, port = args.listen
    limits = args.max_model_mib * MIB, args.max_user_mib * MIB
    identity = user_proxy(args), tls_context(args)
    options = ServiceOptions(host, port, tuple(args.allow_host), args.open, *limits, *identity)
    database, log = open_database(args.storage), _logger(args.log)
    worker = make_worker(
        queue_of(database, args),
        lambda line: log({"event": "error", "message": line}),
        lambda search_id, state: log({"event": "search", "search": search_id, "state": str(state)}),
        args.launch,
    )

    def on_ready(url: str) -> None:
        print_line(f"searches: {url}, {'no worker' if args.no_worker else 'a worker'}, {database.shown}")
        print_line(_open_text(args, database))
        if not args.no_worker:
            worker.start()

    functions = partial(request_of_json, search.add_arguments), partial(run_command, args.main), search_command
    try:
        asyncio.run(serve_searches(database, *functions, options, on_ready, log))
    finally:
        worker.close()
        database.close()
    return 0


def _open_text(args: argparse.Namespace, database: ServiceDatabase) -> str:
    """A line on what is open without a token, and on how to make one if none is in force."""
    from autoauto.server.store.users import list_tokens

    if args.open:
        return "open to every user of this machine, as an administrator: all of it (--open)"
    text = "open without a token: /health, /openapi.json"
    if any(token.state == "in force" for token in list_tokens(database)):
        return text
    storage = "" if args.storage == DEFAULT_STORAGE else f" --storage {database.shown}"
    return f"{text}; none is in force, make one: autoauto server token create NAME{storage}"


def _logger(form: str | None) -> Callable[[Mapping[str, Any]], None]:
    """A function that writes events on stderr: all as JSON, or in lines what went wrong."""
    lock = threading.Lock()

    def write(event: Mapping[str, Any]) -> None:
        with lock:
            if form == "json":
                write_event(**event)
            elif event["event"] == "error":
                request = f"request {event['id']}: " if "id" in event else ""
                warn(f"{request}{event['message']}")

    return write
