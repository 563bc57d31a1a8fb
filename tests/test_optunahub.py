"""The package for OptunaHub: it is loaded as its users load it, and needs fewer trials than TPE."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import numpy as np
import optuna
import pytest
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, GridSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState

REGISTRY = Path(__file__).parents[1] / "optunahub"
PACKAGE = REGISTRY / "samplers" / "guided"
NEAR = 0.01
"""A trial counts as the best that is within this share of the best of the grid."""

Params = Mapping[str, Any]


@pytest.fixture(scope="module")
def optunahub() -> Any:
    """The package; it takes a second to import."""
    return pytest.importorskip("optunahub")


@pytest.fixture(scope="module")
def guided(optunahub: Any) -> Any:
    return optunahub.load_local_module("samplers/guided", registry_root=str(REGISTRY)).GuidedSampler


@pytest.fixture(autouse=True)
def _no_log() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


class Function(NamedTuple):
    """A public function on a grid, and a forecast of it that is wrong."""

    space: dict[str, FloatDistribution]
    value: Callable[[Params], float]
    forecast: Callable[[Params], float]
    direction: Literal["minimize", "maximize"]

    def run(self, trial: Trial) -> float:
        """Evaluate a trial."""
        return self.value({n: trial.suggest_float(n, d.low, d.high, step=d.step) for n, d in self.space.items()})

    @property
    def best(self) -> float:
        """The best value of the grid."""
        axes = [np.linspace(d.low, d.high, 1 + round((d.high - d.low) / (d.step or 1))) for d in self.space.values()]
        grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, len(axes))
        values = [self.value(dict(zip(self.space, map(float, point), strict=True))) for point in grid]
        return max(values) if self.direction == "maximize" else min(values)

    def n_trials(self, sampler: BaseSampler, best: float, at_most: int) -> int:
        """Trials until one is the best of the grid."""
        study = optuna.create_study(sampler=sampler, direction=self.direction)
        for number in range(1, at_most + 1):
            study.optimize(self.run, n_trials=1)
            if abs(study.best_value / best - 1) <= NEAR:
                return number
        return at_most + 1


def branin(x: float, y: float, b: float = 5.1 / (4 * math.pi**2), c: float = 5 / math.pi) -> float:
    """Branin and Hoo, 1972; the forecast has other coefficients."""
    return (y - b * x**2 + c * x - 6) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


HARTMANN_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann6(params: Params) -> float:
    """Hartmann, 1972, with the sign of a maximum."""
    distances = (HARTMANN_A * (np.array([*params.values()]) - HARTMANN_P) ** 2).sum(axis=1)
    return float(np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-distances))


def tilted(params: Params) -> float:
    """0.6 of Hartmann's function, too high where three parameters are large and too low where the others are."""
    tilt = sum((-1) ** number * (value / 0.9 - 0.5) for number, value in enumerate(params.values()))
    return 0.6 * hartmann6(params) * math.exp(tilt)


BRANIN = Function(
    {"x": FloatDistribution(-5, 10, step=0.25), "y": FloatDistribution(0, 15, step=0.25)},
    lambda params: branin(params["x"], params["y"]),
    lambda params: 1.5 * branin(params["x"], params["y"], 5.1 / (4 * math.pi**2) - 0.02, 5 / math.pi - 0.1) + 1,
    "minimize",
)
HARTMANN6 = Function(
    {f"x{number}": FloatDistribution(0, 0.9, step=0.3) for number in range(6)}, hartmann6, tilted, "maximize"
)


@pytest.mark.parametrize(
    ("function", "at_most"), [(HARTMANN6, 25), pytest.param(BRANIN, 150, marks=pytest.mark.slow)], ids=["H6", "Branin"]
)
def test_it_needs_fewer_trials_than_tpe(guided: Any, function: Function, at_most: int) -> None:
    best = function.best
    samplers = [guided(function.space, function.forecast, seed=seed) for seed in range(2)]
    by_forecast = [function.n_trials(sampler, best, at_most) for sampler in samplers]
    by_tpe = [function.n_trials(TPESampler(seed=seed), best, at_most) for seed in range(5)]
    assert 1 < max(by_forecast) <= at_most  # the forecast alone does not know the best
    assert 2 * median(by_forecast) < median(by_tpe)
    assert min(by_forecast) == max(by_forecast)  # where all configurations are candidates, nothing is random


def test_the_registry_can_read_the_readme() -> None:
    text = (PACKAGE / "README.md").read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    front = yaml.safe_load(head)
    assert set(front) == {"author", "title", "description", "tags", "optuna_versions", "license"}
    assert "sampler" in front["tags"]
    assert all(isinstance(each, str) for key in ("tags", "optuna_versions") for each in front[key])
    assert front["license"] == (PACKAGE / "LICENSE").read_text(encoding="utf-8").splitlines()[0]
    assert all(f"## {heading}\n" in body for heading in ("Abstract", "APIs", "Installation", "Example"))


@pytest.mark.usefixtures("optunahub")
def test_the_example_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (PACKAGE / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    local = f'optunahub.load_local_module("samplers/guided", registry_root={str(REGISTRY)!r})'
    exec(example.replace('optunahub.load_module("samplers/guided")', local), names)
    assert names["study"].best_value <= 1.05 * 20


def test_what_failed_or_runs_is_not_tried_again(guided: Any) -> None:
    space: dict[str, Any] = {"x": IntDistribution(1, 4), "y": CategoricalDistribution(["a", "b"])}
    study = optuna.create_study(sampler=guided(space, lambda params: float(params["x"])))
    running = study.ask(space)
    failed = study.ask(space)
    study.tell(failed, state=TrialState.FAIL)
    for _ in range(6):
        trial = study.ask(space)
        study.tell(trial, float(trial.params["x"]))
    tried = [tuple(trial.params.values()) for trial in study.trials]
    assert len(tried) == len(set(tried)) == 8
    assert running.params != failed.params


def test_a_space_without_steps_has_random_candidates(guided: Any) -> None:
    space: dict[str, Any] = {"x": FloatDistribution(1e-3, 1e3, log=True), "n": IntDistribution(1, 10**6, log=True)}
    sampler = guided(space, lambda params: 1 + abs(math.log(params["x"])), n_candidates=500, seed=1)

    study = optuna.create_study(sampler=sampler)
    for _ in range(20):
        trial = study.ask(space)
        study.tell(trial, 1 + abs(math.log(trial.params["x"] / 2)))
    assert study.best_value < 1.2
    assert all(isinstance(trial.params["n"], int) for trial in study.trials)


def test_trials_of_another_sampler_count(guided: Any) -> None:
    study = optuna.create_study(sampler=GridSampler({"x": [0.5, 7.3]}))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 10), n_trials=2)
    seen: list[FrozenTrial] = study.trials
    study.sampler = guided({"x": FloatDistribution(0, 10, step=1)}, lambda params: 1.0 + params["x"])
    trial = study.ask({"x": FloatDistribution(0, 10, step=1)})
    assert trial.params["x"] not in {each.params["x"] for each in seen}


def test_what_has_no_logarithm_is_refused(guided: Any) -> None:
    space: dict[str, Any] = {"x": IntDistribution(0, 3)}
    with pytest.raises(ValueError, match=r"a forecast must be a finite number above 0, got 0\.0 of {'x': 0}"):
        guided(space, lambda params: float(params["x"]))
    study = optuna.create_study(sampler=guided(space, lambda _: 1.0))
    study.tell(study.ask(space), -1.0)
    with pytest.raises(ValueError, match=r"a value must be a finite number above 0, got -1\.0"):
        study.ask(space)
    with pytest.raises(ValueError, match="a study of one objective, got 2"):
        optuna.create_study(directions=["minimize"] * 2, sampler=study.sampler).ask(space)
