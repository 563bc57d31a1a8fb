"""Estimates of time: `TimeLeft` of a running search, and the `Pace` of measurements in earlier studies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import monotonic
from typing import NamedTuple

import optuna
from optuna.trial import TrialState

from autoauto.records.errors import AutoautoError
from autoauto.space.trial import SearchActivity
from autoauto.study.store.database import attributes_of, existing_storage, through_restarts

PACE_ATTRIBUTES = ("model_content", "cluster_content", "target")
"""Studies in which these attributes are equal have measurements of comparable duration."""


class TimeLeft:
    """Estimates the remaining seconds of an activity from the mean duration of its steps so far, cells or tries.

    The count starts anew with every activity. Configurations that are resumed from an earlier search take no time and
    do not count. A guided search often ends before the estimated time.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._activity: SearchActivity | None = None
        self._resumed = False
        self._start_s, self._start_done = 0.0, 0

    def seconds(self, activity: SearchActivity, done: int, total: int, resumed: bool) -> float | None:
        """The remaining seconds of an activity; None before its first step is done."""
        now_s = self._clock()
        if self._resumed or resumed or activity is not self._activity or done < self._start_done:
            self._activity, self._start_s, self._start_done = activity, now_s, done
        self._resumed = resumed
        n_done = done - self._start_done
        return (now_s - self._start_s) / n_done * (total - done) if n_done else None


class Pace(NamedTuple):
    """The median duration of measurements, and their number."""

    seconds: float
    n_known: int


@through_restarts
def known_pace(storage: str, fingerprint: Mapping[str, str]) -> Pace | None:
    """The duration of measurements in all studies of the same model on the same devices; None without such studies."""
    try:
        backend = existing_storage(storage)
    except AutoautoError:
        return None
    durations: list[float] = []
    for name in optuna.get_all_study_names(backend):
        study = optuna.load_study(study_name=name, storage=backend)
        attributes = attributes_of(study)
        if all(attributes.get(name) == fingerprint[name] for name in PACE_ATTRIBUTES):
            for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
                if trial.duration is not None:
                    durations.append(trial.duration.total_seconds())
    return Pace(median(durations), len(durations)) if durations else None
