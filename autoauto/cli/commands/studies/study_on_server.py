"""Searches of a server, shown by the commands of studies with `--server URL`: their lines and exit codes."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from autoauto.cli.options.server import server_of
from autoauto.cli.output.lines import print_json, print_line, warn
from autoauto.records.errors import BadInput, did_you_mean

if TYPE_CHECKING:
    from autoauto.server.client import Client, PrintedAnswer

_ID = re.compile(r"[0-9a-f]{20}")
_NARROWEST = 40


def studies_on_server(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The searches of a server as rows of the table of studies, the newest first."""
    return list(map(_row, server_of(args).searches()))


def _row(search: dict[str, Any]) -> dict[str, Any]:
    from datetime import UTC, datetime

    from autoauto.report.wording import stored_unit

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
    """Print what a server writes of a search, or write it to a file."""
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
    """Print what a server writes of two searches."""
    other = search_named(server_of(args), args.other)
    return show_on_server(args, "difference", "json" if args.json else "text", other=other)


def export_on_server(args: argparse.Namespace) -> int:
    """Write the best of a search of a server as files of another runtime."""
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
    """The id of a search, of which the beginning suffices; the newest one where none is named.

    Raises:
        BadInput: there is none, or several are meant.
    """
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
