"""What was asked for, and by whom: `read_submission`, `is_held`; of searches that a user may see."""

from __future__ import annotations

from sqlalchemy import select

from autoauto.server.store.submission import Submission
from autoauto.server.store.tables import HOLDERS, SEARCHES, ServiceDatabase
from autoauto.server.store.users import Role, User


def read_submission(database: ServiceDatabase, search_id: str) -> Submission:
    """The submission of a search."""
    stored = select(SEARCHES.c.submission).where(SEARCHES.c.id == search_id)
    return Submission.from_json(database.write(lambda connection: connection.execute(stored).scalar_one()))


def is_held(database: ServiceDatabase, user: User, search_id: str) -> bool:
    """Whether a user has asked for a search, or is an administrator, and so may stop it."""
    own = select(HOLDERS.c.owner).where(HOLDERS.c.search_id == search_id, HOLDERS.c.owner == user.name)
    return user.role is Role.ADMIN or database.write(lambda connection: connection.scalar(own)) is not None
