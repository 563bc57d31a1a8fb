"""Records -> tables, and progress while one waits; every number says where it comes from."""

from autoauto.report.best import best_table
from autoauto.report.cells import cells_table
from autoauto.report.compare import CompareRow, Speeds, compare_rows, compare_table
from autoauto.report.explanation import explanation_table
from autoauto.report.front import front_table
from autoauto.report.listings import clusters_table, models_table
from autoauto.report.phased import buffers_table, phases_table
from autoauto.report.plans import plans_table
from autoauto.report.profile import profile_table
from autoauto.report.progress import progress_bar
from autoauto.report.rehearsal import rehearsal_table
from autoauto.report.run import run_table
from autoauto.report.search_progress import search_bar
from autoauto.report.stages import stages_table
from autoauto.report.style import ESTIMATED, MEASURED, measured_by
from autoauto.report.trials import trials_table

__all__ = [
    "ESTIMATED",
    "MEASURED",
    "CompareRow",
    "Speeds",
    "best_table",
    "buffers_table",
    "cells_table",
    "clusters_table",
    "compare_rows",
    "compare_table",
    "explanation_table",
    "front_table",
    "measured_by",
    "models_table",
    "phases_table",
    "plans_table",
    "profile_table",
    "progress_bar",
    "rehearsal_table",
    "run_table",
    "search_bar",
    "stages_table",
    "trials_table",
]
