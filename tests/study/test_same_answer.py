"""What an answer depends on: not on earlier commands, and a wider space never lowers it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.profile.cache import ProfileCache
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Trial
from autoauto.study.methods.guided import MIN_GAIN
from autoauto.study.search import search_flow

SIZES = (1, 3, 8, 16, 32, 64, 90)
VALUES: dict[str, tuple[Any, ...]] = {
    "n_ipu": (1, 2, 4),
    "replicas": (1, 2, 4),
    "memory_proportion": (0.3, 0.6, 1.0),
    "batch_size": SIZES,
    "strategy": tuple(Strategy),
    "steps": (4, 16),
}


def answer(flow: Flow, **values: Any) -> Trial | None:
    """The best configuration of a space on at most four devices."""
    return search_flow(flow, SearchSpace(**values, constraints=(Constraint("n_devices <= 4"),)), n_repeats=0).best


def worth(trial: Trial | None) -> float:
    return 0.0 if trial is None else trial.samples_per_s


@pytest.mark.slow
def test_the_same_search_gives_the_same_answer_whatever_was_compiled_before(tmp_path: Path) -> None:
    flow = load_flow("resnet50", "bow-2000")
    fresh, used = (flow.with_setting(cache=ProfileCache(tmp_path / f"{name}.db")) for name in ("fresh", "used"))
    for knobs in (
        Knobs(n_ipu=2, memory_proportion=1.0, batch_size=70),
        Knobs(n_ipu=4, memory_proportion=0.3, batch_size=9),
        Knobs(n_ipu=1, memory_proportion=0.6, batch_size=100),
        Knobs(n_ipu=4, memory_proportion=0.6, batch_size=33),
    ):
        used.evaluate(knobs)
    answer(used, n_ipu=(2, 4), memory_proportion=(0.3,), batch_size=SIZES)
    again = used.with_setting()  # opens what is stored, and remembers nothing
    space = {"n_ipu": (1, 2, 4), "memory_proportion": (0.3, 0.6, 1.0), "batch_size": tuple(range(1, 129))}
    answers = [answer(each, **space) for each in (fresh, used, again)]
    assert answers[0] is not None
    for other in answers[1:]:
        assert other is not None
        assert (other.knobs, other.values, other.estimate) == (
            answers[0].knobs,
            answers[0].values,
            answers[0].estimate,
        )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("model", ["resnet50", "gpt2-small"])
def test_a_wider_space_never_lowers_the_answer(model: str) -> None:
    """Values are added to one knob after the other, in random order, until the space has all of them."""
    flow, random = load_flow(model, "bow-2000"), Random(model)
    values = {name: (random.choice(all_values),) for name, all_values in VALUES.items()}
    values |= {"n_ipu": (1,), "replicas": (1,)}
    best = worth(answer(flow, **values))
    while (wider := _wider(values, random)) is not None:
        values, before = wider, best
        best = worth(answer(flow, **values))
        assert best >= before * (1.0 - MIN_GAIN), values


def _wider(values: Mapping[str, tuple[Any, ...]], random: Random) -> dict[str, tuple[Any, ...]] | None:
    """The values with about half of those that a random knob lacks; None when none lacks any."""
    lacking = {name: [value for value in VALUES[name] if value not in values[name]] for name in VALUES}
    names = [name for name, missing in lacking.items() if missing]
    if not names:
        return None
    name = random.choice(names)
    more = random.sample(lacking[name], -(-len(lacking[name]) // 2))
    return {**values, name: tuple(value for value in VALUES[name] if value in (*values[name], *more))}
