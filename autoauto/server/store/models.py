"""Files that clients upload, models and clusters, once by the digest of their content, in the database.

So every worker that has the database has them. `store_model` keeps one, `fetch_uploads` writes those of a search
where a worker reads them.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import Connection, select

from autoauto.records.errors import BadInput
from autoauto.records.files.uploads import uploaded_path
from autoauto.server.store.searches import NotFound
from autoauto.server.store.tables import MODEL_HOLDERS, MODEL_PARTS, MODELS, ServiceDatabase, insert_new
from autoauto.server.store.users import Role, User

PART_BYTES = 1 << 20
DIGEST = re.compile(r"[0-9a-f]{64}")


def store_model(database: ServiceDatabase, user: User, file: BinaryIO) -> tuple[str, bool]:
    """Keep the content of a file for a user; returns its digest, and whether the content is new.

    Raises:
        BadInput: the file is empty.
    """
    digest, n_bytes = _digest(file)
    if not n_bytes:
        raise BadInput("a model is the content of a file, got an empty body; send the file")
    is_new = not database.write(lambda connection: _is_stored(connection, digest))
    if is_new:
        for number, content in enumerate(_parts(file)):  # parts that another upload has written are the same
            row = {"digest": digest, "part": number, "content": content}
            database.write(partial(insert_new, table=MODEL_PARTS, rows=[row]))

    def hold(connection: Connection) -> None:
        insert_new(connection, MODELS, [{"digest": digest, "n_bytes": n_bytes, "created_s": time.time()}])
        insert_new(connection, MODEL_HOLDERS, [{"digest": digest, "owner": user.name}])

    database.write(hold)
    return digest, is_new


def check_model(database: ServiceDatabase, user: User, digest: str) -> int:
    """The bytes of a file that a user has uploaded.

    Raises:
        NotFound: the user has not.
    """
    held = select(MODEL_HOLDERS.c.digest).where(MODEL_HOLDERS.c.digest == digest)
    if user.role is not Role.ADMIN:
        held = held.where(MODEL_HOLDERS.c.owner == user.name)
    size = select(MODELS.c.n_bytes).where(MODELS.c.digest == digest, MODELS.c.digest.in_(held))
    n_bytes = database.write(lambda connection: connection.scalar(size))
    if n_bytes is None:
        raise NotFound(f"there is no model {digest!r:.80} that you have uploaded; try POST /v1/models")
    return int(n_bytes)


def fetch_uploads(database: ServiceDatabase, uploads: Mapping[str, str]) -> None:
    """Write uploaded files where this machine keeps them (`uploaded_path`), unless it has them.

    Args:
        database: of the service.
        uploads: digests by what the files are: "model" or "cluster".

    Raises:
        BadInput: the database does not have one, or it cannot be written.
    """
    for what, digest in uploads.items():
        keep_upload(what, digest, partial(stored_part, database, digest))


def keep_upload(what: str, digest: str, part: Callable[[int], bytes | None]) -> None:
    """Write an uploaded file where this machine keeps it, unless it has it.

    Args:
        what: "model" or "cluster".
        digest: of its content.
        part: gives its parts by number, then None; called where the file is missing.

    Raises:
        BadInput: the content is another, or it cannot be written.
    """
    path = uploaded_path(what, digest)
    try:
        if path.is_file():
            with path.open("rb") as known:
                if _digest(known)[0] == digest:
                    return
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.writelines(_all_parts(part))
        with open(file.name, "rb") as written:
            if _digest(written)[0] != digest:
                os.unlink(file.name)
                raise BadInput(f"the uploaded {what} sha256:{digest} must be there whole, it is not; upload it again")
        Path(file.name).rename(path)
    except OSError as error:
        hint = "set AUTOAUTO_CACHE_DIR"
        raise BadInput(f"{path.parent} must be writable for uploaded files: {error.strerror}; {hint}") from error


def _all_parts(part: Callable[[int], bytes | None]) -> Iterator[bytes]:
    """The content of an uploaded file, of which a function gives the parts by number."""
    for number in count():
        content = part(number)
        if content is None:
            return
        yield content


def stored_part(database: ServiceDatabase, digest: str, number: int) -> bytes | None:
    """A part of an uploaded file; None where it has no such part."""
    if not DIGEST.fullmatch(digest):
        return None
    part = select(MODEL_PARTS.c.content).where(MODEL_PARTS.c.digest == digest, MODEL_PARTS.c.part == number)
    content = database.write(lambda connection: connection.scalar(part))
    return None if content is None else bytes(content)


def _is_stored(connection: Connection, digest: str) -> bool:
    return connection.scalar(select(MODELS.c.digest).where(MODELS.c.digest == digest)) is not None


def _digest(file: BinaryIO) -> tuple[str, int]:
    """The digest of the content of a file, and its bytes."""
    digest = hashlib.sha256()
    for part in _parts(file):
        digest.update(part)
    return digest.hexdigest(), file.tell()


def _parts(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while part := file.read(PART_BYTES):
        yield part
