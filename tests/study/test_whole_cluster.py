"""The answer of a default search against what one would run without it, for built-in models on built-in clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.records.installation import builtin_models
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import Alternative
from autoauto.space.trial import Trial
from autoauto.study.analysis.best import expected_alternatives
from autoauto.study.analysis.comparisons import study_comparisons
from autoauto.study.defaults import default_space
from autoauto.study.methods.guided import MIN_GAIN
from autoauto.study.methods.registry import predictor
from autoauto.study.search import search_flow
from autoauto.targets.clusters import builtin_clusters

FOR_TRAINING = ("-mlm", "-squad", "-train")  # heads with a loss; training is not searched here
MODELS = sorted(name for name in builtin_models() if not name.endswith(FOR_TRAINING))
CLUSTERS = sorted(builtin_clusters())
CASES = [(MODELS[i % len(MODELS)], CLUSTERS[i // 2 % len(CLUSTERS)]) for i in range(2 * len(CLUSTERS))]
"""Every cluster with two models, and every model with two clusters or more."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("model", "cluster"), CASES)
def test_the_answer_is_never_below_what_one_would_run_without_a_search(
    model: str, cluster: str, tmp_path: Path
) -> None:
    flow = load_flow(model, cluster)
    result = search_flow(flow, _space(flow), storage=f"sqlite:///{tmp_path}/trials.db")
    assert result.best is not None
    assert result.best.knobs.n_devices <= len(flow.cluster)
    assert all(knobs.n_devices <= len(flow.cluster) for knobs in result.trials)
    simple = [flow.evaluate(entry.knobs) for entry in _alternatives(model, cluster) if entry.samples_per_s]
    assert simple
    below = [trial.knobs for trial in simple if _worth(trial) > result.best.samples_per_s * (1.0 + MIN_GAIN)]
    assert below == []
    assert result.summary is not None
    gains = [comparison.gain_percent for comparison in study_comparisons(result.summary) if comparison.is_simple_use]
    assert all(gain is None or gain >= -100.0 * MIN_GAIN for gain in gains)


def _space(flow: Flow) -> SearchSpace:
    """The default space of a machine; few batch sizes elsewhere, and two where devices are unlike."""
    sizes = (4, 16) if len(set(flow.cluster.devices)) > 1 else (1, 4, 16, 64)
    return default_space(flow, {} if flow.cluster.name == "bow-2000" else {"batch_size": sizes})


def _alternatives(model: str, cluster: str) -> tuple[Alternative, ...]:
    """The best of every simple use by an estimate that no search has taught."""
    flow = load_flow(model, cluster)
    return expected_alternatives(_space(flow), predictor(flow.expect, Objective.THROUGHPUT), flow.expect)


def _worth(trial: Trial) -> float:
    return trial.samples_per_s if trial.fits else 0.0
