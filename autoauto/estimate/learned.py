"""The correction of the hour: `learned`."""

from __future__ import annotations

from autoauto.estimate.regression import fit
from autoauto.records.correction import Correction, Examples

REFIT = 2.0  # times as many examples as taught the last correction


def learned(store: Examples, refit: float = REFIT) -> Correction:
    """What the examples teach; fitted anew when there are `refit` times as many as the last time, and kept."""
    correction = store.correction()
    n_examples = sum(store.batch_sizes().values())
    if n_examples > correction.n_examples and n_examples >= refit * correction.n_examples:
        correction = fit(store.examples())
        store.keep(correction)
    return correction
