"""Databases that are opened, created, locked, corrupt, or on a server that dies: each error is one line."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from optuna.trial import TrialState
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from autoauto.database.registry import driver_url, shown
from autoauto.records.errors import AutoautoError, BadInput, MissingExtra
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Trial
from autoauto.study.run import run_search
from autoauto.study.store.database import existing_storage, open_storage
from autoauto.study.store.study import load_study, open_study
from tests.running import wait_until

if TYPE_CHECKING:
    from tests.study.conftest import Fake


def refusal(storage: str, *, existing: bool = False) -> str:
    with pytest.raises(AutoautoError) as caught:
        (existing_storage if existing else open_storage)(storage)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_an_sqlite_file_is_created_with_its_folder_and_tuned(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path}/a/b/trials.db")
    with storage.engine.connect() as connection:
        pragmas = [
            connection.execute(text(f"PRAGMA {p}")).scalar() for p in ("journal_mode", "synchronous", "busy_timeout")
        ]
    assert pragmas == ["wal", 1, 60_000]  # synchronous 1 is NORMAL
    assert (tmp_path / "a/b/trials.db").stat().st_size > 0


def test_several_threads_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    check_opened_at_once(f"sqlite:///{tmp_path}/trials.db")


def check_opened_at_once(storage: str) -> None:
    """Every thread creates the tables that it does not find."""
    together = threading.Barrier(8)

    def open_database(_: int) -> list[object]:
        together.wait(60.0)
        return list(open_storage(storage).get_all_studies())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(open_database, range(8))) == [[]] * 8


def test_a_path_may_be_relative_and_contain_braces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_storage("sqlite:///here/{0}.db")
    existing_storage("sqlite:///here/{0}.db")
    assert (tmp_path / "here" / "{0}.db").exists()


def test_a_database_in_memory_can_be_opened() -> None:
    assert open_storage("sqlite://").get_all_studies() == []


@pytest.mark.parametrize("storage", ["trials.db", "", "mongodb://localhost/trials", "sqlite:/trials.db"])
@pytest.mark.parametrize("existing", [False, True])
def test_a_text_that_is_no_database_url_is_refused(storage: str, existing: bool) -> None:
    assert refusal(storage, existing=existing) == (
        f"storage must be a database URL like sqlite:///studies/autoauto.db, got {storage!r}"
    )


@pytest.mark.parametrize("existing", [False, True])
def test_another_database_is_refused_in_a_line(existing: bool) -> None:
    assert refusal("mysql+mysqldb://user:secret@localhost/trials", existing=existing) == (
        "a database is sqlite or postgresql, got mysql+mysqldb://user:***@localhost/trials; "
        "try sqlite:///FILE.db or postgresql://HOST/NAME"
    )


def test_a_missing_driver_names_what_to_install() -> None:
    with pytest.raises(MissingExtra, match=r"^sqlite\+pysqlcipher:.* needs the database driver \w+; try: pip install"):
        open_storage("sqlite+pysqlcipher:///trials.db")


@pytest.mark.parametrize("existing", [False, True])
def test_the_missing_driver_of_postgresql_is_named_by_its_extra(
    existing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"^postgresql://me:\*\*\*@host/trials needs the extra postgres; try: .*pip"):
        (existing_storage if existing else open_storage)("postgresql://me:secret@host/trials")


@pytest.mark.skipif(importlib.util.find_spec("psycopg2") is not None, reason="psycopg2 is installed")
def test_another_driver_of_postgresql_that_is_missing_is_named_with_the_extra_that_does_without_it() -> None:
    message = (
        r"^postgresql\+psycopg2://me:\*\*\*@host/trials lacks the driver psycopg2; "
        "postgresql:// alone needs the extra postgres; try: .*psycopg"
    )
    with pytest.raises(MissingExtra, match=message):
        open_storage("postgresql+psycopg2://me:secret@host/trials")


def test_a_url_may_name_the_driver_of_the_extra(postgres: str, postgres_study_name: str) -> None:
    with_driver = make_url(postgres).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    open_study(with_driver, postgres_study_name, Objective.THROUGHPUT, {})
    assert load_study(postgres, postgres_study_name).study_name == postgres_study_name


def test_a_path_that_cannot_be_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "the folder of" in refusal(f"sqlite:///{tmp_path}/file/trials.db")
    assert "unable to open database file; try another --storage" in refusal(f"sqlite:///{tmp_path}")
    assert "unable to open database file" in refusal(f"sqlite:///{tmp_path}", existing=True)


@pytest.mark.parametrize("existing", [False, True])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, existing: bool) -> None:
    (tmp_path / "notes.txt").write_text("not a database, but longer than a header of SQLite would be, " * 20)
    assert "file is not a database" in refusal(f"sqlite:///{tmp_path}/notes.txt", existing=existing)


@pytest.mark.parametrize("existing", [False, True])
def test_a_corrupt_database_is_refused(tmp_path: Path, existing: bool) -> None:
    path = tmp_path / "trials.db"
    open_storage(f"sqlite:///{path}").engine.dispose()
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    assert "malformed" in refusal(f"sqlite:///{path}", existing=existing)


def test_a_read_only_database_is_refused(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "trials.db").execute("CREATE TABLE theirs (x)").connection.close()
    uri = f"sqlite:///file:{tmp_path}/trials.db?mode=ro&uri=true"
    assert "attempt to write a readonly database" in refusal(uri)


def test_a_database_of_another_version_of_optuna_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    open_storage(url).engine.dispose()
    with sqlite3.connect(tmp_path / "trials.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v99'")
    connection.close()
    assert "no longer compatible" in refusal(url)


def test_reading_creates_nothing(tmp_path: Path) -> None:
    assert refusal(f"sqlite:///{tmp_path}/typo/trials.db", existing=True).startswith("there is no database ")
    assert list(tmp_path.iterdir()) == []


def test_reading_leaves_other_databases_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    assert "holds no studies" in refusal(f"sqlite:///{path}", existing=True)
    assert path.read_bytes() == before


def test_database_errors_are_bad_input() -> None:
    assert issubclass(MissingExtra, AutoautoError)
    assert issubclass(BadInput, ValueError)


class Server:
    """A PostgreSQL server of the test, which it may kill."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        self._user = "postgres" if os.getuid() == 0 else None  # it refuses to run as root
        if self._user is not None:
            shutil.chown(folder, self._user)
        command = [str(programs / "initdb"), "-D", str(folder / "data"), "-A", "trust", "-U", "postgres", "--no-sync"]
        subprocess.run(command, user=self._user, check=True, stdout=subprocess.DEVNULL)
        self.url = f"postgresql://postgres@/postgres?host={folder}"  # a socket in a folder: no port to share
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        wait_until(self._answers, "a server")  # not before all processes of a killed one have noticed

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            options = ["-D", str(self._folder / "data"), "-k", str(self._folder), "-h", "", "-c", "fsync=off"]
            command = [str(self._programs / "postgres"), *options]
            self._process = subprocess.Popen(command, user=self._user, stderr=subprocess.DEVNULL)
        engine = create_engine(driver_url(make_url(self.url)), poolclass=NullPool)
        with suppress(OperationalError), engine.connect():
            return True
        return False

    def end(self, number: signal.Signals) -> None:
        """After SIGQUIT the server ends its processes; after SIGKILL they notice by themselves."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait()


@pytest.fixture
def server() -> Iterator[Server]:
    pytest.importorskip("psycopg")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        pytest.skip("no programs of PostgreSQL")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(programs[-1].parent, Path(folder))
        yield server
        server.end(signal.SIGQUIT)
        gc.collect()  # here, where their warnings are ignored, connections that broke while they were made


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The server drops the connection at statements 1, 4, 9, 16, ... of this process; yields those numbers."""
    psycopg = pytest.importorskip("psycopg")
    numbers, dropped = count(1), list[int]()

    def drop(connection: Connection, *_: object) -> None:
        number = next(numbers)
        if isqrt(number) ** 2 == number:
            dropping = connection.connection.dbapi_connection
            assert dropping is not None
            backend = dropping.info.backend_pid
            with psycopg.connect(shown(connection.engine.url)) as other:
                other.execute("SELECT pg_terminate_backend(%s, 10000)", (backend,))
            dropped.append(number)

    monkeypatch.setattr("autoauto.database.retries.sleep", lambda _: None)
    event.listen(Engine, "before_cursor_execute", drop)
    yield dropped
    event.remove(Engine, "before_cursor_execute", drop)
    gc.collect()  # connections that broke while they were made


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_connection_that_is_dropped_at_any_statement_loses_and_doubles_nothing(
    postgres: str, postgres_study_name: str, fake: Fake, dropped: list[int]
) -> None:
    study = open_study(postgres, postgres_study_name, Objective.THROUGHPUT, {})
    result = run_search(SearchSpace((1,), (0.3,), tuple(range(1, 16))), fake, study, Objective.THROUGHPUT)
    trials = load_study(postgres, postgres_study_name).get_trials()
    assert len(dropped) > 10
    assert [trial.number for trial in trials] == list(range(result.counts.n_tried))
    assert len({tuple(trial.params.items()) for trial in trials}) == len(trials) == len(fake.calls)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_several_threads_may_open_a_new_server_at_once(server: Server) -> None:
    check_opened_at_once(server.url)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_server_that_is_killed_and_started_again_loses_and_doubles_nothing(server: Server, fake: Fake) -> None:
    space = SearchSpace((1, 2), (0.3, 1.0), tuple(range(1, 128)))
    study = open_study(server.url, "bow", Objective.THROUGHPUT, {})
    again = threading.Timer(1.0, server.start)

    def measure(knobs: Knobs) -> Trial:
        if len(fake.calls) == 5:
            server.end(signal.SIGKILL)
            again.start()
        return fake(knobs)

    result = run_search(space, measure, study, Objective.THROUGHPUT)
    again.join()
    trials = load_study(server.url, "bow").get_trials()
    assert [trial.number for trial in trials] == list(range(28))
    assert len({tuple(trial.params.items()) for trial in trials}) == result.counts.n_tried == 28
    assert {trial.state for trial in trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
