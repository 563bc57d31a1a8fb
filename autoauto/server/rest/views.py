"""Reports, explanations, tables and exports of a search: what the commands of the same names write.

`Autoauto-Printed` among the headers of an answer has the rest, as JSON in percent-encoding: `exit_code`, what the
command printed on `stderr`, and of an export on `stdout`.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Hashable, Mapping, Sequence
from os import strerror
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from autoauto.processes.folders import temporary_folder
from autoauto.records.errors import BadInput
from autoauto.server.call import Answer, Call, Service
from autoauto.server.client import PRINTED
from autoauto.server.pages.frame import REPORT_HEADERS
from autoauto.server.store.asked import names_of, read_submission
from autoauto.server.store.models import fetch_uploads
from autoauto.server.store.room import full_disk_in, no_room
from autoauto.server.store.searches import Conflict, Forbidden, read_search
from autoauto.server.store.trials import study_name
from autoauto.server.work.commands import Printed
from autoauto.server.work.paths import without_paths

MAX_EXPORT_BYTES = 256 << 20
MAX_STDERR = 4_000
MEDIA = {
    "text": "text/plain; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "zip": "application/zip",
}


def report(service: Service, call: Call) -> Answer:
    """The best of a search, its stages and top trials."""
    if call.query["as"] == "html":
        return _file(service, call, "report", "--html")
    return _text(service, call, "report")


def explain(service: Service, call: Call) -> Answer:
    """Why the best won, and what every other cell lacks."""
    return _text(service, call, "explain")


def difference(service: Service, call: Call) -> Answer:
    """A search beside another one."""
    search, name, key = _study(service, call)
    other, other_name, other_key = _study(service, call._replace(path={"search_id": call.query["other"] or ""}))
    names = {**_names(service, search), **_names(service, other)}
    return _printed_text(service, call, ["diff", name, other_name], (key, other_key), names)


def table(service: Service, call: Call) -> Answer:
    """All trials of a search in a table."""
    if call.query["as"] == "parquet":
        return _file(service, call, "trials", "--parquet")
    return _text(service, call, "trials")


def export(service: Service, call: Call) -> Answer:
    """The best as files of another runtime."""
    search, name, _ = _study(service, call)
    if call.query["to"] is None:
        raise BadInput("to is the name of a format, got none; `autoauto export --help` lists them")
    if not search["may_export"]:
        raise Forbidden(
            f"search {search['id']} is shared with you without the weights of its model, which an export holds; ask "
            "who shared it to submit it again with shared and share_weights"
        )
    # The command reads uploaded files on this machine.
    fetch_uploads(service.database, read_submission(service.database, search["id"]).uploads)
    with temporary_folder("autoauto-answer-") as folder:
        target = folder / "export"
        words = ["export", name, "--to", call.query["to"], "--output", str(target)]
        if call.query["check"] == "true":
            words.append("--check")
        if call.query["as"] == "json":
            words.append("--json")
        printed = service.commands.printed(words, names=_names(service, search))
        # The folder is no concern of the client, who gets an archive of it.
        shown = printed._replace(stdout=printed.stdout.replace(str(target), "export"))
        _refuse_full(printed)
        if not target.is_dir():
            raise Conflict(_message(shown))
        answer = _answer(_archive(target), "zip", shown, shown.stdout)
        file_name = f"{name}-{call.query['to']}.zip"
        return answer._replace(headers={**answer.headers, "Content-Disposition": f'attachment; filename="{file_name}"'})


def _archive(folder: Path) -> bytes:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    n_bytes = sum(path.stat().st_size for path in files)
    if n_bytes > MAX_EXPORT_BYTES:
        raise Conflict(
            f"an export from a server has at most {MAX_EXPORT_BYTES} bytes, this one {n_bytes}; run `autoauto export` "
            "on a machine that reaches the database"
        )
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for path in files:
            archive.write(path, path.relative_to(folder))
    return content.getvalue()


def _study(service: Service, call: Call) -> tuple[dict[str, Any], str, Hashable]:
    """A search, its study, and a key that is another when it has changed."""
    search = read_search(service.database, call.user, call.search_id)
    if not search["n_trials"]:
        raise Conflict(f"search {search['id']} must have a trial for this, it has none; it is {search['state']}")
    key = search["id"], search["state"], search["n_trials"], search["ended"]
    return search, study_name(search["id"]), key


def _names(service: Service, search: Mapping[str, Any]) -> dict[str, str]:
    return names_of(search, read_submission(service.database, search["id"]))


def _text(service: Service, call: Call, command: str) -> Answer:
    search, name, key = _study(service, call)
    words = [command, name]
    if "top" in call.query:
        words += ["--top", str(call.query["top"])]
    return _printed_text(service, call, words, key, _names(service, search))


def _printed_text(
    service: Service, call: Call, words: Sequence[str], key: Hashable, names: Mapping[str, str]
) -> Answer:
    form = call.query["as"]
    if form != "text":
        words = [*words, f"--{form}"]
    printed = service.commands.printed(words, call.query["columns"], key, names)
    _refuse(printed)
    return _answer(printed.stdout.encode(), form, printed)


def _file(service: Service, call: Call, command: str, option: str) -> Answer:
    search, name, _ = _study(service, call)
    with temporary_folder("autoauto-answer-") as folder:
        path = folder / "file"
        printed = service.commands.printed([command, name, option, str(path)], names=_names(service, search))
        _refuse(printed)
        shown = printed._replace(stderr=printed.stderr.replace(f"autoauto: wrote {path}\n", ""))
        return _answer(path.read_bytes(), call.query["as"], shown, shown.stdout if option == "--html" else "")


def _refuse(printed: Printed) -> None:
    """Raise the error of a command that could not do what was asked; that nothing fits is an answer."""
    _refuse_full(printed)
    if printed.exit_code == BadInput.exit_code:
        raise BadInput(_message(printed))


def _refuse_full(printed: Printed) -> None:
    number = full_disk_in(printed.stderr)
    if printed.exit_code and number:
        raise no_room(OSError(number, strerror(number)))


def _message(printed: Printed) -> str:
    return without_paths(printed.stderr.strip().rpartition("\n")[2].removeprefix("autoauto: "), {})


def _answer(content: bytes, form: str, printed: Printed, stdout: str = "") -> Answer:
    """The answer with the output of a command, or with its message where it has no output."""
    rest = {"exit_code": printed.exit_code, "stderr": printed.stderr[-MAX_STDERR:], "stdout": stdout[-MAX_STDERR:]}
    rest["is_empty"] = not content
    header = quote(msgspec.json.encode(rest).decode())
    headers = {PRINTED: header}
    if form == "html":
        headers |= REPORT_HEADERS
    return Answer(200, None, raw=(content or printed.stderr.encode(), MEDIA[form]), headers=headers)
