"""SearchSpace -> the best configuration: a method chooses what is tried, an Optuna study keeps what came of it."""

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autoauto.records.trial import Outcome
    from autoauto.search.best import BestTrial, aim_of_study, best_trial, count_trials, pareto_front
    from autoauto.search.call import outcome_of, search, search_flow
    from autoauto.search.cells import study_cells
    from autoauto.search.child import Bounds
    from autoauto.search.comparisons import study_comparisons
    from autoauto.search.conditions import provenance
    from autoauto.search.crew import Crew
    from autoauto.search.dask_hands import DaskHands
    from autoauto.search.defaults import default_noise, default_space
    from autoauto.search.findings import study_findings
    from autoauto.search.hands import Children, Hands
    from autoauto.search.interrupts import Interrupts
    from autoauto.search.methods import method_for, method_of, predictor
    from autoauto.search.notes import Board
    from autoauto.search.pace import known_pace
    from autoauto.search.rehearse import Rehearsal, rehearsal_of
    from autoauto.search.resumed import note_space
    from autoauto.search.run import SearchProgress, SearchResult, run_search
    from autoauto.search.storage import shown_storage
    from autoauto.search.study import join_study, load_study, open_study
    from autoauto.search.table import trial_table

__all__ = [
    "BestTrial",
    "Board",
    "Bounds",
    "Children",
    "Crew",
    "DaskHands",
    "Hands",
    "Interrupts",
    "Rehearsal",
    "SearchProgress",
    "SearchResult",
    "aim_of_study",
    "best_trial",
    "count_trials",
    "default_noise",
    "default_space",
    "join_study",
    "known_pace",
    "load_study",
    "method_for",
    "method_of",
    "note_space",
    "open_study",
    "outcome_of",
    "pareto_front",
    "predictor",
    "provenance",
    "rehearsal_of",
    "run_search",
    "search",
    "search_flow",
    "shown_storage",
    "study_cells",
    "study_comparisons",
    "study_findings",
    "trial_table",
]

_HOMES = {
    "BestTrial": "autoauto.search.best",
    "Board": "autoauto.search.notes",
    "Bounds": "autoauto.search.child",
    "Children": "autoauto.search.hands",
    "Crew": "autoauto.search.crew",
    "DaskHands": "autoauto.search.dask_hands",
    "Hands": "autoauto.search.hands",
    "Interrupts": "autoauto.search.interrupts",
    "Rehearsal": "autoauto.search.rehearse",
    "SearchProgress": "autoauto.search.run",
    "SearchResult": "autoauto.search.run",
    "aim_of_study": "autoauto.search.best",
    "best_trial": "autoauto.search.best",
    "count_trials": "autoauto.search.best",
    "default_noise": "autoauto.search.defaults",
    "default_space": "autoauto.search.defaults",
    "join_study": "autoauto.search.study",
    "known_pace": "autoauto.search.pace",
    "load_study": "autoauto.search.study",
    "method_for": "autoauto.search.methods",
    "method_of": "autoauto.search.methods",
    "note_space": "autoauto.search.resumed",
    "open_study": "autoauto.search.study",
    "outcome_of": "autoauto.search.call",
    "pareto_front": "autoauto.search.best",
    "predictor": "autoauto.search.methods",
    "provenance": "autoauto.search.conditions",
    "rehearsal_of": "autoauto.search.rehearse",
    "run_search": "autoauto.search.run",
    "search": "autoauto.search.call",
    "search_flow": "autoauto.search.call",
    "shown_storage": "autoauto.search.storage",
    "study_cells": "autoauto.search.cells",
    "study_comparisons": "autoauto.search.comparisons",
    "study_findings": "autoauto.search.findings",
    "trial_table": "autoauto.search.table",
}


def __getattr__(name: str) -> object:
    """Import a name when it is first asked for: a process that only measures needs neither Optuna nor pandas."""
    if name not in _HOMES:
        raise AttributeError(f"module 'autoauto.search' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


class _Room(ModuleType):
    """The room can be called: `autoauto.search("resnet50")` is the function `search` of `call.py`."""

    def __call__(self, *args: Any, **kwargs: Any) -> "Outcome":
        """Search; see `autoauto.search.search`."""
        return import_module("autoauto.search.call").search(*args, **kwargs)  # type: ignore[no-any-return]

    @property
    def __signature__(self) -> inspect.Signature:
        """That of the function, for whoever asks what the call takes."""
        return inspect.signature(import_module("autoauto.search.call").search)


sys.modules[__name__].__class__ = _Room
