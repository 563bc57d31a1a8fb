"""A study in a database: opened for a search, or loaded to be read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import RDBStorage
from optuna.trial import TrialState

from autoauto.records.errors import BadInput
from autoauto.records.trial import Objective
from autoauto.search.objective import direction, metric_name
from autoauto.search.storage import existing_storage, open_storage, storage_errors
from autoauto.search.trials import INTERRUPTED


def open_study(
    storage: str,
    study_name: str,
    objective: Objective,
    fingerprint: Mapping[str, str],
    notes: Mapping[str, str] | None = None,
) -> optuna.Study:
    """Create the study called `study_name` in the database at the URL `storage`, or resume it.

    One process at a time may search a study: a trial that is still running is taken for what a killed search left and
    ends as FAIL with reason "interrupted".

    Args:
        storage: for example "sqlite:///studies/autoauto.db"; a new SQLite file is made with its folder.
        study_name: its name in that database.
        objective: decides the direction; part of the fingerprint.
        fingerprint: what trials must share to be comparable (model digest, cluster, target version, ...); kept as user
            attributes of the study.
        notes: what is told of the last search only (the command, the version of autoauto); user attributes too.

    Raises:
        BadInput: the database cannot be used, or the study was made with another fingerprint.
        MissingExtra: the database's driver is not installed.
    """
    backend = open_storage(storage)
    with storage_errors(f"study {study_name!r}"), _quiet():
        study = optuna.create_study(
            storage=backend, study_name=study_name, direction=direction(objective), load_if_exists=True
        )
        _identify(study, {"objective": str(objective), **fingerprint})
        if study.metric_names is None:
            study.set_metric_names([metric_name(objective)])
        _set_attributes(study, notes or {})
        _end_leftovers(backend, study_name)
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


def _identify(study: optuna.Study, fingerprint: Mapping[str, str]) -> None:
    """Refuse another fingerprint; a study without trials may lack fields (new, or killed before it had them all)."""
    known = study.user_attrs
    has_trials = bool(study.get_trials(deepcopy=False))
    for field, value in fingerprint.items():
        if known.get(field) != value and (field in known or has_trials):
            raise BadInput(
                f"study {study.study_name!r} was made with {field} {known.get(field)!r}, this search has {value!r}; "
                "give another --study-name"
            )
    _set_attributes(study, fingerprint)


def _set_attributes(study: optuna.Study, attributes: Mapping[str, str]) -> None:
    known = study.user_attrs
    for name, value in attributes.items():
        if known.get(name) != value:
            study.set_user_attr(name, value)


def _end_leftovers(backend: RDBStorage, study_name: str) -> None:
    study_id = backend.get_study_id_from_name(study_name)
    for trial in backend.get_all_trials(study_id, deepcopy=False, states=(TrialState.RUNNING,)):
        trial_id = backend.get_trial_id_from_study_id_trial_number(study_id, trial.number)
        backend.set_trial_user_attr(trial_id, "reason", INTERRUPTED)
        backend.set_trial_state_values(trial_id, TrialState.FAIL)


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
