"""Files that clients upload, models and clusters, once by the digest of their content, in the database.

So every worker that has the database has them. `store_model` keeps one for a user, who alone may use it from then on,
until `delete_model`; `fetch_uploads` writes those of a search where a worker reads them.

    file ──▶ parts of an upload ──▶ the digest has these parts, and the user holds it
                   ╰ what fails on the way, or is killed, is deleted: `delete_left`
"""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, select, update

from autoauto.database.leases import is_gone, this_process
from autoauto.processes.folders import temporary_folder
from autoauto.records.errors import AutoautoError, BadInput
from autoauto.records.files.uploads import is_intact, uploaded_path, uploads_dir
from autoauto.records.units import format_bytes
from autoauto.server.store.one_file import check_one_file, refuse_other_files
from autoauto.server.store.searches import Conflict, NotFound, SearchState
from autoauto.server.store.tables import (
    HOLDERS,
    MAX_FILE_NAME,
    MODEL_HOLDERS,
    MODEL_PARTS,
    MODELS,
    SEARCHES,
    UPLOADS,
    Page,
    ServiceDatabase,
    insert_new,
)
from autoauto.server.store.users import Role, User

PART_BYTES = 1 << 20
LEFT_S = 600.0
"""An upload of which nothing was written for so long has failed."""
DIGEST = re.compile(r"[0-9a-f]{64}")


class OverQuota(AutoautoError):
    """A user has uploaded as much as he may."""


class CannotKeep(BadInput):
    """This machine cannot write an uploaded file."""


class StoredModel(NamedTuple):
    """A file that was stored, and whether it is new for its user."""

    digest: str
    is_new: bool


def file_name(given: str) -> str:
    """The name of a file as people read it: without folders, and without what a terminal or a command obeys.

    >>> file_name("C:\\\\nets\\\\my net.onnx"), file_name("../--x\\n.onnx"), file_name("/")
    ('my net.onnx', 'x.onnx', '')
    """
    last = re.split(r"[/\\]", given)[-1]
    return "".join(each for each in last if each.isprintable()).lstrip("-. ")[:MAX_FILE_NAME].strip()


def store_model(
    database: ServiceDatabase, user: User, file: BinaryIO, name: str = "", quota_bytes: int | None = None
) -> StoredModel:
    """Keep the content of a file for a user.

    Args:
        name: of the file; where none is given, one that is known keeps its name.
        quota_bytes: of all that the user has uploaded, at most; None for any number.

    Raises:
        BadInput: the file is empty, or an ONNX model that keeps weights in other files.
        OverQuota: the user would have more than the quota.
        StorageFull, DatabaseAway: it cannot be written.
        Conflict: it took so long that what was written is gone.
    """
    digest = _digest(_parts(file))
    n_bytes = file.tell()
    if not n_bytes:
        raise BadInput("an upload is the content of a file, got an empty body; send the file")
    refuse_other_files(file)
    delete_left(database)
    offer = _Offer(user, digest, n_bytes, file_name(name), quota_bytes)
    if _digest(_all_parts(partial(stored_part, database, digest))) == digest:  # the database has all of it, undamaged
        held = database.write(lambda connection: _hold(database, connection, offer))
        if held is not None:
            return held
    database.write(lambda connection: _check_quota(connection, offer))  # before anything is written
    with _written(database, file) as upload:
        held = database.write(lambda connection: _hold(database, connection, offer, upload))
    assert held is not None
    return held


class _Offer(NamedTuple):
    """A file that a user wants to hold; the other fields are as in `store_model`."""

    user: User
    digest: str
    n_bytes: int
    name: str
    quota_bytes: int | None


def _check_quota(connection: Connection, offer: _Offer) -> None:
    others = and_(MODEL_HOLDERS.c.owner == offer.user.name, MODEL_HOLDERS.c.digest != offer.digest)
    used_bytes = _used_bytes(connection, others)
    if offer.quota_bytes is not None and used_bytes + offer.n_bytes > offer.quota_bytes:
        raise OverQuota(
            f"the uploads of a user have {format_bytes(offer.quota_bytes)} together at most, yours have "
            f"{format_bytes(used_bytes)} and this file {format_bytes(offer.n_bytes)}; delete what you need no more, at "
            "/uploads or by DELETE /v1/models/DIGEST, or ask for a higher --max-user-mib of the server"
        )


def _used_bytes(connection: Connection, which: ColumnElement[bool]) -> int:
    held = select(func.sum(MODELS.c.n_bytes)).join(MODEL_HOLDERS, MODEL_HOLDERS.c.digest == MODELS.c.digest)
    return int(connection.scalar(held.where(which)) or 0)


def _hold(
    database: ServiceDatabase, connection: Connection, offer: _Offer, upload: str | None = None
) -> StoredModel | None:
    """Let a user hold a file, whose content an upload has written; None without an upload, if no content is stored."""
    digest = offer.digest
    row = {
        "digest": digest,
        "owner": offer.user.name,
        "name": offer.name or f"upload-{digest[:8]}",
        "created_s": time.time(),
    }
    is_new = insert_new(connection, MODEL_HOLDERS, row)  # first, since SQLite locks at the first change
    database.alone_with_uploads(connection)
    own = and_(MODEL_HOLDERS.c.digest == digest, MODEL_HOLDERS.c.owner == offer.user.name)
    stored = connection.scalar(select(MODELS.c.upload).where(MODELS.c.digest == digest))
    if upload not in (None, stored):  # it is this one where the transaction is repeated after a lost answer
        if not connection.execute(delete(UPLOADS).where(UPLOADS.c.upload == upload)).rowcount:
            raise Conflict("an upload must be stored without long pauses, this one was given up; send it again")
        _delete_content(connection, digest)  # equal, or damaged
        insert_new(connection, MODELS, {"digest": digest, "upload": upload, "n_bytes": offer.n_bytes})
    elif stored is None:
        connection.execute(delete(MODEL_HOLDERS).where(own))  # the last one who held it has deleted it meanwhile
        return None
    _check_quota(connection, offer)
    if offer.name:
        connection.execute(update(MODEL_HOLDERS).where(own).values(name=offer.name))
    return StoredModel(digest, is_new)


@contextmanager
def _written(database: ServiceDatabase, file: BinaryIO) -> Iterator[str]:
    """The name of an upload with the content of a file; it is deleted unless a digest has it at the end."""
    upload = uuid.uuid4().hex
    row = {"upload": upload, "process": this_process(), "written_s": time.time()}
    database.write(lambda connection: insert_new(connection, UPLOADS, row))
    try:
        for number, content in enumerate(_parts(file)):
            database.write(partial(_add_part, upload, number, content))
        yield upload
    finally:
        with suppress(AutoautoError):  # else the next upload deletes it
            database.write(partial(_delete_unfinished, [upload]))


def _add_part(upload: str, number: int, content: bytes, connection: Connection) -> None:
    insert_new(connection, MODEL_PARTS, {"upload": upload, "part": number, "content": content})
    connection.execute(update(UPLOADS).where(UPLOADS.c.upload == upload).values(written_s=time.time()))


def delete_left(database: ServiceDatabase) -> None:
    """Delete what is left of uploads whose server was killed."""
    columns = UPLOADS.c.upload, UPLOADS.c.process, UPLOADS.c.written_s
    rows = database.rows(select(*columns))
    left = [row.upload for row in rows if is_gone(row.process) or row.written_s < time.time() - LEFT_S]
    if left:
        database.write(partial(_delete_unfinished, left))


def _delete_unfinished(uploads: list[str], connection: Connection) -> None:
    """Delete uploads and their parts, but those that a digest has."""
    for upload in uploads:
        if connection.execute(delete(UPLOADS).where(UPLOADS.c.upload == upload)).rowcount:
            connection.execute(delete(MODEL_PARTS).where(MODEL_PARTS.c.upload == upload))


def _delete_content(connection: Connection, digest: str) -> None:
    upload = select(MODELS.c.upload).where(MODELS.c.digest == digest).scalar_subquery()
    connection.execute(delete(MODEL_PARTS).where(MODEL_PARTS.c.upload == upload))
    connection.execute(delete(MODELS).where(MODELS.c.digest == digest))


def list_models(database: ServiceDatabase, user: User, limit: int = 50, before: int = 0) -> Page:
    """The files that a user has uploaded, the newest first; for an administrator those of all users."""
    return database.newest(_listed(user), MODEL_HOLDERS.c.number, limit, before, _described)


def read_model(database: ServiceDatabase, user: User, digest: str) -> dict[str, Any]:
    """A file that a user has uploaded; for an administrator one of any user.

    Raises:
        NotFound: there is none.
    """
    query = _listed(user).where(MODEL_HOLDERS.c.digest == digest).order_by(MODEL_HOLDERS.c.owner != user.name).limit(1)
    row = database.write(lambda connection: connection.execute(query).one_or_none())
    if row is None:
        raise _not_found(digest)
    return _described(row)


def used_bytes(database: ServiceDatabase, user: User) -> int:
    """The bytes of all that a user has uploaded."""
    return database.write(lambda connection: _used_bytes(connection, MODEL_HOLDERS.c.owner == user.name))


def _listed(user: User) -> Any:
    query = select(MODEL_HOLDERS, MODELS.c.n_bytes).join(MODELS, MODELS.c.digest == MODEL_HOLDERS.c.digest)
    return query if user.role is Role.ADMIN else query.where(MODEL_HOLDERS.c.owner == user.name)


def _described(row: Any) -> dict[str, Any]:
    return {
        "digest": row.digest,
        "model": f"sha256:{row.digest}",
        "name": row.name,
        "n_bytes": row.n_bytes,
        "owner": row.owner,
        "created": row.created_s,
    }


def _not_found(digest: str) -> NotFound:
    return NotFound(f"there is no model {digest!r:.80} that you have uploaded; GET /v1/models lists yours")


def delete_model(database: ServiceDatabase, user: User, digest: str) -> None:
    """Forget a file for its user, with its content where nobody else has uploaded it; for an administrator altogether.

    Raises:
        NotFound: the user has not uploaded it.
        Conflict: a search that has not ended needs it.
    """

    def work(connection: Connection) -> bool:
        of_digest = MODEL_HOLDERS.c.digest == digest
        own = of_digest if user.role is Role.ADMIN else and_(of_digest, MODEL_HOLDERS.c.owner == user.name)
        # Deleted before anything is read, since SQLite locks at the first change; a Conflict puts it back.
        if not connection.execute(delete(MODEL_HOLDERS).where(own)).rowcount:
            raise _not_found(digest)
        database.alone_with_uploads(connection)
        is_last = connection.scalar(select(MODEL_HOLDERS.c.owner).where(of_digest).limit(1)) is None
        search_id = connection.scalar(_needs(digest, None if is_last else user.name))
        if search_id is not None:
            raise Conflict(
                f"a file that is deleted is needed by no search that waits or runs, search {search_id} needs it; stop "
                "it first, or wait for its end"
            )
        if is_last:
            _delete_content(connection, digest)
        return is_last

    if database.write(work):
        for what in ("model", "cluster"):
            uploaded_path(what, digest).unlink(missing_ok=True)


def _needs(digest: str, holder: str | None) -> Any:
    goes_on = SEARCHES.c.state.in_([SearchState.WAITING, SearchState.RUNNING])
    query = select(SEARCHES.c.id).where(goes_on, SEARCHES.c.submission.contains(f"sha256:{digest}")).limit(1)
    if holder is None:
        return query
    return query.where(exists().where(HOLDERS.c.search_id == SEARCHES.c.id, HOLDERS.c.owner == holder))


def fetch_uploads(database: ServiceDatabase, uploads: Mapping[str, str]) -> None:
    """Write uploaded files where this machine keeps them (`uploaded_path`), unless it has them.

    Args:
        uploads: digests by what the files are, as in `Submission.uploads`.

    Raises:
        BadInput, CannotKeep: as `keep_upload`.
    """
    for what, digest in uploads.items():
        keep_upload(what, digest, partial(stored_part, database, digest))


def keep_upload(what: str, digest: str, part: Callable[[int], bytes | None]) -> None:
    """Write an uploaded file where this machine keeps it, unless it has it undamaged.

    Args:
        what: the file is, as in `Submission.uploads`.
        part: gives its parts by number, then None; called where the file is missing.

    Raises:
        BadInput: the content is another one, or a model that is not one file.
        CannotKeep: it cannot be written.
    """
    path = uploaded_path(what, digest)
    try:
        if is_intact(path, digest):
            return
        uploads_dir().mkdir(parents=True, exist_ok=True)
        with temporary_folder("autoauto-fetched-", parent=uploads_dir()) as folder:
            _fetch(what, digest, part, folder / path.name)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            (folder / path.name).replace(path)
    except OSError as error:
        raise CannotKeep(
            f"uploaded files must be kept on this machine, they cannot: {error.strerror}; free disk space, or set "
            "AUTOAUTO_CACHE_DIR to a folder that can be written"
        ) from error


def _fetch(what: str, digest: str, part: Callable[[int], bytes | None], path: Path) -> None:
    with path.open("xb") as file:
        file.writelines(_all_parts(part))
    if not is_intact(path, digest):
        raise BadInput(f"the uploaded {what} sha256:{digest} must be on the server whole, it is not; upload it again")
    if what == "model":
        with path.open("rb") as written:
            check_one_file(written)


def _all_parts(part: Callable[[int], bytes | None]) -> Iterator[bytes]:
    for number in count():
        content = part(number)
        if content is None:
            return
        yield content


def stored_part(database: ServiceDatabase, digest: str, number: int) -> bytes | None:
    """A part of an uploaded file; None where it has no such part."""
    if not DIGEST.fullmatch(digest):
        return None
    part = select(MODEL_PARTS.c.content).join(MODELS, MODELS.c.upload == MODEL_PARTS.c.upload)
    part = part.where(MODELS.c.digest == digest, MODEL_PARTS.c.part == number)
    content = database.scalar(part)
    return None if content is None else bytes(content)


def _digest(parts: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _parts(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while part := file.read(PART_BYTES):
        yield part
