"""A study in a database: opened for a search, joined by a worker, or loaded to be read; and the space of its search."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import optuna
from optuna import Study
from optuna.exceptions import ExperimentalWarning
from sqlalchemy import DateTime, column, func, select, table

from autoauto.records.errors import BadInput, did_you_mean
from autoauto.space.objectives import Objectives, objective_tuple, objectives_text
from autoauto.space.sessions import SESSION_KNOBS
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Trial
from autoauto.study.store.database import (
    attributes_of,
    database_of,
    existing_engine,
    existing_storage,
    in_memory,
    open_storage,
    reads,
    set_attribute,
    shown_storage,
    through_restarts,
)
from autoauto.study.store.trial_storage import TrialStorage
from autoauto.study.store.trials import stored_trials

REQUEST = "request"
"""The attribute of a study that holds its `SearchRequest` as JSON, of which workers open the problem."""
SPACE = "space"
"""The attribute of a study that holds the space of its last search as JSON."""
ANSWER = "answer"
"""The attribute of a study with what its last search found, see `note_answer`; null until that search ends."""
STARTED = "started"
"""The attribute of a study with the time (UTC) at which its last search began."""
STUDY_SCHEMA = 4
"""The number of the form in which trials and attributes are stored; others are refused."""
_DIGESTS = {"model_content": "the model is another", "cluster_content": "the devices are others"}
"""Attributes that are digests, and what a different digest means."""


@through_restarts
def open_study(
    storage: str,
    study_name: str,
    objectives: Objectives,
    fingerprint: Mapping[str, str],
    notes: Mapping[str, str] | None = None,
) -> optuna.Study:
    """Create the study called `study_name` in the database at the URL `storage`, or resume it.

    Args:
        storage: for example "sqlite:///studies/autoauto.db"; a new file is made with its folder.
        objectives: define the directions; part of the fingerprint.
        fingerprint: what trials must share to be comparable (model digest, cluster, target version, ...); user
            attributes of the study.
        notes: user attributes that describe the last search only (the command, the version of autoauto).

    Raises:
        BadInput: the database cannot be used, or the study was made with another fingerprint.
        MissingExtra: the database's driver is not installed.
    """
    if in_memory(storage):
        raise BadInput(f"a study is stored in a file or on a server, got {storage}; try sqlite:///studies/autoauto.db")
    backend = open_storage(storage)
    with without_optuna_log():
        directions = [each.direction for each in objective_tuple(objectives)]
        study = optuna.create_study(storage=backend, study_name=study_name, directions=directions, load_if_exists=True)
        _check_schema(study)
        _identify(study, {"objective": objectives_text(objectives), **fingerprint})
        if study.metric_names is None:
            study.set_metric_names([each.metric_name for each in objective_tuple(objectives)])
        _set_attributes(study, notes or {})
    return study


@through_restarts
def load_study(storage: str, study_name: str) -> optuna.Study:
    """Load a study to read it; nothing is created or changed.

    Raises:
        BadInput: there is no such database or no such study.
        MissingExtra: the database's driver is not installed.
    """
    backend = existing_storage(storage)
    with without_optuna_log():
        try:
            study = optuna.load_study(study_name=study_name, storage=backend)
        except KeyError as error:
            raise no_study(storage, study_name, optuna.get_all_study_names(backend)) from error
    if "objective" not in attributes_of(study):
        raise BadInput(f"study {study_name!r} was not made by `autoauto search`; give the name of another")
    _check_schema(study)
    return study


def no_study(storage: str, study_name: str, names: Iterable[str]) -> BadInput:
    """The error of a study that is not among those of a database, whose `names` may have one that is meant."""
    hint = did_you_mean(study_name, names, "`autoauto studies` lists what there is")
    return BadInput(f"there is no study {study_name!r} in {shown_storage(storage)}; {hint}")


@through_restarts
def join_study(storage: str, study_name: str) -> optuna.Study:
    """Load a study to measure for the search that made it; raises as `load_study`."""
    load_study(storage, study_name)
    with without_optuna_log():
        return optuna.load_study(study_name=study_name, storage=open_storage(storage))


def _check_schema(study: optuna.Study) -> None:
    known = attributes_of(study)  # read once: another search may write them meanwhile, all at once
    schema = known.get("schema")
    if schema != STUDY_SCHEMA and "objective" in known:
        raise BadInput(
            f"the schema of study {study.study_name!r} must be {STUDY_SCHEMA}, got {schema}: another version of "
            "autoauto wrote it; use that version, or give another --study-name"
        )


def _identify(study: optuna.Study, fingerprint: Mapping[str, str]) -> None:
    """Refuse another fingerprint, or store this one where there is none."""
    _check_same(study, fingerprint)
    # First, so that a kill leaves no study without it; checked again, since another search may have begun just now.
    _set_attributes(study, {"schema": STUDY_SCHEMA, **fingerprint}, lambda: _check_same(study, fingerprint))


@reads
def _check_same(study: optuna.Study, wanted: Mapping[str, str]) -> None:
    """Refuse another fingerprint; a study without trials may lack fields, when its search was killed at once."""
    known = attributes_of(study)
    storage, study_id = database_of(study)
    has_trials = not wanted.keys() <= known.keys() and storage.get_n_trials(study_id) > 0
    changed = [name for name in wanted if known.get(name) != wanted[name] and (name in known or has_trials)]
    if changed:
        differences = (f"{name} {known.get(name)!r}, this search has {wanted[name]!r}" for name in changed)
        meanings = [meaning for name, meaning in _DIGESTS.items() if name in changed]
        why = f" ({' and '.join(meanings)})" if meanings else ""
        raise BadInput(
            f"study {study.study_name!r} was made with {'; '.join(differences)}{why}, and its trials do not "
            "compare with this search's; give another --study-name"
        )


def _set_attributes(
    study: optuna.Study, attributes: Mapping[str, object], check: Callable[[], None] = lambda: None
) -> None:
    known = attributes_of(study)
    changed = {name: value for name, value in attributes.items() if known.get(name) != value}
    if changed:
        storage, study_id = database_of(study)
        assert isinstance(storage, TrialStorage)  # `open_storage` made it
        storage.set_study_attrs(study_id, changed, check=check)


@contextmanager
def without_optuna_log() -> Iterator[None]:
    """Suppress Optuna's log lines and its warning that metric names are experimental."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


@reads
def note_space(study: Study, space: SearchSpace) -> str | None:
    """Store the space of a search in its study; returns a line about what the last search had otherwise, or None.

    The line also counts the trials of other programs, which are left out.

    A study may be resumed in a wider or narrower space: its trials inside the new space count, and none is deleted.
    """
    now = _values_of(space)
    known = attributes_of(study).get(SPACE)
    set_attribute(study, SPACE, json.dumps(now))
    before = _values_of(read_space(known)) if known else now
    changes = []
    for name, values in now.items():
        if name in before and before[name] != values:
            changes.append(f"{name} was {format_values(before[name])}, is {format_values(values)}")
    stored = stored_trials(study)
    trials, n_foreign = stored.finished, stored.n_foreign
    lines = []
    if n_foreign:
        noun = "trial" if n_foreign == 1 else "trials"
        lines.append(f"{n_foreign:,} {noun} of study {study.study_name} left out: of another program, or edited")
    if changes and trials:
        n_inside = sum(knobs in space for knobs in trials)
        lines.append(
            f"study {study.study_name} was last searched with other values: {'; '.join(changes)}; {n_inside:,} of its "
            f"{len(trials):,} finished trials count here, too, and are not tried again"
        )
    return "; ".join(lines) or None


def note_start(study: Study) -> None:
    """Store that a search begins."""
    set_attribute(study, STARTED, datetime.now(UTC).isoformat(timespec="seconds"))
    set_attribute(study, ANSWER, None)


def note_answer(study: Study, winner: Trial | None) -> None:
    """Store the answer of a search that ends, so that a list of studies need not read trials."""
    values = [] if winner is None else list(winner.values)
    set_attribute(study, ANSWER, {"values": values})


def _values_of(space: SearchSpace) -> dict[str, list[Any]]:
    """The values of every knob, but for those that other sessions vary, and the texts of the constraints."""
    own = {"runtime"}
    for kind in space.sessions:
        own.update(knob.name for knob in kind.knobs)
    others = SESSION_KNOBS.keys() - own
    values = {name: list(values) for name, values in space.pairs if name not in others or not values}
    return values | {"constraints": [constraint.text for constraint in space.constraints]}


def space_of(study: Study) -> SearchSpace | None:
    """The space of the last search of a study; None when it is not known."""
    stored = attributes_of(study).get(SPACE)
    return read_space(stored) if stored else None


def read_space(text: str) -> SearchSpace:
    """The space that `note_space` stored."""
    values: dict[str, Any] = {name: tuple(column) for name, column in json.loads(text).items()}
    return SearchSpace(**values)


def format_values(values: Sequence[object]) -> str:
    """Values of a knob as they are typed.

    >>> format_values([1, 2, 3, 4]), format_values([0.3, 0.6]), format_values([1, 2, 4]), format_values([])
    ('1:4', '0.3,0.6', '1,2,4', 'none')
    """
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(numbers) == len(values) > 2 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"{numbers[0]}:{numbers[-1]}"
    return ",".join(map(str, values)) or "none"


_MAX_NAMED = 5  # studies in a message
_STUDIES = select(table("studies", column("study_id"), column("study_name")))
_STORED = table("study_user_attributes", *map(column, ("study_id", "key", "value_json")))
_SHOWN = _STORED.c.key.in_(("model", "cluster", "target", "mode", "objective", ANSWER, STARTED))
_ATTRIBUTES = select(_STORED).where(_SHOWN).order_by(_STORED.c.study_id)
_OF_TRIALS = table("trials", column("study_id"), column("datetime_complete", DateTime))
_LAST = func.max(_OF_TRIALS.c.datetime_complete).label("last")
_TRIALS = select(_OF_TRIALS.c.study_id, func.count().label("n_trials"), _LAST).group_by(_OF_TRIALS.c.study_id)


class StoredStudy(NamedTuple):
    """A study as a list shows it.

    Attributes:
        attributes: those of its model, cluster, target, mode and objective, and of its last search (`note_start`).
        last_trial: when the last one ended, in UTC; None without trials.
    """

    name: str
    attributes: Mapping[str, Any]
    n_trials: int
    last_trial: datetime | None

    @property
    def state(self) -> str:
        """The state of the last search: "unfinished" if it runs or was interrupted, "unknown" before the first."""
        if ANSWER not in self.attributes:
            return "unknown"
        return "unfinished" if self.attributes[ANSWER] is None else "finished"

    @property
    def values(self) -> list[float]:
        """The values of its answer, by the first objective where it has several; none without an answer."""
        answer = self.attributes.get(ANSWER)
        return list(answer["values"]) if answer else []

    @property
    def newest(self) -> datetime:
        """The later of the start of its last search and the end of its last trial."""
        times = []
        if started := self.attributes.get(STARTED):
            times.append(datetime.fromisoformat(started))
        if self.last_trial is not None:
            times.append(self.last_trial)
        return max(times, default=datetime.min.replace(tzinfo=UTC))


@reads
def list_studies(storage: str) -> list[StoredStudy]:
    """The studies that searches made, the newest first; three queries, however many there are.

    Raises:
        BadInput: there is no such database.
        MissingExtra: the database's driver is not installed.
    """
    studies, attributes, trials = _rows(storage)
    of_study: dict[int, dict[str, Any]] = defaultdict(dict)
    for study_id, key, value in attributes:
        of_study[study_id][key] = json.loads(value)
    n_trials = {study_id: n for study_id, n, _ in trials}
    last_trials = {study_id: last.replace(tzinfo=UTC) for study_id, _, last in trials if last is not None}
    stored = []
    for study_id, name in sorted(studies, reverse=True):
        if "objective" in of_study[study_id]:  # other programs' studies have none
            n, last = n_trials.get(study_id, 0), last_trials.get(study_id)
            stored.append(StoredStudy(name, of_study[study_id], n, last))
    return sorted(stored, key=lambda study: study.newest, reverse=True)


@through_restarts
def _rows(storage: str) -> list[Sequence[Any]]:
    engine = existing_engine(storage)
    with engine.connect() as connection:
        return [connection.execute(query).all() for query in (_STUDIES, _ATTRIBUTES, _TRIALS)]


def find_study(storage: str, part: str | None) -> tuple[str, str]:
    """The full name of a study, and why it is meant; an empty text where its full name was given.

    Args:
        part: its name, or the beginning of its name alone; None for the latest.

    Raises:
        BadInput: there is no such database, none of its studies is meant, or several are.
    """
    names = [study.name for study in list_studies(storage)]
    where = shown_storage(storage)
    if part is None and names:
        return names[0], f"the latest of {len(names):,} in {where}"
    if part is None:
        raise BadInput(f"{where} holds no study of `autoauto search`; make one, or give another --storage")
    if part in names:
        return part, ""
    begin = [name for name in names if name.startswith(part)]
    if len(begin) == 1:
        return begin[0], f"the only one of {len(names):,} in {where} that begins with {part!r}"
    if begin:
        shown = ", ".join(begin[:_MAX_NAMED])
        if len(begin) > _MAX_NAMED:
            shown += f" and {len(begin) - _MAX_NAMED:,} more"
        raise BadInput(f"a study is a full name or the beginning of one name, {part!r} begins {shown}")
    raise no_study(storage, part, names)
