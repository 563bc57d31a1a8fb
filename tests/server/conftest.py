"""A server of searches as its own process, on SQLite and PostgreSQL, and a client that sees codes and headers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from autoauto.database.registry import driver_url
from autoauto.server.store.tables import TABLES, ServiceDatabase
from autoauto.server.store.users import Role, User, create_token
from tests.drawn import daily
from tests.running import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]
POSTGRES = os.environ.get("AUTOAUTO_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
SMALL = {
    "cluster": "c600",
    "space": {"n_ipu": [1], "replicas": [1], "memory_proportion": [0.6], "batch_size": [4]},
    "repeats": 0,
}
"""A search of one configuration."""
MARY, JOHN, ROOT_USER = (
    User("mary", Role.SUBMITTER),
    User("john", Role.SUBMITTER),
    User("root", Role.ADMIN),
)


def small(batch_size: int = 4, **others: object) -> dict[str, Any]:
    """A search of one configuration with this batch size."""
    return {**SMALL, "space": {**SMALL["space"], "batch_size": [batch_size]}, **others}  # type: ignore[dict-item]


@pytest.fixture
def sqlite_storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/studies/server.db"


@pytest.fixture(scope="session")
def postgres_database() -> Iterator[str]:
    """A database of its own on a server; without a server tests are skipped, as in tests/study."""
    name = f"autoauto_test_{uuid.uuid4().hex[:12]}"
    engine = create_engine(driver_url(make_url(POSTGRES)), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
    except SQLAlchemyError as error:
        if os.environ.get("AUTOAUTO_REQUIRE_POSTGRES"):
            raise
        pytest.skip(f"no PostgreSQL server: {error}")
    yield make_url(POSTGRES).set(database=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def postgres_storage(postgres_database: str) -> str:
    """Its URL, with empty tables of a server; names of studies are never used again."""
    database = ServiceDatabase(postgres_database)
    database.write(lambda connection: [connection.execute(table.delete()) for table in TABLES[:-1]])
    database.close()
    return postgres_database


@pytest.fixture(params=daily(["sqlite", "postgres"]))
def storage(request: pytest.FixtureRequest) -> str:
    """The URL of an SQLite file, then of a database on a server."""
    return str(request.getfixturevalue(f"{request.param}_storage"))


@pytest.fixture
def database(storage: str) -> Iterator[ServiceDatabase]:
    opened = ServiceDatabase(storage)
    yield opened
    opened.close()


class Reply(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: Any


class Caller(NamedTuple):
    """Sends requests with a token, or without one where it is None."""

    url: str
    token: str | None

    def __call__(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data=data, method=method)
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        if self.token is not None:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                is_stream = response.headers["Content-Type"] == "text/event-stream"  # it does not end
                return _reply(response.status, response.headers, response.readline() if is_stream else response.read())
        except HTTPError as error:
            return _reply(error.code, error.headers, error.read())

    def ended(self, search_id: str) -> dict[str, Any]:
        """A search when it has ended."""
        outcome: dict[str, Any] = {}

        def has_ended() -> bool:
            outcome.update(self("GET", f"/v1/searches/{search_id}").body)
            return outcome["state"] in ("finished", "stopped", "failed")

        wait_until(has_ended, f"search {search_id} ends")
        return outcome


def _reply(status: int, headers: Any, content: bytes) -> Reply:
    is_json = "json" in headers.get("Content-Type", "")
    return Reply(status, dict(headers), json.loads(content) if is_json and content else content)


class RunningServer:
    """A server in a process of its own."""

    def __init__(self, storage: str, folder: Path, *options: str, listen: str = "127.0.0.1:0") -> None:
        self.storage, self._log = storage, (folder / "server.log").open("ab")
        command = [sys.executable, "-m", "autoauto", "server", "--storage", storage, "--listen", listen, *options]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=self._log, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("searches: "), (folder / "server.log").read_text()
        self.url = line.split()[1].rstrip(",")
        self.open_text = self.process.stdout.readline().strip()

    def caller(self, name: str, role: Role = Role.SUBMITTER) -> Caller:
        """Requests of a user with a new token."""
        database = ServiceDatabase(self.storage)
        token = create_token(database, name, role)
        database.close()
        return Caller(self.url, token)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE_S)
            finally:
                self.process.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


Start = Callable[..., RunningServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start servers that end with the test."""
    with ExitStack() as ends:

        def started(storage: str, *options: str, **settings: str) -> RunningServer:
            server = RunningServer(storage, tmp_path, *options, **settings)
            ends.callback(server.close)
            return server

        yield started


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start workers of the searches in a database; they end with the test."""
    with ExitStack() as ends, (tmp_path / "workers.log").open("ab") as log:

        def started(storage: str | None, *options: str, token: str | None = None) -> subprocess.Popen[bytes]:
            command = [
                sys.executable,
                "-m",
                "autoauto",
                "worker",
                *(["--storage", storage] if storage else []),
                *options,
            ]
            environment = {**os.environ, "AUTOAUTO_TOKEN": token or ""}
            worker = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True, env=environment
            )
            ends.callback(worker.wait)
            ends.callback(worker.kill)
            return worker

        yield started
