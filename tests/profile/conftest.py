"""A cache in a file, and one on a PostgreSQL server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from autoauto.database.registry import driver_url
from autoauto.profile.cache import ProfileCache

POSTGRES = os.environ.get("AUTOAUTO_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")


@pytest.fixture
def file_cache(tmp_path: Path) -> ProfileCache:
    return ProfileCache(tmp_path / "deep" / "cache.db")


@pytest.fixture
def server_cache() -> Iterator[ProfileCache]:
    """A cache in a schema of its own; without a server the test is skipped, with AUTOAUTO_REQUIRE_POSTGRES it fails."""
    schema = f"autoauto_test_{uuid.uuid4().hex}"
    try:
        engine = create_engine(driver_url(make_url(POSTGRES)))
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {schema}"))
    except (ImportError, OperationalError) as error:
        if os.environ.get("AUTOAUTO_REQUIRE_POSTGRES"):
            raise
        pytest.skip(f"no PostgreSQL server: {error}")
    url = engine.url.update_query_dict({"options": f"-csearch_path={schema}"})
    yield ProfileCache(url.render_as_string(hide_password=False))
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    engine.dispose()


@pytest.fixture(params=["file", "server"])
def cache(request: pytest.FixtureRequest) -> ProfileCache:
    cache = request.getfixturevalue(f"{request.param}_cache")
    assert isinstance(cache, ProfileCache)
    return cache
