"""Figures and notes for Optuna's dashboard."""
