"""The fewest devices with which what must hold does, where the forecasts of whole cells say what may: `fewest`.

    devices     1   2   3   4   5   6   7   8
    forecasts   -   -   o   o   o   o   o   o     -: the forecasts rule all configurations out
                        x   x   .   +   .   .     1. bisected: of each number that is asked the few best are tried
                        x   x   x                 2. all others on fewer than the fewest that work, the most first

The first part finds a good answer soon; the second makes sure that it is the best, or finds a better one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.study.methods.protocol import Observation, Proposal, Proposals
from autoauto.study.methods.surveyed import Survey, forecast_all, nearest

MAX_SIMULATED = 200
"""No more configurations are tried; where fewer are, the answer is proven."""
N_LIKELY = 4
"""So many of a number of devices are tried to see whether it suffices, each structure at one batch size."""


def fewest(space: SearchSpace, known: Mapping[Knobs, Observation], survey: Survey) -> Proposals:
    """Try what the forecasts do not rule out, until nothing on fewer devices than the best is left.

    At most `MAX_SIMULATED` are tried; then the answer is not proven.
    """
    n_cells = len(space.cells)
    forecasts = yield from forecast_all(space, survey)
    # The configurations that may work by their numbers of devices, of each the fastest first.
    levels: dict[int, list[Knobs]] = defaultdict(list)
    for trial in sorted(survey.fitting, key=lambda trial: -trial.samples_per_s):
        levels[trial.knobs.n_devices].append(trial.knobs)
    counts = sorted(levels)
    n_new = 0
    works = {knobs: bool(observation.score) for knobs, observation in known.items()}

    def any_works(some: Sequence[Knobs]) -> Generator[Proposal, Observation | None, bool]:
        nonlocal n_new
        for knobs in some:
            if knobs not in works:
                if n_new >= MAX_SIMULATED:
                    return False
                n_new += 1
                observation = yield Proposal(knobs, n_cells, n_cells)
                assert observation is not None
                works[knobs] = bool(observation.score)
            if works[knobs]:
                return True
        return False

    # More devices need not do more, so the bisection only brings a good answer soon; what follows proves it.
    low, high = 0, len(counts)
    while low < high:
        middle = (low + high) // 2
        if (yield from any_works(_likely(levels[counts[middle]]))):
            high = middle
        else:
            low = middle + 1
    for n_devices in counts[:high][::-1]:
        yield from any_works(levels[n_devices])
    if not any(works.values()):
        yield from any_works(nearest(forecasts))


def _likely(level: Sequence[Knobs]) -> list[Knobs]:
    """The first few that differ in more than their batch sizes."""
    firsts: dict[Knobs, Knobs] = {}
    for knobs in level:
        firsts.setdefault(replace(knobs, batch_size=1), knobs)
    return list(islice(firsts.values(), N_LIKELY))
