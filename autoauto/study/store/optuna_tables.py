"""Optuna's tables in a database, as SQLAlchemy's core knows them: `TABLES`, and each by its name.

Optuna describes them by classes of SQLAlchemy's object mapper, whose import and set-up take as long as a short search.
A test compares these with Optuna's, so that a version of Optuna with other tables is seen.
"""

from __future__ import annotations

from typing import Any

from optuna.study import StudyDirection
from optuna.trial import TrialState
from sqlalchemy import (
    CheckConstraint,
    Column,
    DateTime,
    Enum,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    UniqueConstraint,
    func,
)

from autoauto.database.registry import LONG_TEXT

REVISION = "v3.2.0.a"
"""The revision of these tables by Alembic, which the versions of Optuna in `pyproject.toml` make."""
SCHEMA_VERSION = 12
"""The number of these tables from before Optuna asked Alembic, which it still writes."""
FINITE, POSITIVE, NEGATIVE, NAN = "FINITE", "INF_POS", "INF_NEG", "NAN"
"""What a stored value is; only a finite one is in its column."""
TABLES = MetaData()
_NAME_LENGTH = 512
_DOUBLE = 53  # bits of precision


def _id(name: str) -> Column[int]:
    return Column(name, Integer, primary_key=True)


def _study(*, nullable: bool = True, index: bool | None = None) -> Column[int]:
    return Column("study_id", Integer, ForeignKey("studies.study_id"), nullable=nullable, index=index)


def _trial(*, nullable: bool = True) -> Column[int]:
    return Column("trial_id", Integer, ForeignKey("trials.trial_id"), nullable=nullable)


def _attributes(of: str, column: Column[int]) -> Table:
    """The table of attributes of studies or of trials, each a JSON text."""
    name, owner = f"{of}_attribute", column.name
    key, value = Column("key", String(_NAME_LENGTH)), Column("value_json", LONG_TEXT)
    return Table(f"{name}s", TABLES, _id(f"{name}_id"), column, key, value, UniqueConstraint(owner, "key"))


def _value(name: str, kind: str, *kinds: str) -> tuple[Column[Any], Column[Any]]:
    return Column(name, Float(_DOUBLE)), Column(f"{name}_type", Enum(*kinds, name=kind), nullable=False)


STUDIES = Table(
    "studies",
    TABLES,
    _id("study_id"),
    Column("study_name", String(_NAME_LENGTH), index=True, unique=True, nullable=False),
)
DIRECTIONS = Table(
    "study_directions",
    TABLES,
    _id("study_direction_id"),
    Column("direction", Enum(StudyDirection), nullable=False),
    _study(nullable=False),
    Column("objective", Integer, nullable=False),
    UniqueConstraint("study_id", "objective"),
)
STUDY_USER_ATTRIBUTES = _attributes("study_user", _study())
STUDY_SYSTEM_ATTRIBUTES = _attributes("study_system", _study())
TRIALS = Table(
    "trials",
    TABLES,
    _id("trial_id"),
    Column("number", Integer),
    _study(index=True),
    Column("state", Enum(TrialState), nullable=False),
    Column("datetime_start", DateTime),  # in UTC, without a zone
    Column("datetime_complete", DateTime),
)
TRIAL_USER_ATTRIBUTES = _attributes("trial_user", _trial())
TRIAL_SYSTEM_ATTRIBUTES = _attributes("trial_system", _trial())
PARAMS = Table(
    "trial_params",
    TABLES,
    _id("param_id"),
    _trial(),
    Column("param_name", String(_NAME_LENGTH)),
    Column("param_value", Float(_DOUBLE)),
    Column("distribution_json", LONG_TEXT),
    UniqueConstraint("trial_id", "param_name"),
)
VALUES = Table(
    "trial_values",
    TABLES,
    _id("trial_value_id"),
    _trial(nullable=False),
    Column("objective", Integer, nullable=False),
    *_value("value", "trialvaluetype", FINITE, POSITIVE, NEGATIVE),
    UniqueConstraint("trial_id", "objective"),
)
INTERMEDIATE_VALUES = Table(
    "trial_intermediate_values",
    TABLES,
    _id("trial_intermediate_value_id"),
    _trial(nullable=False),
    Column("step", Integer, nullable=False),
    *_value("intermediate_value", "trialintermediatevaluetype", FINITE, POSITIVE, NEGATIVE, NAN),
    UniqueConstraint("trial_id", "step"),
)
HEARTBEATS = Table(
    "trial_heartbeats",
    TABLES,
    _id("trial_heartbeat_id"),
    _trial(nullable=False),
    Column("heartbeat", DateTime, nullable=False, default=func.current_timestamp()),
    UniqueConstraint("trial_id"),
)
VERSIONS = Table(
    "version_info",
    TABLES,
    Column("version_info_id", Integer, primary_key=True, autoincrement=False, default=1),
    Column("schema_version", Integer),
    Column("library_version", String(256)),
    CheckConstraint("version_info_id=1"),
)
REVISIONS = Table(
    "alembic_version",
    MetaData(),  # Alembic makes it, and is asked for it alone
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
