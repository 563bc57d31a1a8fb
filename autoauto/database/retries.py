"""Which errors of databases pass, and how long they are waited for: `retried`, `reach`, `first_line`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import uniform
from time import monotonic, sleep
from typing import TypeVar

from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from autoauto.database.backend import WAIT_S
from autoauto.database.registry import BACKENDS
from autoauto.records.errors import AutoautoError

T = TypeVar("T")

logging.getLogger("sqlalchemy").addHandler(logging.NullHandler())  # it would print errors, and Ctrl-C, that it raises
_RETRY_S = 0.5  # mean time between two tries; a random one, so that processes that wait together come back apart


def retried(work: Callable[[], T], check: Callable[[], None] = lambda: None) -> T:
    """The result of `work`, which is repeated for up to `WAIT_S` while its error may pass; then the error is raised.

    Only for work that may be done twice: the server may have done it before the connection broke. Errors that pass are
    those of a server that is away or ended a transaction for another's sake, and of a locked file, for which the
    driver has waited already (`Backend.connect_arguments`). `check` is called before every wait; it may raise, as for
    Ctrl-C.
    """
    give_up_s = monotonic() + WAIT_S
    while True:
        try:
            return work()
        except Exception as error:
            if not _may_pass(error) or monotonic() > give_up_s:
                raise
        check()
        sleep(_RETRY_S * uniform(0.5, 1.5))


def reach(engine: Engine, check: Callable[[], None] = lambda: None) -> None:
    """Connect for the first time; a server that does not answer is not waited for, it may not exist.

    One that answers and then drops the connection is waited for as in `retried`.
    """
    answers: list[object] = []
    event.listen(engine, "connect", lambda connection, _: answers.append(connection), insert=True)
    try:
        engine.connect().close()
    except DBAPIError:
        if not answers:
            raise
        retried(lambda: engine.connect().close(), check)


def _may_pass(error: Exception) -> bool:
    if isinstance(error, AutoautoError):
        return False  # made of an error for which we have waited already
    cause = error if isinstance(error, DBAPIError) else error.__cause__  # of an exception of Optuna
    if not isinstance(cause, OperationalError | InterfaceError):
        return isinstance(cause, DBAPIError) and cause.connection_invalidated
    return not any(backend.is_final(cause.orig) for backend in BACKENDS.values())


def first_line(error: BaseException) -> str:
    """The message of the database's driver, without the statement and the links that SQLAlchemy adds."""
    if not isinstance(error, SQLAlchemyError) and isinstance(error.__cause__, SQLAlchemyError):
        error = error.__cause__  # of an exception of Optuna
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    return str(error).strip().partition("\n")[0]
