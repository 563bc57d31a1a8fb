"""Further questions about plans: k best, Pareto front, device counts, explanation."""
