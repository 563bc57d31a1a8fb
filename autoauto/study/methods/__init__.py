"""Methods of search: guided, grid with bisection, exhaustive, Optuna's samplers."""
