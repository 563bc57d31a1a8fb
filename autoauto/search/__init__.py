"""SearchSpace -> the best configuration: an Optuna study, a grid over cells, a bisection over the batch size."""

from autoauto.search.best import BestTrial, best_trial, count_trials
from autoauto.search.cells import study_cells
from autoauto.search.run import SearchProgress, SearchResult, run_search
from autoauto.search.storage import shown_storage
from autoauto.search.study import load_study, open_study
from autoauto.search.table import trial_table

__all__ = [
    "BestTrial",
    "SearchProgress",
    "SearchResult",
    "best_trial",
    "count_trials",
    "load_study",
    "open_study",
    "run_search",
    "shown_storage",
    "study_cells",
    "trial_table",
]
