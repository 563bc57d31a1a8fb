"""Records -> figures and notes for Optuna's dashboard."""
