"""What a user sees of a search by its holders: whether the weights, `shares_weights`, and the names of uploaded files.

A holder has named them where he uploaded them, `held_names`, and each reader sees the names of a holder by whom he sees
the search, `names_for`: himself and all who share it; an administrator sees it by everybody.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, Label, and_, exists, not_, or_, select

from autoauto.records.errors import BadInput
from autoauto.records.files.uploads import UPLOADED
from autoauto.server.store.submission import Submission
from autoauto.server.store.tables import HOLDERS, MODEL_HOLDERS, SEARCHES, ServiceDatabase
from autoauto.server.store.users import Role, User

_OF_THE_SEARCH = HOLDERS.c.search_id == SEARCHES.c.id


def shares_weights() -> Label[bool]:
    """True of a search that some holder shares with its weights, so that others may export it."""
    shared = and_(_OF_THE_SEARCH, HOLDERS.c.is_shared.is_(True), HOLDERS.c.shares_weights.is_(True))
    return exists().where(shared).label("shares_weights")


def held_names(database: ServiceDatabase, connection: Connection, user: User, submission: Submission) -> str:
    """The names of the uploaded files of a submission by their digests, in JSON.

    None of them is deleted before the transaction ends.

    Raises:
        BadInput: the user has not uploaded one.
    """
    if submission.uploads:
        database.alone_with_uploads(connection)
    names = {}
    for what, digest in submission.uploads.items():
        is_own = MODEL_HOLDERS.c.owner == user.name
        held = select(MODEL_HOLDERS.c.name).where(MODEL_HOLDERS.c.digest == digest).order_by(not_(is_own)).limit(1)
        name = connection.scalar(held if user.role is Role.ADMIN else held.where(is_own))
        if name is None:
            raise BadInput(f"the {what} must be uploaded first, got sha256:{digest}; try POST /v1/models")
        names[digest] = name
    return msgspec.json.encode(names).decode()


def names_for(user: User) -> Label[Any]:
    """The result of `held_names` for the user if he holds a search, else for a holder through whom he sees it."""
    is_own = HOLDERS.c.owner == user.name
    names = select(HOLDERS.c.names).where(_OF_THE_SEARCH).order_by(not_(is_own), HOLDERS.c.owner).limit(1)
    if user.role is not Role.ADMIN:
        names = names.where(or_(is_own, HOLDERS.c.is_shared.is_(True)))
    return names.scalar_subquery().label("names")


def called(names: str | None, given: str) -> str:
    """The name of a model or a cluster for people: that of a built-in one, or of the file that was uploaded.

    >>> called('{"%s": "net.onnx"}' % (64 * "a"), "sha256:" + 64 * "a"), called("{}", "resnet50")
    ('net.onnx', 'resnet50')
    """
    match = UPLOADED.fullmatch(given)
    return given if match is None else str(msgspec.json.decode(names or "{}").get(match[1], given))
