"""Profiles of compiled layers in a file or on the server of the trials: `ProfileCache`, `cache_for`, `local_cache`."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import asdict
from sqlalchemy import (
    Column,
    Engine,
    Integer,
    MetaData,
    NullPool,
    Select,
    String,
    Table,
    bindparam,
    create_engine,
    func,
    inspect,
    select,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError, OperationalError, ProgrammingError, SQLAlchemyError

from autoauto.database.registry import LONG_TEXT, backend_of, driver_errors, parse_url, shown
from autoauto.database.retries import first_line, reach, retried
from autoauto.database.sqlite import file_url
from autoauto.database.tables import insert_rows
from autoauto.processes.folders import folder_until_exit
from autoauto.profile.codec import LAYER, UNBOUND, layer_to_json
from autoauto.records.costs.correction import RangeExample
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import PROFILE_SCHEMA, LayerProfile, UnboundLayer
from autoauto.records.errors import BadInput
from autoauto.records.files.fields import stored_form
from autoauto.records.files.json import from_json, to_json
from autoauto.records.hardware import Device
from autoauto.records.installation import cache_dir
from autoauto.records.layers import LayerGraph
from autoauto.records.target import CompilingTarget

T = TypeVar("T")

_FILE = "profiles.db"
_PROBE_BYTES = 2**16  # more than the first tables take
_MAX_REPLACED = 10  # times that a file is replaced while one piece of work is done
_MAX_DIGESTS = 500  # in one query: databases limit the number of values


class _ProfileTable:
    """A table of profiles, and the query for some of its rows, which takes longer to build than to run."""

    def __init__(self, name: str) -> None:
        digest = Column("digest", String(64), primary_key=True)
        self.table = Table(name, MetaData(), digest, Column("entry", LONG_TEXT, nullable=False))
        self.by_digest = self.table.select().where(self.table.c.digest.in_(bindparam("digests", expanding=True)))


_IN_FILE = _ProfileTable("entries")
_ON_SERVER = _ProfileTable("autoauto_profiles")
"""A server has tables of other programs too, so there the name says whose it is."""


class CachedLayers(NamedTuple):
    """The layers in a cache by digest: those that no bound on memory changes, and those with one bound."""

    unbound: dict[str, UnboundLayer]
    bound: dict[str, LayerProfile]


@dataclass(frozen=True, slots=True)
class ProfileCache:
    """A table of digest -> layer profile in a database, safe for several processes at once.

    A digest covers everything on which the entry depends, so an entry is never stale and never overwritten. Deleting
    the database costs time, not correctness. A file that cannot be written can still be read; a damaged one
    is set aside. No connection stays open between calls, so a cache may be passed to other processes. All methods raise
    BadInput when the database is broken, not a cache, or cannot be written.
    """

    location: Path | str  # a server's URL lets all workers of all studies compile a layer once

    def read(self, digests: Iterable[str]) -> dict[str, LayerProfile]:
        """The cached entries among `digests`."""
        return self.read_layers((), digests).bound

    def read_layers(self, unbound: Iterable[str], bound: Iterable[str]) -> CachedLayers:
        """The cached entries among digests of layers whatever bounds them, and of others, read together."""
        profiles = self._profiles
        is_unbound = dict.fromkeys(bound, False) | dict.fromkeys(unbound, True)
        digests = list(is_unbound)
        batches = [digests[start : start + _MAX_DIGESTS] for start in range(0, len(digests), _MAX_DIGESTS)]
        entries = self.select(profiles.table, profiles.by_digest, [{"digests": batch} for batch in batches])
        cached = CachedLayers({}, {})
        with self._errors():
            for digest, entry in entries:
                if is_unbound[digest]:
                    cached.unbound[digest] = from_json(UnboundLayer, entry, f"entry {digest}", form=UNBOUND)
                else:
                    cached.bound[digest] = from_json(LayerProfile, entry, f"entry {digest}", form=LAYER)
        return cached

    def write(self, entries: Mapping[str, LayerProfile | UnboundLayer]) -> None:
        """Store `entries`, in one transaction; entries that are stored already do not change."""
        # In one order in all processes, since two that wait for each other's rows would end each other's transactions.
        rows = [{"digest": digest, "entry": layer_to_json(entries[digest])} for digest in sorted(entries)]
        self.insert(self._profiles.table, rows)

    def select(self, table: Table, query: Select[Any], values: Sequence[Mapping[str, Any]] = ({},)) -> list[Any]:
        """The rows of a query to one table, for each of several values of its parameters, read in one transaction.

        There are none where the table is missing.
        """

        if not values:
            return []

        def rows(engine: Engine) -> list[Any]:
            read: list[Any] = []
            with engine.connect() as connection:
                for each in values:
                    read += connection.execute(query, each)
            return read

        def rows_if_any(engine: Engine) -> list[Any]:
            try:
                return rows(engine)
            except (OperationalError, ProgrammingError):
                if not inspect(engine).has_table(table.name):  # asked only now: it takes as long as a query
                    return []
            return rows(engine)  # another process has just made the table, or the error comes again

        return self.work(rows_if_any)

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert `rows` in one transaction, into a table that is created where it is missing.

        A row whose primary key is stored already changes nothing.
        """
        if rows:
            self.work(lambda engine: insert_rows(engine, table, rows))

    def work(self, work: Callable[[Engine], T]) -> T:
        """The result of work on the database, which is repeated where its error may pass."""
        with self._errors(), driver_errors(self._url):
            if isinstance(self.location, Path):
                self.location.parent.mkdir(parents=True, exist_ok=True)
            for _ in range(_MAX_REPLACED):
                before = _inode(self.location)
                try:
                    return self._worked(work)
                except DatabaseError as error:
                    if not isinstance(self.location, Path):
                        raise
                    damaged = backend_of(self._url).is_damaged(error.orig)
                    # Where somebody has deleted or replaced the file meanwhile, the error may be of the old one.
                    if _inode(self.location) == before and not damaged:
                        raise
                    if damaged:
                        _set_aside(self.location, before, first_line(error))
            return self._worked(work)

    def _worked(self, work: Callable[[Engine], T]) -> T:
        # SQLite finds a journal by its name: a transaction on a file that is set aside would delete the new one's.
        with _locked(self.location, fcntl.LOCK_SH) if isinstance(self.location, Path) else nullcontext():
            engine = _engine(self._url)
            return retried(lambda: work(engine))

    @property
    def _url(self) -> URL:
        if isinstance(self.location, Path):
            return file_url(self.location.absolute())
        return parse_url(self.location)

    @property
    def _profiles(self) -> _ProfileTable:
        return _IN_FILE if isinstance(self.location, Path) else _ON_SERVER

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, SQLAlchemyError, ValueError) as error:
            cause = first_line(error)
            if isinstance(self.location, Path):
                message = (
                    f"the profile cache must be a whole, writable database file, got {self.location} ({cause}); "
                    "delete it, or set AUTOAUTO_CACHE_DIR to another folder"
                )
            else:
                message = f"{shown(self._url)} cannot hold what was compiled: {cause}; try another --storage"
            raise BadInput(message) from error


def _inode(location: Path | str) -> int | None:
    try:
        return location.stat().st_ino if isinstance(location, Path) else None
    except OSError:
        return None


@contextmanager
def _locked(file: Path, how: int) -> Iterator[None]:
    """A lock, in a file beside the cache: shared while the cache is worked on, exclusive while it is replaced.

    Where no lock can be had, as in a folder that cannot be written, there is none.
    """
    with ExitStack() as opened:
        with suppress(OSError):
            lock = opened.enter_context(file.with_name(f"{file.name}.lock").open("ab"))
            fcntl.flock(lock, how)
            opened.callback(fcntl.flock, lock, fcntl.LOCK_UN)  # closing leaves it with a child forked meanwhile
        yield


def _set_aside(file: Path, damaged: int | None, reason: str) -> None:
    """Rename a file that is no whole database, so that a new one takes its place.

    Another process may have done so, and begun a new file; `damaged` is the inode of the file that is not whole.
    """
    aside = file.with_name(f"{file.name}.damaged")
    with _locked(file, fcntl.LOCK_EX):
        if _inode(file) != damaged:
            return
        file.replace(aside)
    print(
        f"autoauto: the profile cache {file} was damaged ({reason}); it is {aside.name} now, and a new one is made",
        file=sys.stderr,
    )


def cache_for(storage: str | None) -> ProfileCache:
    """The cache in the database of the trials where that is on a server, else `local_cache`.

    Raises BadInput for no URL of a database.
    """
    if storage is not None and backend_of(parse_url(storage)).is_server:
        return ProfileCache(storage)
    return local_cache()


def local_cache() -> ProfileCache:
    """The cache in the cache folder; where that cannot be written, a copy for this process, and a line on stderr."""
    return ProfileCache(_writable_folder(cache_dir()) / _FILE)


@cache
def _writable_folder(folder: Path) -> Path:
    file = folder / _FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Permissions say nothing of a full disk or a quota, so something is written.
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
        if file.is_file():
            file.open("r+b").close()
        return folder
    except OSError as error:
        temporary = folder_until_exit("autoauto-cache-")
        with suppress(OSError):
            shutil.copyfile(file, temporary / _FILE)
        print(
            f"autoauto: the cache folder {str(folder)!r} cannot be written ({error.strerror}), so what is compiled is "
            "stored until this command ends; try AUTOAUTO_CACHE_DIR",
            file=sys.stderr,
        )
        return temporary


@lru_cache(maxsize=8)
def _engine(url: URL) -> Engine:
    engine = create_engine(url, poolclass=NullPool, connect_args=backend_of(url).connect_arguments())
    reach(engine)
    return engine


_EXAMPLE = stored_form(RangeExample)
RANGE_SCHEMA = 5
_RANGES = Table(
    "autoauto_ranges",
    MetaData(),
    Column("digest", String(64), primary_key=True),
    Column("subject", String(64), nullable=False),
    Column("batch_size", Integer, nullable=False),
    Column("example", LONG_TEXT, nullable=False),
)


def subject_of(
    graph: LayerGraph, target: CompilingTarget, device: Device, options: CompileOptions, *, alone: bool = True
) -> str:
    """A digest of everything that examples of one fit have in common: all but batch size and memory proportion.

    They also have in common whether their layers were measured `alone`, or in their model.
    """
    any_size = replace(options, batch_size=1, session=options.session.common)
    where = target.depends_on(device, any_size)
    kind = () if alone else ("in model",)
    return _digest((RANGE_SCHEMA, PROFILE_SCHEMA, graph.content, target.version, where, *kind))


@dataclass(frozen=True, slots=True)
class RangeStore:
    """A table in the database of the profiles: ranges that were compiled whole, or ran.

    The first measurement of a range is never replaced. Deleting the database costs time, not correctness. All methods
    raise BadInput when it is broken, not a cache, or not writable. Examples have all of `subject_of` in common.
    """

    cache: ProfileCache
    subject: str

    def batch_sizes(self) -> dict[int, int]:
        """The number of examples of every batch size."""
        counts = select(_RANGES.c.batch_size, func.count()).where(_RANGES.c.subject == self.subject)
        return dict(self.cache.select(_RANGES, counts.group_by(_RANGES.c.batch_size)))

    def examples(self, batch_sizes: Sequence[int] = ()) -> list[RangeExample]:
        """The examples of these batch sizes, without any all.

        Their order depends on nothing but their ranges: so do their folds, and the fit.
        """
        chosen = select(_RANGES.c.example).where(_RANGES.c.subject == self.subject)
        if batch_sizes:
            chosen = chosen.where(_RANGES.c.batch_size.in_(batch_sizes))
        examples = [self._read(row.example) for row in self.cache.select(_RANGES, chosen)]
        # A sort key that puts neighbours in the model far apart.
        return sorted(examples, key=lambda each: _digest((each.batch_size, *each.whole.layers)))

    def add(self, options: CompileOptions, examples: Sequence[RangeExample]) -> None:
        """Store examples, in one transaction; ranges that are stored already do not change."""
        rows = []
        for example in examples:
            rows.append(
                {
                    "digest": _digest((self.subject, options, example.whole.layers)),
                    "subject": self.subject,
                    "batch_size": example.batch_size,
                    "example": to_json(example._asdict()).decode(),
                }
            )
        self.cache.insert(_RANGES, rows)

    def _read(self, text: str) -> RangeExample:
        try:
            return RangeExample(**asdict(from_json(_EXAMPLE, text, "example")))
        except BadInput as error:
            raise BadInput(
                f"the stored examples of {self.subject[:8]} must be whole: {error}; delete the profile cache, or "
                "the table autoauto_ranges of the shared one"
            ) from error


def _digest(content: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()
