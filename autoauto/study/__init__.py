"""SearchSpace -> the best configuration: a method proposes configurations, an Optuna study stores their trials."""
