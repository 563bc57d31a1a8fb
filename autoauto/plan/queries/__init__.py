"""Plan queries: k best plans, Pareto front, best plan per device count, replicas, explanation."""
