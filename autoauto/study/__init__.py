"""SearchSpace -> the best configuration: a method chooses what is tried, an Optuna study keeps the trials."""
