"""The database of a study, opened as Optuna's `RDBStorage`; every database error becomes a `BadInput` of one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from optuna import Study
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage
from sqlalchemy import Engine, NullPool, create_engine, inspect
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from autoauto.database.registry import backend_of, driver_errors, parse_url, shown
from autoauto.database.retries import first_line, reach, retried
from autoauto.database.sqlite import file_url
from autoauto.processes.folders import temporary_folder
from autoauto.records.errors import AutoautoError, BadInput
from autoauto.space.study_summary import SERVED
from autoauto.study.interrupts import Interrupts
from autoauto.study.store.trial_storage import TrialStorage, storage_of

P = ParamSpec("P")
T = TypeVar("T")

_DATABASE = "trials.db"


@contextmanager
def storage_errors(subject: str) -> Iterator[None]:
    """Turn the exceptions of the database's driver and of Optuna into BadInput; also a decorator."""
    try:
        yield
    except UpdateFinishedTrialError as error:
        message = f"{subject}: another process ended the trial; run one search at a time, or use another --study-name"
        raise BadInput(message) from error
    except (SQLAlchemyError, StorageInternalError) as error:
        raise BadInput(f"{subject} cannot be used: {first_line(error)}; try another --storage") from error


@contextmanager
def row_errors() -> Iterator[None]:
    """Turn the exceptions of `storage_errors`, and those of rows that are gone or not read, into BadInput."""
    subject = "the study's database"
    try:
        with storage_errors(subject):
            yield
    except AutoautoError:
        raise
    except KeyError as error:  # a row that is not there
        raise BadInput(
            f"{subject} does not hold the study or a trial any more: another program deleted it; search again, which "
            "makes a new one where there is none"
        ) from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadInput(
            f"{subject} holds a value that Optuna does not read: {first_line(error)}; correct it there, or give "
            "another --study-name"
        ) from error


def reads(work: Callable[P, T]) -> Callable[P, T]:
    """Turn the exceptions of `work` that come from rows we did not write into BadInput; a decorator.

    The first argument of `work` may be the study, which the message then names.
    """

    @wraps(work)
    def read(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(*args, **kwargs)
        except AutoautoError:
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            name = getattr(args[0], "study_name", None)
            subject = f"study {name!r}" if name else "the study"
            raise BadInput(
                f"{subject} holds what cannot be read ({type(error).__name__}: {error}); "
                "correct it there, or give another --study-name"
            ) from error

    return read


def through_restarts(work: Callable[P, T]) -> Callable[P, T]:
    """Repeat `work`, which may be done twice, as `retried`, then raise as `row_errors`; Ctrl-C ends it. A decorator."""

    @wraps(work)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
        with row_errors():
            return retried(lambda: work(*args, **kwargs), Interrupts.check)

    return repeated


def open_storage(storage: str) -> TrialStorage:
    """Open the database at the URL `storage`, created with its folder when it is new.

    Its connections are tuned for many small transactions (`Backend.tune`).

    Raises:
        BadInput: the URL or the database cannot be used.
        MissingExtra: the database's driver is not installed.
    """
    url = parse_url(storage)
    file = backend_of(url).file(url)
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"the folder of {storage} cannot be made: {error}; try another --storage") from error
    return _connect(url, is_tuned=True)


def existing_storage(storage: str) -> TrialStorage:
    """Open the database at the URL `storage` to read it; never creates one.

    Raises:
        BadInput: there is none, it holds no studies, or it cannot be used.
        MissingExtra: the database's driver is not installed.
    """
    existing_engine(storage)
    return _connect(parse_url(storage), is_tuned=False)


def existing_engine(storage: str) -> Engine:
    """Connections to a database that holds studies; none stays open between two uses; raises as `existing_storage`."""
    url = parse_url(storage)
    file = backend_of(url).file(url)
    if file is not None and not file.exists():
        raise BadInput(f"there is no database {file}; `autoauto search` makes one, or give another --storage")
    with storage_errors(shown(url)), driver_errors(url):
        engine = _reached(url)
        # Optuna would make its tables in anyone's database.
        has_studies = retried(lambda: inspect(engine).has_table("studies"), Interrupts.check)
    if not has_studies:
        raise BadInput(f"{shown(url)} holds no studies; `autoauto search` makes one, or give another --storage")
    return engine


def in_memory(storage: str) -> bool:
    """True if a URL is that of a database in memory, which is lost with its connection; a BadInput if it is none."""
    url = parse_url(storage)
    return backend_of(url).is_in_memory(url)


class Database(NamedTuple):
    """The database of a study, and its number there."""

    storage: RDBStorage
    study_id: int


def database_of(study: Study) -> Database:
    """The database of a study, from `open_study` or from `optuna.load_study`, for our own tables and queries."""
    storage = storage_of(study)
    with row_errors():
        return Database(storage, storage.get_study_id_from_name(study.study_name))


@through_restarts
def attributes_of(study: Study) -> dict[str, Any]:
    """The user attributes of a study."""
    return study.user_attrs


@through_restarts
def set_attribute(study: Study, name: str, value: object) -> None:
    """Store a user attribute of a study; JSON must be able to hold it."""
    study.set_user_attr(name, value)


def shown_storage(storage: str) -> str:
    """A storage URL without its password, to be shown and stored; `SERVED` where `hide_storage` was called.

    Raises BadInput for no URL of a database.

    >>> shown_storage("postgresql://me:secret@host/db")
    'postgresql://me:***@host/db'
    """
    return SERVED if storage in _HIDDEN else shown(parse_url(storage))


_HIDDEN: set[str] = set()


def hide_storage(storage: str) -> None:
    """Let this process, which writes for clients of a server, name a database by no address."""
    _HIDDEN.add(storage)


def _connect(url: URL, *, is_tuned: bool) -> TrialStorage:
    backend = backend_of(url)
    pool_events = [(backend.tune, "connect")] if is_tuned else []
    # `pool_pre_ping` replaces a connection that the server has closed meanwhile.
    options = {"pool_events": pool_events, "pool_pre_ping": True, "connect_args": backend.connect_arguments()}
    text = url.render_as_string(hide_password=False)
    with storage_errors(shown(url)), driver_errors(url):
        _reached(url)
        try:
            return retried(lambda: TrialStorage(text, options), Interrupts.check)
        except RuntimeError as error:  # made by another version of Optuna; the message says how to upgrade
            raise BadInput(f"{shown(url)} cannot be used: {error}") from error


def _reached(url: URL) -> Engine:
    """Connections to a database that answered; none stays open between two uses."""
    engine = create_engine(url, poolclass=NullPool, connect_args=backend_of(url).connect_arguments())
    reach(engine, Interrupts.check)
    return engine


@contextmanager
def temporary_database() -> Iterator[str]:
    """The URL of a database that is deleted at the end; deletes first what killed processes left."""

    def holds_databases_only(folder: Path) -> bool:
        return all(file.name.startswith(_DATABASE) for file in folder.iterdir())

    with temporary_folder("autoauto-trials-", holds_databases_only) as folder:
        yield file_url(folder / _DATABASE).render_as_string()
