"""How likely the better of two forecasts of engines is better, `probability_better`, or whether they tie, `are_tied`.

Of a tie the simplest is the answer of a search: `simplest_of_tie`.

Two configurations of one question share errors of their forecasts. What is left of their ratio depends on what differs,
the largest difference first:

    format > engine > group (stages; tensor, expert, attention data parallel) > batch

Stages add the error of their engine, a doubling of them its `stage_error`: no row of more than one stage was paired.

`data/errors/margins.csv` has the standard deviations of the logarithm of measured ratio / forecast ratio, which
`studies/gpu_margins.py` fitted to the even half of measured rows [aiconfigurator].
"""

from __future__ import annotations

from collections.abc import Mapping
from csv import DictReader
from functools import cache
from math import log, log2, sqrt
from statistics import NormalDist
from typing import NamedTuple

from autoauto.engines.registry import engine_named
from autoauto.records.installation import data_dir
from autoauto.space.knobs import Knobs

DIFFERENCES = ("batch", "group", "engine", "format")
"""What may differ between two configurations, the smallest error of a ratio first."""
MIN_PROBABILITY = 0.55
"""With this probability or more the higher forecast is taken as better; below, two are not told apart. Both halves of
the rows were seen before it was chosen: with more, the simplest of a tie loses measured throughput on the odd half."""
MIN_PROBABILITY_OF_STAGES = 0.65
"""The same for a pipeline of more stages than the other has. No pair of rows shows how far their ratio is off, and
measured rows with stages gave less than forecasts said: a pipeline must promise more, up to about a tenth."""
_NORMAL = NormalDist()


class EngineChoice(NamedTuple):
    """The choices of a configuration of engines on which the error of a ratio depends.

    Attributes:
        formats: of weights and of keys and values.
        group: GPUs that split the attention, among which experts are dealt, and ranks of the attention.
        n_pools: 2 where other servers compute prompts.
    """

    engine: str
    formats: tuple[str, ...]
    n_stages: int
    group: tuple[int, ...]
    n_pools: int = 1

    @property
    def size(self) -> tuple[int, ...]:
        """Pools, then stages, then the sizes of the group: a configuration is simpler with less of each."""
        return (self.n_pools, self.n_stages, *self.group)

    @staticmethod
    def of(knobs: Knobs) -> EngineChoice:
        """The choice that a configuration of engines makes."""
        values = knobs.values
        formats = tuple(str(values[name]) for name in ("precision", "kv_cache_precision"))
        group = tuple(int(values[name]) for name in ("tensor_parallel", "expert_parallel", "attention_data_parallel"))
        return EngineChoice(str(values["engine"]), formats, knobs.n_ipu, group, 1 + bool(values["prefill_workers"]))


def difference(first: EngineChoice, second: EngineChoice) -> str:
    """The largest difference of two configurations, one of `DIFFERENCES`."""
    if first.formats != second.formats:
        return "format"
    if first.engine != second.engine:
        return "engine"
    return "batch" if first == second else "group"


@cache
def _errors() -> dict[str, float]:
    with (data_dir() / "errors" / "margins.csv").open(newline="", encoding="utf-8") as file:
        return {row["difference"]: float(row["deviation"]) for row in DictReader(file)}


def error_of(first: EngineChoice, second: EngineChoice) -> float:
    """The standard deviation of log (measured ratio / forecast ratio) of two configurations."""
    stages = max(engine_named(each.engine).measured.stage_error for each in (first, second))
    n_doublings = abs(log2(first.n_stages / second.n_stages))
    return sqrt(_errors()[difference(first, second)] ** 2 + stages**2 * n_doublings)


def probability_better(log_margin: float, first: EngineChoice, second: EngineChoice) -> float:
    """How likely the first gives more, by the logarithm of first forecast / second forecast."""
    return _NORMAL.cdf(log_margin / error_of(first, second))


def are_tied(log_margin: float, first: EngineChoice, second: EngineChoice) -> bool:
    """Whether the error of their ratio is too large to tell two configurations apart; `log_margin` is its logarithm."""
    better, other = (first, second) if log_margin >= 0 else (second, first)
    needed = MIN_PROBABILITY_OF_STAGES if better.n_stages > other.n_stages else MIN_PROBABILITY
    return probability_better(abs(log_margin), better, other) < needed


def simplest_of_tie(best: Knobs, scores: Mapping[Knobs, float]) -> Knobs:
    """The configuration with the fewest stages, then the smallest groups, that is not told apart from the best.

    Of equally simple ones it is that with the highest of `scores`, in proportion to throughput, of configurations that
    keep all bounds. One is simpler with fewer stages and no larger groups, or with smaller groups and no more stages.
    """
    chosen, ties = EngineChoice.of(best), {best}
    for knobs, score in scores.items():
        choice = EngineChoice.of(knobs)
        is_no_larger = all(own <= other for own, other in zip(choice.size, chosen.size, strict=True))
        is_simpler = is_no_larger and choice.size != chosen.size
        if is_simpler and score > 0 and are_tied(log(scores[best] / score), chosen, choice):
            ties.add(knobs)
    return min(ties, key=lambda knobs: (EngineChoice.of(knobs).size, -scores[knobs]))
