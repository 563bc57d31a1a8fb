"""SearchSpace -> the best configuration: an Optuna study, a grid over cells, a bisection over the batch size."""

from autoauto.search.best import BestTrial, best_trial
from autoauto.search.bisect import largest_feasible
from autoauto.search.run import Cell, SearchProgress, SearchResult, run_search
from autoauto.search.study import load_study, open_study, study_names
from autoauto.search.table import trial_table

__all__ = [
    "BestTrial",
    "Cell",
    "SearchProgress",
    "SearchResult",
    "best_trial",
    "largest_feasible",
    "load_study",
    "open_study",
    "run_search",
    "study_names",
    "trial_table",
]
