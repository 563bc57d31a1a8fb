"""A study in a database: opened for a search, or loaded to be read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import optuna
from optuna.exceptions import ExperimentalWarning

from autoauto.records.errors import BadInput
from autoauto.records.trial import Aim, aim_name, objectives_of
from autoauto.search.objective import direction, metric_name
from autoauto.search.storage import existing_storage, in_memory, open_storage, reads, storage_errors

_CONTENTS = {"model_content": "the model is another", "cluster_content": "the devices are others"}
"""What it means when a digest is not the same."""


def open_study(
    storage: str,
    study_name: str,
    aim: Aim,
    fingerprint: Mapping[str, str],
    notes: Mapping[str, str] | None = None,
) -> optuna.Study:
    """Create the study called `study_name` in the database at the URL `storage`, or resume it.

    Args:
        storage: for example "sqlite:///studies/autoauto.db"; a new SQLite file is made with its folder.
        study_name: its name in that database.
        aim: decides the directions; part of the fingerprint.
        fingerprint: what trials must share to be comparable (model digest, cluster, target version, ...); kept as user
            attributes of the study.
        notes: what is told of the last search only (the command, the version of autoauto); user attributes too.

    Raises:
        BadInput: the database cannot be used, or the study was made with another fingerprint.
        MissingExtra: the database's driver is not installed.
    """
    if in_memory(storage):
        raise BadInput(f"a study is kept in a file or on a server, got {storage}; try sqlite:///studies/autoauto.db")
    backend = open_storage(storage)
    with storage_errors(f"study {study_name!r}"), _quiet():
        directions = list(map(direction, objectives_of(aim)))
        study = optuna.create_study(storage=backend, study_name=study_name, directions=directions, load_if_exists=True)
        _identify(study, {"objective": aim_name(aim), **fingerprint})
        if study.metric_names is None:
            study.set_metric_names(list(map(metric_name, objectives_of(aim))))
        _set_attributes(study, notes or {})
    return study


def load_study(storage: str, study_name: str) -> optuna.Study:
    """Load a study to read it; nothing is made or changed.

    Raises:
        BadInput: there is no such database or no such study; the message names the studies there are.
        MissingExtra: the database's driver is not installed.
    """
    backend = existing_storage(storage)
    with storage_errors(f"study {study_name!r}"), _quiet():
        names = optuna.get_all_study_names(backend)
        if study_name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise BadInput(f"there is no study {study_name!r} in this database; the studies are: {known}")
        study = optuna.load_study(study_name=study_name, storage=backend)
    if "objective" not in study.user_attrs:
        raise BadInput(f"study {study_name!r} was not made by `autoauto search`; give the name of another")
    return study


def join_study(storage: str, study_name: str) -> optuna.Study:
    """Load a study to measure for the search that made it.

    Raises:
        BadInput: there is no such database or no such study; the message names the studies there are.
        MissingExtra: the database's driver is not installed.
    """
    load_study(storage, study_name)
    with storage_errors(f"study {study_name!r}"), _quiet():
        return optuna.load_study(study_name=study_name, storage=open_storage(storage))


@reads
def _identify(study: optuna.Study, fingerprint: Mapping[str, str]) -> None:
    """Refuse another fingerprint; a study without trials may lack fields (new, or killed before it had them all)."""
    known = study.user_attrs
    has_trials = bool(study.get_trials(deepcopy=False))
    changed = [name for name in fingerprint if known.get(name) != fingerprint[name] and (name in known or has_trials)]
    if changed:
        told = (f"{name} {known.get(name)!r}, this search has {fingerprint[name]!r}" for name in changed)
        contents = [what for name, what in _CONTENTS.items() if name in changed]
        why = f" ({' and '.join(contents)})" if contents else ""
        raise BadInput(
            f"study {study.study_name!r} was made with {'; '.join(told)}{why}, and its trials do not compare with this "
            "search's; give another --study-name"
        )
    _set_attributes(study, fingerprint)


def _set_attributes(study: optuna.Study, attributes: Mapping[str, str]) -> None:
    known = study.user_attrs
    for name, value in attributes.items():
        if known.get(name) != value:
            study.set_user_attr(name, value)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna's log lines and its warning that metric names are experimental to ourselves."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
