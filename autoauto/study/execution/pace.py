"""How long the rest of a search will take, if it goes on as it has: `TimeLeft`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import monotonic
from typing import NamedTuple

import optuna
from optuna import Study
from optuna.trial import TrialState

from autoauto.records.errors import AutoautoError
from autoauto.records.trial import Phase
from autoauto.study.store.database import existing_storage, storage_errors


class TimeLeft:
    """Seconds that one more of what a method counts, cells or tries, takes by the mean so far.

    Every phase has a pace of its own; what is recalled from an earlier search takes no time and does not count. It is a
    guess: a guided search often ends before the mean says so.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._phase: Phase | None = None
        self._recalled = False
        self._begun_s, self._begun_at = 0.0, 0

    def seconds(self, phase: Phase, done: int, total: int, recalled: bool) -> float | None:
        """Seconds that are left of a phase; None before anything of it is done.

        Args:
            phase: what the search is at.
            done, total: how far it is.
            recalled: whether what comes next is known already.
        """
        now_s = self._clock()
        if self._recalled or recalled or phase is not self._phase or done < self._begun_at:
            self._phase, self._begun_s, self._begun_at = phase, now_s, done
        self._recalled = recalled
        n_done = done - self._begun_at
        return (now_s - self._begun_s) / n_done * (total - done) if n_done else None


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
