"""Who may do what: tokens, of which only hashes are stored, and their roles.

reader      sees searches that are shared
submitter   also submits searches, stops and resumes its own, uploads models
worker      runs searches, and reads what it needs for them
admin       sees and stops all of them, and may do what all others may
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import select, update

from autoauto.records.errors import BadInput, did_you_mean
from autoauto.server.store.tables import MAX_NAME, TOKENS, ServiceDatabase, insert_new

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@-]{{0,{MAX_NAME - 1}}}")
_TOKEN_BYTES = 32
_MAX_TOKEN = 200
"""Maximum length of a token; ours are shorter."""


class Role(StrEnum):
    """The roles of users: a submitter may do what a reader may, an administrator everything."""

    READER = "reader"
    SUBMITTER = "submitter"
    WORKER = "worker"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        """Whether this role may do what another may."""
        return self in (other, Role.ADMIN) or (self, other) == (Role.SUBMITTER, Role.READER)


class User(NamedTuple):
    """A user, as the sender of a request."""

    name: str
    role: Role


LOCAL = User("local", Role.ADMIN)
"""The sender of requests without a token, where the server is open to its machine."""


class TokenEntry(NamedTuple):
    """A token as a list shows it; its text is stored nowhere.

    Attributes:
        created_s, expires_s, revoked_s: seconds since 1970; None where it does not expire, or is in force.
    """

    name: str
    role: Role
    created_s: float
    expires_s: float | None
    revoked_s: float | None

    @property
    def state(self) -> str:
        """Whether it is in force, expired or revoked."""
        if self.revoked_s is not None:
            return "revoked"
        return "expired" if self.expires_s is not None and self.expires_s <= time.time() else "in force"


def is_user_name(text: str) -> bool:
    """Whether a user may be called so: letters, digits or .-_@ after a letter or digit."""
    return _NAME.fullmatch(text) is not None


def create_token(database: ServiceDatabase, name: str, role: Role, lasts_s: float | None = None) -> str:
    """A new token for a user, who may have several; its text is returned this once.

    Raises:
        BadInput: the name has other characters than it may have.
    """
    if not is_user_name(name):
        raise BadInput(
            f"a user's name has 1 to {MAX_NAME} letters, digits or .-_@ and begins with a letter or digit, got "
            f"{name!r:.100}"
        )
    token = f"autoauto-{secrets.token_urlsafe(_TOKEN_BYTES)}"
    now_s = time.time()
    row: dict[str, object] = {
        "name": name,
        "role": str(role),
        "digest": _digest(token),
        "created_s": now_s,
        "expires_s": None if lasts_s is None else now_s + lasts_s,
    }
    database.write(lambda connection: insert_new(connection, TOKENS, row))
    return token


def revoke_tokens(database: ServiceDatabase, name: str) -> int:
    """End all tokens of a user; returns how many were in force.

    Raises:
        BadInput: there is no token of that name.
    """
    ending = update(TOKENS).where(TOKENS.c.name == name, TOKENS.c.revoked_s.is_(None)).values(revoked_s=time.time())
    n_revoked = database.write(lambda connection: connection.execute(ending).rowcount)
    if not n_revoked:
        names = {entry.name for entry in list_tokens(database)}
        if name not in names:
            hint = did_you_mean(name, names, "`autoauto server token list` has all names")
            raise BadInput(f"there is no token of {name!r:.100}; {hint}")
    return n_revoked


def list_tokens(database: ServiceDatabase) -> list[TokenEntry]:
    """All tokens, the oldest first."""
    columns = TOKENS.c.name, TOKENS.c.role, TOKENS.c.created_s, TOKENS.c.expires_s, TOKENS.c.revoked_s
    rows = database.rows(select(*columns).order_by(TOKENS.c.token_id))
    return [TokenEntry(row.name, Role(row.role), row.created_s, row.expires_s, row.revoked_s) for row in rows]


def user_of(database: ServiceDatabase, token: str) -> User | None:
    """The user with a token; None where it is no token that is in force.

    The database is asked for a hash: how long that takes says nothing of the token of another.
    """
    if not (0 < len(token) <= _MAX_TOKEN and token.isascii()):
        return None
    known = select(TOKENS.c.name, TOKENS.c.role, TOKENS.c.expires_s)
    known = known.where(TOKENS.c.digest == _digest(token), TOKENS.c.revoked_s.is_(None))
    for row in database.rows(known):  # one, or none
        if row.expires_s is None or row.expires_s > time.time():
            return User(row.name, Role(row.role))
    return None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
