"""How long measurements took so far: `known_pace`."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

import optuna
from optuna import Study
from optuna.trial import TrialState

from autoauto.records.errors import AutoautoError
from autoauto.search.storage import existing_storage, storage_errors

ALIKE = ("model_content", "cluster_content", "target")
"""The attributes in which studies agree whose measurements take as long."""


class Pace(NamedTuple):
    """What measurements took.

    Attributes:
        seconds: the median of one.
        n_known: how many are known.
    """

    seconds: float
    n_known: int


def known_pace(storage: str, fingerprint: Mapping[str, str]) -> Pace | None:
    """What measuring took in all studies of a database about the same model on the same devices; None if nowhere.

    Args:
        storage: URL of the database; there need not be one.
        fingerprint: of the search; see `ALIKE`.
    """
    try:
        backend = existing_storage(storage)
    except AutoautoError:
        return None
    with storage_errors():
        studies = [optuna.load_study(study_name=name, storage=backend) for name in optuna.get_all_study_names(backend)]
        alike = [study for study in studies if all(study.user_attrs.get(one) == fingerprint[one] for one in ALIKE)]
        durations = [seconds for study in alike for seconds in _durations(study)]
    return Pace(median(durations), len(durations)) if durations else None


def _durations(study: Study) -> list[float]:
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return [trial.duration.total_seconds() for trial in trials if trial.duration is not None]
